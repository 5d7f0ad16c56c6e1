"""The first exchange about raw tables: one map, whoever holds which row."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.maps import Categories, Normalize, Numbers, RandomFourier, TableMap
from fedmoments.core.tables import (
    FIRST_EXCHANGE,
    draft_form,
    draft_table,
    table_after,
    table_bandwidth,
    table_map,
    table_sums,
)
from fedmoments.errors import InputError, NotEnoughDataError

RNG = np.random.default_rng(7)
N = 240
CELLS: dict[str, list[Any]] = {
    "age": [None if RNG.random() < 0.1 else float(age) for age in RNG.integers(20, 90, N)],
    "income": np.exp(RNG.normal(10, 2, N)).tolist(),
    "ward": RNG.choice(["a", "b", "c", "", "rare"], N, p=[0.4, 0.3, 0.2, 0.09, 0.01]).tolist(),
    "constant": [3.5] * N,
    "empty": [None] * N,
    "only": ["same"] * N,
}
Y = RNG.integers(0, 3, N)
DRAFT = draft_table(CELLS, least=1)
X = DRAFT.code(CELLS)
WHOLE = table_after(DRAFT, X, Y, n_classes=3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=N, max_size=N), st.randoms())
def test_the_map_is_the_same_for_every_split_bit_for_bit(holders: list[int], random: Any) -> None:
    form, held = draft_form(DRAFT, N), np.array(holders)
    parts = [table_sums(DRAFT, X[held == k], Y[held == k], n_classes=3, form=form) for k in range(5)]
    while len(parts) > 1:  # merged in any tree
        first, second = (parts.pop(random.randrange(len(parts))) for _ in range(2))
        parts.append(first + second)
    assert table_map(DRAFT, parts[0]) == WHOLE
    assert table_map(DRAFT, parts[0]).fingerprint() == WHOLE.fingerprint()


def test_centers_and_scales_are_means_and_deviations_of_what_is_there() -> None:
    columns = {column.name: column for column in WHOLE.columns}
    for name in ("age", "income"):
        there = np.array([cell for cell in CELLS[name] if cell is not None], np.float32).astype(float)
        column = columns[name]
        assert isinstance(column, Numbers)
        assert column.center == pytest.approx(there.mean(), rel=1e-6)
        assert column.scale == pytest.approx(there.std(), rel=1e-5)
    assert columns["age"].missing
    assert not columns["income"].missing


def test_columns_that_do_not_vary_give_nothing_and_rare_categories_are_others() -> None:
    assert [name for name in WHOLE.outputs if name.startswith(("constant", "empty", "only"))] == []
    ward = WHOLE.columns[2]
    assert isinstance(ward, Categories)
    rare = CELLS["ward"].count("rare")
    assert 0 < rare < 5
    assert ward.categories == ("a", "b", "c")
    assert ward.other
    assert ward.missing
    every = table_map(DRAFT, table_sums(DRAFT, X, Y, n_classes=3), least=1)
    assert "ward = rare" in every.outputs


def test_features_behind_the_map_have_mean_0_and_deviation_1_where_they_are_numbers() -> None:
    Z = WHOLE(X)
    numbers = ~WHOLE.counted
    there = (Z[:, numbers] != 0).mean(axis=0)
    assert np.abs(Z[:, numbers].mean(axis=0)).max() < 1e-6
    assert (Z[:, numbers] ** 2).mean(axis=0) == pytest.approx(there, abs=1e-5)


def test_any_earlier_centers_and_scales_lead_to_the_same_map() -> None:
    moved = TableMap(
        tuple(
            Numbers(column.name, 11.0, 37.0, column.missing) if isinstance(column, Numbers) else column
            for column in DRAFT.columns
        )
    )
    stats = fm.Statistics.of(moved(X), Y, FIRST_EXCHANGE, n_classes=3)
    for one, other in zip(table_map(moved, stats).columns, WHOLE.columns, strict=True):
        if isinstance(one, Numbers) and isinstance(other, Numbers) and one.scale is not None:
            assert (one.center, one.scale) == pytest.approx((other.center, other.scale), rel=1e-6)
        elif isinstance(one, Categories):
            assert one == other
    gram = fm.Statistics.of(DRAFT(X), Y, fm.StatisticsSpec.of("gram"), n_classes=3)
    assert table_map(DRAFT, gram).outputs == WHOLE.outputs


def test_the_width_of_a_kernel_comes_from_the_same_first_exchange() -> None:
    stats = table_sums(DRAFT, X, Y, n_classes=3)
    Z = WHOLE(X)
    assert table_bandwidth(DRAFT, stats) == pytest.approx(np.sqrt(2 * Z.var(axis=0, ddof=1).sum()), rel=1e-5)


def test_sums_of_another_map_or_without_squares_are_refused() -> None:
    with pytest.raises(InputError, match="another map"):
        table_map(WHOLE, table_sums(DRAFT, X, Y, n_classes=3))
    with pytest.raises(InputError, match="gh-nb"):
        table_map(DRAFT, fm.Statistics.of(DRAFT(X), Y, fm.StatisticsSpec(), n_classes=3))
    nothing = fm.Statistics.zero(FIRST_EXCHANGE, n_classes=3, dim=len(DRAFT.outputs))
    with pytest.raises(NotEnoughDataError):
        table_map(DRAFT, nothing)


def test_codes_of_numbers_can_be_categories() -> None:
    draft = draft_table({"zip": [101, 202, 101] * 5}, categories=["zip"])
    assert draft.columns[0] == Categories("zip", ("101", "202"))
    with pytest.raises(InputError, match="no column 'zap'"):
        draft_table({"zip": [1]}, categories=["zap"])


def test_rows_behind_a_draft_are_no_longer_than_its_form_allows() -> None:
    assert np.linalg.norm(DRAFT(X), axis=1).max() <= draft_form(DRAFT, N).norm_bound


# ------------------------------------------------------------------------------------------------------- fm.fit

SITES = np.array([f"site {k}" for k in np.arange(N) % 4])
NAMES = np.array(["ill", "odd", "well"])[Y]
# A column that tells the class, so that there is something to learn.
TOLD: Any = {**CELLS, "score": (Y * 2.0 + RNG.normal(size=N) * 0.3).tolist()}


def clients() -> dict[str, Any]:
    return {
        site: (
            {name: [cells[i] for i in np.flatnonzero(site == SITES)] for name, cells in TOLD.items()},
            NAMES[site == SITES],
        )
        for site in dict.fromkeys(SITES.tolist())
    }


@pytest.mark.parametrize("head", ["fedncm", "fedcof", "auto", "gh-lda", "fed3r"])
def test_fit_takes_raw_tables_by_client_and_predicts_from_raw_tables(head: str) -> None:
    classifier = fm.fit(head, clients(), feature_map="table")
    assert classifier.class_names == ("ill", "odd", "well")
    predicted = np.array(classifier.class_names)[classifier.predict(TOLD)]
    assert (predicted == NAMES).mean() > 0.8  # a third by chance


def test_fit_of_one_table_equals_fit_by_client_and_the_map_does_not_depend_on_the_sites() -> None:
    whole = {**TOLD, "label": NAMES.tolist(), "client": SITES.tolist()}
    frame = pytest.importorskip("pandas").DataFrame(whole)
    one, other = fm.fit("fedcof", frame, feature_map="table"), fm.fit("fedcof", clients(), feature_map="table")
    assert one.feature_map == other.feature_map
    assert one.digest() == other.digest()
    moved = fm.fit("fedcof", frame.assign(client=SITES[::-1]), feature_map="table")
    assert moved.feature_map == one.feature_map
    given = fm.fit("fedcof", frame, feature_map=one.feature_map)
    assert given.digest() == one.digest()


def test_maps_behind_the_table_follow_it() -> None:
    first = fm.fit("fedncm", clients(), feature_map="table").feature_map
    assert first is not None
    behind = first | Normalize()
    assert fm.fit("fedncm", clients(), feature_map=behind).feature_map == behind
    kernel = fm.fit("fed3r-rf", clients(), feature_map="table", n_features=200)
    assert isinstance(kernel.feature_map.maps[-1], RandomFourier)  # type: ignore[union-attr]
    assert (np.array(kernel.class_names)[kernel.predict(TOLD)] == NAMES).mean() > 0.9


def test_measure_behind_a_table_takes_raw_tables_and_coded_ones() -> None:
    table = fm.fit("fedncm", clients(), feature_map="table").feature_map
    assert isinstance(table, TableMap)
    labels = {"ill": 0, "odd": 1, "well": 2}
    coded = {site: (table.code(cells), [labels[name] for name in names]) for site, (cells, names) in clients().items()}
    spec = fm.spec_for("gh-lda")
    raw = fm.measure(clients(), spec, feature_map=table).statistics()
    assert raw == fm.measure(coded, spec, feature_map=table).statistics()


def test_raw_tables_that_differ_in_their_columns_are_refused() -> None:
    odd = clients()
    del odd["site 2"][0]["ward"]
    with pytest.raises(InputError, match="'ward' is not in all"):
        fm.fit("fedncm", odd, feature_map="table")
    with pytest.raises(InputError, match="named columns"):
        fm.fit("fedncm", {"a": ([[1.0]], [0])}, feature_map="table")
    with pytest.raises(InputError, match=r"client 'age': it is \(table, labels\), or a table with .* not list"):
        fm.fit("fedncm", TOLD, feature_map="table")


def test_tables_of_all_kinds_are_the_same_table() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    whole = {**TOLD, "label": NAMES.tolist(), "client": SITES.tolist()}
    frame = pandas.DataFrame(whole)
    wanted = fm.fit("fedcof", frame, feature_map="table")
    for same in (
        frame.convert_dtypes(),  # gaps are pandas' NA
        polars.DataFrame(whole, strict=False),
        polars.DataFrame(whole, strict=False).lazy(),
        {site: frame[frame["client"] == site].drop(columns="client") for site in dict.fromkeys(SITES.tolist())},
    ):
        assert fm.fit("fedcof", same, feature_map="table").digest() == wanted.digest()
    numbered = pandas.concat([frame[["label", "client"]], pandas.DataFrame({0: Y * 2.0 + RNG.normal(size=N)})], axis=1)
    table = fm.fit("fedcof", numbered, feature_map="table").feature_map
    assert isinstance(table, TableMap)
    assert table.code(numbered).shape == (N, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client": [None, *SITES[1:]]}, "column 'client' of clients has 1 missing values"),
        ({"label": [None, *NAMES[1:]]}, "column 'label' of labels has 1 missing values"),
        ({"label": [float("nan"), *Y[1:].tolist()]}, "column 'label' of labels has 1 missing values"),
        ({"score": [float("inf"), *TOLD["score"][1:]]}, "the column 'score': it is inf, not a number of at most 1e.30"),
        ({"score": [[1]] * N}, "row 1 of the column 'score': list is not a cell"),
    ],
)
def test_cells_that_cannot_be_meant_are_refused(changes: dict[str, Any], words: str) -> None:
    frame = pytest.importorskip("pandas").DataFrame(
        {**TOLD, "label": NAMES.tolist(), "client": SITES.tolist(), **changes}
    )
    with pytest.raises(InputError, match=words):
        fm.fit("fedncm", frame, feature_map="table")
    with pytest.raises(InputError, match="the table has two columns 'score'"):
        fm.fit("fedncm", pytest.importorskip("pandas").concat([frame, frame[["score"]]], axis=1), feature_map="table")
    with pytest.raises(InputError, match="but a NoneType arrived"):
        fm.fit("fedncm", None, feature_map="table")


def test_columns_that_vary_and_give_nothing_are_named() -> None:
    dated = {site: ({**cells, "day": [f"2020-01-{i:03}" for i in range(len(names))]}, names)
             for site, (cells, names) in clients().items()}  # fmt: skip
    with pytest.warns(UserWarning, match="the columns day vary, but give no feature"):
        fm.fit("fedncm", dated, feature_map="table")
