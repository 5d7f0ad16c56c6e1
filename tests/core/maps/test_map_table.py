"""Raw tables as a feature map: cells to codes, codes to features, and descriptions of which nothing is believed."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.maps import Categories, Normalize, Numbers, TableMap, from_description, table_of
from fedmoments.core.maps.cells import MISSING, category_code, cell_number, cell_text
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError

TABLE = TableMap((Numbers("age", 50, 10), Categories("smoker", ("no", "yes")), Numbers("bmi", 25, 5, missing=False)))
CELLS: dict[str, list[Any]] = {
    "age": [60, None, "45", "NA"],
    "smoker": ["yes", "no", "rarely", ""],
    "bmi": [25, 30.0, None, "20"],
}


def naive(table: TableMap, cells: dict[str, list[Any]]) -> list[list[float]]:
    """Return features row by row, cell by cell, without codes."""
    rows = []
    for place in range(len(next(iter(cells.values())))):
        row: list[float] = []
        for column in table.columns:
            cell = cells[column.name][place]
            if isinstance(column, Numbers):
                number = cell_number(cell)
                gone = number == MISSING
                if column.scale is not None:
                    row.append(0.0 if gone else (float(np.float32(number)) - column.center) / column.scale)
            else:
                text = cell_text(cell)
                gone = text is None
                row += [float(text == known) for known in column.categories]
                row += [float(not gone and text not in column.categories)] * column.other
            row += [float(gone)] * column.missing
        rows.append(row)
    return rows


def test_a_table_map_equals_the_naive_one() -> None:
    assert TABLE(TABLE.code(CELLS)).tolist() == naive(TABLE, CELLS)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e6, 1e6, width=32), st.sampled_from(["", "NA", "7", " 8.5 "])),
            st.one_of(st.none(), st.text(max_size=4), st.integers(0, 3), st.sampled_from(["no", "yes", "nan"])),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_any_cells_give_what_the_naive_map_gives(rows: list[tuple[Any, Any]]) -> None:
    table = TableMap((Numbers("x", 1.5, 2.5), Categories("c", ("no", "yes", "2"), missing=False)))
    cells = {"x": [x for x, _ in rows], "c": [c for _, c in rows]}
    assert table(table.code(cells)).tolist() == naive(table, cells)


def test_measuring_through_the_map_equals_transforming_and_then_measuring() -> None:
    rng = np.random.default_rng(0)
    cells = {
        "age": [None if rng.random() < 0.2 else float(age) for age in rng.integers(20, 90, 200)],
        "smoker": rng.choice(["no", "yes", "rarely", ""], 200).tolist(),
        "bmi": rng.normal(26, 4, 200).tolist(),
    }
    y, spec = rng.integers(0, 3, 200), StatisticsSpec.of("gram", "client_means")
    through = Statistics.of(TABLE(TABLE.code(cells)), y, spec, n_classes=3)
    assert through == Statistics.of(np.array(naive(TABLE, cells)), y, spec, n_classes=3)


def test_codes_are_exact_in_float32_and_none_is_the_missing_one() -> None:
    codes = [category_code(f"category {place}") for place in range(5000)]
    assert len(set(codes)) == len(codes)
    assert all(float(np.float32(code)) == code and np.isfinite(code) and code != MISSING for code in codes)
    assert np.float32(MISSING) == np.finfo(np.float32).min


def test_codes_are_part_of_the_protocol() -> None:
    # They must be the same on every machine and in every version: a change here breaks federations that live.
    assert category_code("yes") == CODE_OF_YES


CODE_OF_YES = 1.9124566309097484e-17


def test_a_category_nobody_agreed_on_and_a_gap_have_columns_of_their_own() -> None:
    Z = TABLE(TABLE.code(CELLS))
    names = TABLE.outputs
    assert Z[2, names.index("smoker is another")] == 1
    assert Z[3, names.index("smoker is missing")] == 1
    assert Z[1, names.index("age is missing")] == 1
    assert Z[1, names.index("age")] == 0  # the mean
    assert Z[:, TABLE.counted].max() == 1
    assert set(np.unique(Z[:, TABLE.counted])) == {0.0, 1.0}


def test_spelling_does_not_matter_where_it_says_the_same() -> None:
    table = TableMap((Categories("c", ("é", "3")),))
    assert (table(table.code({"c": ["e\u0301", " é ", 3.0, "3", 3]}))[:, :2].sum(axis=1) == 1).all()


def test_a_description_gives_an_equal_map_with_an_equal_fingerprint() -> None:
    again = from_description(json.loads(json.dumps(TABLE.describe())))
    assert again == TABLE
    assert again.fingerprint() == TABLE.fingerprint()
    assert table_of(again | Normalize()) == TABLE
    changed = TableMap((Numbers("age", 50, 10.000001), *TABLE.columns[1:]))
    assert changed.fingerprint() != TABLE.fingerprint()


def test_rows_with_nan_stay_nan_for_statistics_to_refuse() -> None:
    coded = TABLE.code(CELLS).astype(float)
    coded[1, 0] = np.nan
    Z = TABLE(coded)
    assert np.isnan(Z[1]).all()
    assert np.isfinite(np.delete(Z, 1, axis=0)).all()


COLUMN = {"name": "age", "center": 0, "scale": 1, "missing": True}
LIST = {"name": "c", "categories": ["a"], "other": True, "missing": True}


@pytest.mark.parametrize(
    "columns",
    [
        None,
        [],
        "age",
        [3],
        [{**COLUMN, "name": ""}],
        [{**COLUMN, "name": "a\x1b[31m"}],
        [{**COLUMN, "name": "a" * 2000}],
        [{**COLUMN, "scale": 0}],
        [{**COLUMN, "scale": -1}],
        [{**COLUMN, "scale": 1e-300}],
        [{**COLUMN, "scale": float("inf")}],
        [{**COLUMN, "scale": True}],
        [{**COLUMN, "center": float("nan")}],
        [{**COLUMN, "center": "0"}],
        [{**COLUMN, "center": 10**400}],
        [{**COLUMN, "missing": 1}],
        [{**COLUMN, "more": 1}],
        [COLUMN, COLUMN],
        [{**COLUMN, "scale": None, "missing": False}],
        [{**LIST, "categories": "ab"}],
        [{**LIST, "categories": ["a", "a"]}],
        [{**LIST, "categories": [3]}],
        [{**LIST, "categories": [" a"]}],
        [{**LIST, "categories": ["NA"]}],
        [{**LIST, "categories": ["\n"]}],
        [{**LIST, "categories": [str(place) for place in range(2**16 + 1)]}],
        [{**LIST, "other": None}],
    ],
)
def test_descriptions_that_make_no_sense_are_refused(columns: Any) -> None:
    with pytest.raises(FedMomentsError):
        from_description({"kind": "table", "columns": columns})


def test_a_table_that_lacks_a_column_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="lacks the column 'bmi'"):
        TABLE.code({"age": [1], "smoker": ["no"]})
    with pytest.raises(InputError, match="one length"):
        TABLE.code({"age": [1], "smoker": ["no", "yes"], "bmi": [1]})
    with pytest.raises(InputError, match="a list arrived"):
        TABLE.code([[1, 2, 3]])
    with pytest.raises(InputError, match="list is not a cell"):
        TABLE.code({"age": [[1]], "smoker": ["no"], "bmi": [1]})


@pytest.mark.parametrize("cell", ["many", "1e40", float("inf"), -1e31, 10**400, object()])
def test_cells_of_numbers_that_hold_none_are_refused(cell: Any) -> None:
    with pytest.raises(InputError, match="row 1 of the column 'bmi'"):
        TABLE.code({"age": [1], "smoker": ["no"], "bmi": [cell]})
    with pytest.raises(InputError, match="its 'bmi'"):
        TABLE.code_row([1, "no", cell])


def test_tables_of_all_libraries_give_the_same_codes() -> None:
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    cells = {"age": [60.0, None, 45.0], "smoker": ["yes", None, "rarely"], "bmi": [25.0, 30.0, 31.5]}
    wanted = TABLE.code(cells)
    for frame in (pandas.DataFrame(cells), polars.DataFrame(cells), arrow.table(cells)):
        assert TABLE.code(frame).tolist() == wanted.tolist()
