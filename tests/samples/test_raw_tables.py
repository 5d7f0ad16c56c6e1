"""Raw tables from files: cells that are coded, drafts, and what cannot be used."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.raw_tables import clinic, write_clinic

from fedmoments.core.maps import Categories, Normalize, Numbers, TableMap
from fedmoments.core.tables import draft_table
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples.raw_tables import read_map, write_map
from fedmoments.samples.sources.registry import load_data
from fedmoments.samples.unlabelled import read_unlabelled

OPTIONS = {"label": "outcome", "group": "patient"}


def test_a_draft_is_what_the_table_holds_without_whose_rows_they_are(tmp_path: Path) -> None:
    data = load_data(f"csv:{write_clinic(tmp_path / 'a.csv')}", table="draft", **OPTIONS)
    assert data.table is not None
    assert data.table.names == ("age", "score", "ward")
    assert isinstance(data.table.columns[0], Numbers)
    assert isinstance(data.table.columns[2], Categories)
    assert data.modality == "features"
    assert set(data.class_names) == {"ill", "well"}
    cells = clinic(120, 0)
    wanted = draft_table({name: cells[name] for name in data.table.names})
    assert data.table == wanted


def test_csv_and_parquet_and_frames_give_the_same_codes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = write_clinic(tmp_path / "a.csv")
    frame = pandas.read_csv(path)
    frame.to_parquet(tmp_path / "a.parquet")
    one = load_data(f"csv:{path}", table="draft", test_share=0.0, **OPTIONS)
    other = load_data(f"parquet:{tmp_path / 'a.parquet'}", table="draft", test_share=0.0, **OPTIONS)
    assert one.table is not None
    assert one.table == other.table
    np.testing.assert_array_equal(one.train.items, other.train.items)
    np.testing.assert_array_equal(one.train.items, one.table.code(frame))


def test_a_given_table_decides_which_columns_are_read_and_features_which_may_be(tmp_path: Path) -> None:
    path = write_clinic(tmp_path / "a.csv")
    table = TableMap((Categories("ward", ("west",)),))
    write_map(tmp_path / "t.json", table | Normalize())
    assert read_map(tmp_path / "t.json") == table | Normalize()
    given = load_data(f"csv:{path}", table=str(tmp_path / "t.json"), **OPTIONS)
    assert given.table == table
    assert given.train.items.shape[1] == 1  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no column 'ward' that may be a feature"):
        load_data(f"csv:{path}", table=table, features="age,score", **OPTIONS)
    with pytest.raises(InputError, match="no column 'outcome' that may be a feature"):
        load_data(f"csv:{path}", table=TableMap((Categories("outcome", ("ill",)),)), **OPTIONS)
    with pytest.raises(InputError, match="texts, images or numbers"):
        load_data(f"csv:{path}", table="draft", text="ward", label="outcome")


def test_a_test_file_is_coded_by_the_same_table(tmp_path: Path) -> None:
    train = write_clinic(tmp_path / "a.csv", 60, 0)
    test = write_clinic(tmp_path / "b.csv", 30, 1, ward=["cellar"] * 30)
    data = load_data(f"csv:{train}", table="draft", test=str(test), label="outcome")
    assert len(data.test) == 30
    assert data.table is not None
    Z = data.table(data.test.items)
    assert (Z[:, data.table.outputs.index("ward is another")] == 1).all()


def test_rows_whose_cells_are_no_numbers_are_named_and_left_out(tmp_path: Path) -> None:
    path = write_clinic(tmp_path / "a.csv", 12, 0)
    table = TableMap((Numbers("score"),))
    text = path.read_text().splitlines()
    text[3] = text[3].replace(text[3].split(",")[1], "high")
    path.write_text("\n".join(text) + "\n")
    data = load_data(f"csv:{path}", table=table, label="outcome", test_share=0.0)
    assert len(data.train) == 11
    assert [str(problem) for problem in data.problems] == [
        "a.csv row 3: its 'score': it is 'high', not a number of at most 1e+30 in size"
    ]


@pytest.mark.parametrize(
    "document",
    ["", "[]", "{}", '{"kind":"normalize"}', '{"kind":"table"}', '{"kind":"table","columns":[{"name":"x"}]}', "\x00"],
)
def test_files_that_describe_no_table_are_refused(tmp_path: Path, document: str) -> None:
    place = tmp_path / "t.json"
    place.write_text(document)
    with pytest.raises(FedMomentsError):
        load_data(f"csv:{write_clinic(tmp_path / 'a.csv')}", table=str(place), label="outcome")
    with pytest.raises(InputError, match="'fedmoments table' makes one"):
        load_data(f"csv:{tmp_path / 'a.csv'}", table="nowhere.json", label="outcome")


def test_people_can_read_and_change_what_is_written(tmp_path: Path) -> None:
    write_map(tmp_path / "t.json", TableMap((Categories("ward", ("Süd", "east")),)))
    assert "Süd" in (tmp_path / "t.json").read_text("utf-8")
    document = json.loads((tmp_path / "t.json").read_text("utf-8"))
    document["columns"][0]["categories"].append("north")
    (tmp_path / "t.json").write_text(json.dumps(document))
    changed = read_map(tmp_path / "t.json")
    assert isinstance(changed, TableMap)
    assert changed.columns[0].outputs[2] == "ward = north"


def test_unlabelled_raw_tables_are_coded_for_predictions(tmp_path: Path) -> None:
    path = write_clinic(tmp_path / "a.csv", 12, 0)
    table = TableMap((Numbers("score"), Categories("ward", ("west",))))
    samples = read_unlabelled([str(path)], "features", table=table)
    cells = clinic(12, 0)
    np.testing.assert_array_equal(np.array(list(samples.items)), table.code(cells))
    lacking = read_unlabelled([str(path)], "features", table=TableMap((Numbers("height"),)))
    assert "no column 'height', which this model needs" in str(lacking.problems[0])
