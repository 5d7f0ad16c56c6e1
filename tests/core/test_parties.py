"""Clients as people hold them: dicts, lists, data frames, tensors; text labels become class names."""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.arrays import as_array
from fedmoments.core.columns import Columns
from fedmoments.core.parties import parties_of
from fedmoments.errors import InputError

RNG = np.random.default_rng(0)
NAMES = np.array(["cat", "dog", "emu"])
Y = RNG.integers(0, 3, size=90)
X = RNG.normal(size=(90, 4)) + 3 * np.eye(3, 4)[Y]
SITE = np.array(["north", "south", "west"])[np.arange(90) % 3]
COLUMNS = {**{f"emb{j}": X[:, j] for j in range(4)}, "label": NAMES[Y].tolist(), "client": SITE.tolist()}
WANTED = fm.measure({s: (X[s == SITE], Y[s == SITE]) for s in dict.fromkeys(SITE)}, fm.spec_for("fedcof"), n_classes=3)


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def categorical_frame() -> Any:
    return pandas_frame().astype({"label": "category", "client": "category"})


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").table(COLUMNS)


def hub_dataset() -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(
        {"embedding": X.tolist(), "label": COLUMNS["label"], "client": COLUMNS["client"]}
    )


def vector_table() -> Any:
    arrow = pytest.importorskip("pyarrow")
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(X.ravel()), 4)
    return arrow.table({"vector": vectors, "label": COLUMNS["label"], "client": COLUMNS["client"]})


@pytest.mark.parametrize(
    "made", [pandas_frame, categorical_frame, polars_frame, arrow_table, hub_dataset, vector_table]
)
def test_a_table_is_split_by_its_column_of_clients(made: Any) -> None:
    assert fm.measure(made(), fm.spec_for("fedcof")).statistics() == WANTED.statistics()
    classifier = fm.fit("fedcof", made())
    assert classifier.class_names == ("cat", "dog", "emu")
    assert (classifier.predict(X) == Y).mean() > 0.9


def test_columns_are_chosen_by_name_and_pattern() -> None:
    table = (
        arrow_table()
        .append_column("age", [list(range(90))])
        .rename_columns(["emb0", "emb1", "emb2", "emb3", "what", "who", "age"])
    )
    names: dict[str, Any] = {"label": "what", "client": "who"}
    assert fm.measure(table, fm.spec_for("fedcof"), features="emb*", **names).statistics() == WANTED.statistics()
    assert fm.measure(table, fm.StatisticsSpec(), features=["emb1", "age"], **names).dim == 2
    with pytest.raises(InputError, match="no column is called 'mass': there are emb0, emb1"):
        fm.measure(table, fm.StatisticsSpec(), features="mass", **names)
    with pytest.raises(InputError, match=r"the table has no column 'label' of labels: it has emb0.*by label="):
        fm.measure(table, fm.StatisticsSpec())


def test_a_column_that_is_no_feature_is_named() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(
        {"a": [1.0, None], "b": ["x", "y"], "v": [[1.0], [1.0, 2.0]], "label": [0, 1], "client": [0, 1]}
    )
    for features, words in (
        ("a", "column 'a' has 1 missing"),
        ("b", "column 'b' is of string"),
        ("v", "column 'v' has vectors of 1 to 2 numbers"),
    ):
        with pytest.raises(InputError, match=words):
            fm.measure(table, fm.StatisticsSpec(), features=features)


def test_a_list_of_pairs_is_numbered() -> None:
    pairs = [(X[s == SITE], Y[s == SITE]) for s in dict.fromkeys(SITE)]
    ledger = fm.measure(pairs, fm.spec_for("fedcof"))
    assert ledger.statistics() == WANTED.statistics()
    assert set(ledger.clients) == {0, 1, 2}


def test_text_labels_keep_a_given_order_of_names() -> None:
    parties = parties_of({"a": (X, NAMES[Y])}, Columns(), ["emu", "dog", "cat", "owl"])
    assert parties.class_names == ("emu", "dog", "cat", "owl")
    assert np.array_equal(parties.data["a"][1], 2 - Y)  # type: ignore[index]
    assert fm.fit("fedncm", {"a": (X, NAMES[Y])}, class_names=["emu", "dog", "cat", "owl"]).n_classes == 4
    with pytest.raises(InputError, match="client 'a': the label 'cat' is none of the classes dog, emu"):
        fm.fit("fedncm", {"a": (X, NAMES[Y])}, class_names=["dog", "emu"])


def test_tensors_of_any_kind_become_arrays() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(X).bfloat16().requires_grad_()
    assert as_array(tensor).dtype == np.float32
    classifier = fm.fit("fedncm", {"a": (tensor, torch.from_numpy(Y))})
    assert (classifier.predict(X) == Y).mean() > 0.9


@pytest.mark.parametrize("given", ["column", "ragged", "meta"])
def test_what_other_libraries_cannot_turn_into_numbers_is_our_error(given: str) -> None:
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    clients = {
        "column": pandas.Series([1]),
        "ragged": {"a": ([[1, 2], [3]], [0, 1])},
        "meta": {"a": (torch.zeros(2, 2, device="meta"), [0, 1])},
    }[given]
    with pytest.raises(InputError):
        fm.fit("fedncm", clients)
