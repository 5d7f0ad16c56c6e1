"""Tables whose samples are numbers: columns by name, by pattern, or one column of vectors."""

from pathlib import Path

import numpy as np
import pytest

from fedmoments.errors import InputError
from fedmoments.samples.sources.registry import load_data

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, size=120)
X = RNG.normal(size=(120, 4)) + 3 * np.eye(3, 4)[Y]
NAMES = np.array(["ash", "birch", "cedar"])


def write_csv(path: Path) -> str:
    lines = ["emb0,emb1,emb2,emb3,age,label,site"]
    lines += [
        ",".join([*map(repr, map(float, row)), "7", NAMES[y], f"s{i % 4}"])
        for i, (row, y) in enumerate(zip(X, Y, strict=True))
    ]
    path.write_text("\n".join(lines))
    return f"csv:{path}"


def test_columns_of_a_csv_file_by_pattern(tmp_path: Path) -> None:
    data = load_data(write_csv(tmp_path / "t.csv"), features="emb*", client="site", test_share=0)
    assert data.modality == "features"
    assert np.array_equal(data.train.items, X)
    assert data.class_names == ("ash", "birch", "cedar")
    assert set(data.train.clients) == {"s0", "s1", "s2", "s3"}  # type: ignore[arg-type]
    some = load_data(write_csv(tmp_path / "t.csv"), features="age, emb1", test_share=0)
    assert np.array_equal(some.train.items, np.column_stack([np.full(120, 7.0), X[:, 1]]))


@pytest.mark.parametrize("kind", ["columns", "vectors"])
def test_a_parquet_file_without_texts_or_images_holds_numbers(tmp_path: Path, kind: str) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    numbers = {f"f{j}": X[:, j] for j in range(4)} if kind == "columns" else {"id": range(120), "vector": X.tolist()}
    parquet.write_table(arrow.table({**numbers, "label": NAMES[Y]}), tmp_path / "t.parquet")
    data = load_data(f"parquet:{tmp_path}/t.parquet", test_share=0.25)
    assert data.modality == "features"
    assert data.train.items.shape == (90, 4)  # type: ignore[union-attr]


def test_features_that_are_no_numbers_are_problems_by_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,x\n1,many,y\n3,nan,x\n4,5,y\n")
    data = load_data(f"csv:{tmp_path}/t.csv", features="a,b", test_share=0)
    assert np.array_equal(data.train.items, [[1, 2], [4, 5]])
    assert [problem.why for problem in data.problems] == [
        "one of its features is 'many', not a finite number",
        "one of its features is 'nan', not a finite number",
    ]
    with pytest.raises(InputError, match="no column is called 'c'"):
        load_data(f"csv:{tmp_path}/t.csv", features="c")
    with pytest.raises(InputError, match="texts, images or numbers"):
        load_data(f"csv:{tmp_path}/t.csv", features="a", text="b")


def test_a_second_file_is_tested_on(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,x\n1,3,y\n")
    (tmp_path / "u.csv").write_text("b,a,label\n9,8,x\n")
    data = load_data(f"csv:{tmp_path}/t.csv", features="a,b", test=str(tmp_path / "u.csv"))
    assert np.array_equal(data.test.items, [[8, 9]])
