"""``csv:PATH`` and ``parquet:PATH``: one set of rules for both."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError, MissingExtraError
from fedmoments.samples import DataSet, load_data, sample_digests

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Table = Mapping[str, Sequence[Any]]
Write = Callable[[Path, Table], str]


def write_csv(path: Path, table: Table) -> str:
    import csv

    target = path.with_suffix(".csv")
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(["" if cell is None else cell for cell in row] for row in zip(*table.values(), strict=True))
    return f"csv:{target}"


def write_parquet(path: Path, table: Table) -> str:
    pq.write_table(pa.table({name: list(values) for name, values in table.items()}), path.with_suffix(".parquet"))
    return f"parquet:{path.with_suffix('.parquet')}"


@pytest.fixture(params=[write_csv, write_parquet], ids=["csv", "parquet"])
def write(request: pytest.FixtureRequest) -> Write:
    found: Write = request.param
    return found


def whys(data: DataSet) -> list[str]:
    return [str(problem).split(" row ")[1] for problem in data.problems]


def test_columns_are_guessed_and_labels_kept(tmp_path: Path, write: Write) -> None:
    table: Table = {"id": [1, 2, 3, 4], "text": ["w", "x", 'y, "z"\n!', "é"], "category": ["b10", "b9", "b10", "b9"]}
    data = load_data(write(tmp_path / "t", table), test_share=0)
    assert data.class_names == ("b9", "b10")
    assert list(data.train.items) == table["text"]
    assert data.train.labels.tolist() == [1, 0, 1, 0]
    assert data.modality == "text"


def test_whole_numbers_as_labels_keep_their_order(tmp_path: Path, write: Write) -> None:
    data = load_data(write(tmp_path / "t", {"text": list("abcd"), "label": [10, 9, -1, 9]}), test_share=0)
    assert data.class_names == ("-1", "9", "10")
    assert data.train.labels.tolist() == [2, 1, 0, 1]


def test_flawed_rows_are_named_by_number_and_the_run_goes_on(tmp_path: Path, write: Write) -> None:
    table = {
        "text": ["a", "", "  ", None, "e", "f"],
        "label": ["x", "x", "x", "x", None, "y"],
        "who": ["ann", "ann", "bob", "bob", "bob", None],
    }
    text = write(tmp_path / "t", table)
    data = load_data(text, client="who", test_share=0)
    assert whys(data) == ["2: its text is empty", "3: its text is empty", "4: its text is empty",
                          "5: it has no label", "6: it has no client"]  # fmt: skip
    assert len(data.train) == 1
    assert data.train.sources[0].endswith(" row 1")
    with pytest.raises(InputError, match=r"row 2: its text is empty. This run is strict"):
        load_data(text, strict=True)


def test_numbers_with_gaps_stay_whole(tmp_path: Path, write: Write) -> None:
    table: Table = {"text": list("abc"), "label": [1, None, 2], "client": [7, 7, 8]}
    data = load_data(write(tmp_path / "t", table), client="client", test_share=0)
    assert data.class_names == ("1", "2")
    assert data.train.clients is not None
    assert whys(data) == ["2: it has no label"]
    assert data.train.clients.tolist() == ["7", "8"]


def test_a_column_may_say_the_part(tmp_path: Path, write: Write) -> None:
    table = {"text": list("abcde"), "label": list("xyxyz"), "part": ["train", "Train", "test", "dev", "TEST"]}
    data = load_data(write(tmp_path / "t", table), split="part")
    assert list(data.train.items) == ["a", "b"]
    assert list(data.test.items) == ["c"]
    assert whys(data) == [
        "4: its part is 'dev', neither train nor test",
        "5: its class 'z' is not one of the 2 to train on",
    ]


def test_a_second_file_may_be_the_test_part(tmp_path: Path, write: Write) -> None:
    first = write(tmp_path / "a", {"text": list("abc"), "label": list("xyx"), "site": [1, 2, 1], "user": list("pqp")})
    second = write(tmp_path / "b", {"label": list("yq"), "text": list("de"), "site": [3, 3]}).partition(":")[2]
    data = load_data(first, test=second, domain="site", client="user")
    assert list(data.test.items) == ["d"]
    assert data.test.domains is not None
    assert data.test.domains.tolist() == ["3"]
    assert data.test.clients is None
    assert data.train.clients is not None
    with pytest.raises(InputError, match="not by both"):
        load_data(first, test=second, split="site")


def test_images_are_paths_relative_to_the_file(tmp_path: Path, write: Write) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/a.jpg").write_bytes(b"a")
    table: Table = {"file_name": ["pictures/a.jpg", "pictures/b.jpg", None], "label": list("xyx")}
    data = load_data(write(tmp_path / "t", table), test_share=0)
    assert data.modality == "image"
    assert list(data.train.items) == [tmp_path / "pictures/a.jpg"]
    assert whys(data) == [f"2: there is no file {tmp_path / 'pictures/b.jpg'}", "3: it has no image"]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, write: Write) -> None:
    text = write(tmp_path / "t", {"a": ["1"], "b": ["2"]})
    with pytest.raises(InputError, match=r"has no column 'c' for label: its columns are a, b"):
        load_data(text, text="a", label="c")
    with pytest.raises(
        InputError, match=r"which column of .* is text or image\? Name it: --text .*--table draft .*columns are a, b"
    ):
        load_data(text)
    with pytest.raises(InputError, match=r"which column of .* is label"):
        load_data(text, text="a")
    with pytest.raises(InputError, match="give the column of one"):
        load_data(text, text="a", image="b")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"not parquet")
    (tmp_path / "t.csv").write_bytes(b"text,label\n\xff\xfe,a\n")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "twice.csv").write_bytes(b"text,label,text\na,b,c\n")
    with pytest.raises(FileFormatError, match="not a valid Parquet file"):
        load_data(f"parquet:{tmp_path}/t.parquet")
    with pytest.raises(FileFormatError, match="not in UTF-8"):
        load_data(f"csv:{tmp_path}/t.csv")
    with pytest.raises(InputError, match="is empty: its first line must name the columns"):
        load_data(f"csv:{tmp_path}/empty.csv")
    with pytest.raises(InputError, match="the same name"):
        load_data(f"csv:{tmp_path}/twice.csv")
    for prefix in ("csv", "parquet"):
        with pytest.raises(InputError, match="cannot be read"):
            load_data(f"{prefix}:{tmp_path}/nowhere")


def test_rows_of_another_length_than_the_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\nhello, world,x\nshort\n\nfine,x\n")
    data = load_data(f"csv:{tmp_path}/t.csv", test_share=0)
    assert list(data.train.items) == ["fine"]
    assert whys(data) == [
        "1: it has 3 cells, but the header has 2: is a comma in a text not in quotes?",
        "2: it has no label",
    ]


def test_tab_separated_files_and_long_texts_and_marks_at_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("\ufefftext\tlabel\n" + "long " * 100_000 + "\tx\n", encoding="utf-8")
    data = load_data(str(tmp_path / "t.tsv"), test_share=0)
    assert len(data.train.items[0]) == 500_000
    (tmp_path / "t.csv").write_text("text;label\na;x\n")
    assert list(load_data(str(tmp_path / "t.csv"), delimiter=";", test_share=0).train.items) == ["a"]


def png(value: int) -> bytes:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("struct", [False, True])
def test_images_in_bytes_stay_in_the_table_until_they_are_asked_for(tmp_path: Path, struct: bool) -> None:
    pictures = [png(i) for i in range(4)]
    cells: list[Any] = [{"bytes": picture, "path": None} for picture in pictures] if struct else list(pictures)
    text = write_parquet(tmp_path / "t", {"image": [*cells, None], "label": list("xyxyx")})
    data = load_data(text, test_share=0.5)
    assert not isinstance(data.train.items, list)
    found = {**dict(zip(data.train.sources, data.train.items, strict=True)),
             **dict(zip(data.test.sources, data.test.items, strict=True))}  # fmt: skip
    assert found == {f"t.parquet row {i + 1}": picture for i, picture in enumerate(pictures)}
    assert whys(data) == ["5: it has no image"]
    assert sample_digests(data.train).shape == (2, 32)


def test_class_names_that_datasets_wrote_are_kept(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes", "?"])}
    )
    rows = datasets.Dataset.from_dict({"text": list("abc"), "label": [1, 0, -1]}, features=features)
    rows.to_parquet(str(tmp_path / "t.parquet"))
    data = load_data(f"parquet:{tmp_path}/t.parquet", test_share=0)
    assert data.class_names == ("no", "yes", "?")
    assert data.train.labels.tolist() == [1, 0]
    assert [str(problem) for problem in data.problems] == [
        "t.parquet row 3: it has no label",
        "class ?: it has no sample to train on",
    ]


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.dataset", None)
    with pytest.raises(MissingExtraError, match=r"fedmoments\[tables\]"):
        load_data(f"parquet:{tmp_path}/t.parquet")
