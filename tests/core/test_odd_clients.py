"""Odd things that people pass as clients' data: the right answer, or an error of ours that says what to do."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError

RNG = np.random.default_rng(0)
N, D = 60, 4
Y = np.arange(N) % 3
X = np.round(RNG.normal(size=(N, D)) + 3 * np.eye(3, D)[Y], 3)
NAMES = np.array(["u", "v", "w"])
SITE = np.where(np.arange(N) < 30, "a", "b")
SPEC = fm.spec_for("fedcof", "gh-lda")
WANTED = fm.measure({"a": (X[:30], Y[:30]), "b": (X[30:], Y[30:])}, SPEC).statistics()


def two(features: Any, labels: Any) -> dict[str, Any]:
    return {"a": (features[:30], labels[:30]), "b": (features[30:], labels[30:])}


def frame(**more: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    columns = {f"f{j}": X[:, j] for j in range(D)}
    return pandas.DataFrame({**columns, "label": Y, "client": SITE, **more})


def torch() -> Any:
    return pytest.importorskip("torch")


def pandas() -> Any:
    return pytest.importorskip("pandas")


def polars() -> Any:
    return pytest.importorskip("polars")


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


def datasets() -> Any:
    return pytest.importorskip("datasets")


RIGHT: dict[str, Callable[[], Any]] = {
    "features as Python objects": lambda: two(X.astype(object), Y),
    "decimals": lambda: two([[Decimal(str(v)) for v in row] for row in X.tolist()], Y),
    "fractions": lambda: two([[Fraction(v) for v in row] for row in X.tolist()], Y),
    "labels as Python objects": lambda: two(X, Y.astype(object)),
    "labels as floats": lambda: two(X, Y.astype(float)),
    "labels as bytes": lambda: two(X, np.char.encode(NAMES)[Y].astype(object)),
    "nothing masked": lambda: two(np.ma.array(X), np.ma.array(Y)),
    "lists of tensors": lambda: two(list(torch().tensor(X, requires_grad=True)), list(torch().tensor(Y))),
    "an empty client": lambda: {"c": ([], []), **two(X, Y), "d": (X[:0], Y[:0])},
    "nullable frames": lambda: {
        site: (frame().loc[site == SITE, ["f0", "f1", "f2", "f3"]].convert_dtypes(), pandas().array(Y[site == SITE]))
        for site in "ab"
    },
    "a frame a client": lambda: {site: frame()[site == SITE] for site in "ab"},
    "a data set a client": lambda: datasets().DatasetDict(
        {site: datasets().Dataset.from_pandas(frame()[site == SITE]) for site in "ab"}
    ),
    "a lazy frame": lambda: polars().DataFrame(frame()).lazy(),
    "a shuffled frame": lambda: frame().sample(frac=1.0, random_state=0).sort_values("client", kind="stable"),
    "an index with a name": lambda: frame().set_index(np.arange(N)[::-1]).rename_axis("patient"),
    "a shuffled data set": lambda: datasets().Dataset.from_pandas(frame().sample(frac=1.0, random_state=0)),
    "dates as clients": lambda: frame(client=pandas().to_datetime(np.where(SITE == "a", "2020-01-01", "2021-01-01"))),
    "decimals in a table": lambda: arrow().table(
        {f"f{j}": [Decimal(str(v)) for v in X[:, j].tolist()] for j in range(D)} | {"label": Y, "client": SITE}
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_odd_kinds_of_the_same_data_measure_the_same(name: str) -> None:
    found = fm.measure(RIGHT[name](), SPEC).statistics()
    assert found.counts.tolist() == WANTED.counts.tolist()
    np.testing.assert_allclose(found.gram, WANTED.gram, rtol=1e-12)
    np.testing.assert_allclose(np.sort(found.rows.block_means(), axis=0), np.sort(WANTED.rows.block_means(), axis=0))


def test_truth_values_are_classes_and_features() -> None:
    assert fm.measure(two(X, Y > 0), SPEC).n_classes == 2
    assert fm.measure(two(X, (Y > 0).tolist()), SPEC).pool().counts.tolist() == [20, 40]
    with_flag = fm.measure(frame(flag=Y > 0), SPEC)
    assert with_flag.dim == D + 1


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "masked features": (lambda: two(np.ma.array(X, mask=X > 3), Y), r"client 'a': \d+ of 120 entries are masked"),
    "masked labels": (lambda: two(X, np.ma.array(Y, mask=Y == 0)), "client 'a': 10 of 30 entries are masked"),
    "text features": (lambda: two(np.full((N, D), "q"), Y), "client 'a': features must be numbers; sample 0 holds 'q'"),
    "missing feature": (lambda: two([[None, *row] for row in X.tolist()], Y), "client 'a': features must be finite"),
    "missing label": (
        lambda: two(X, [None, *Y[1:].tolist()]),
        "client 'a': labels must be whole numbers, but sample 0 has nan",
    ),
    "missing name": (lambda: two(X, [*NAMES[Y[:-1]], None]), r"client 'b': sample 29 has no label \(None\)"),
    "names and numbers": (
        lambda: two(X, ["u", *Y[1:30].tolist(), "v", *Y[31:].tolist()]),
        "client 'a': labels are all numbers or all",
    ),
    "NaN label": (
        lambda: two(X, np.where(Y == 1, np.nan, Y)),
        "client 'a': labels must be whole numbers, but sample 1 has nan",
    ),
    "half labels": (lambda: two(X, Y + 0.5), "client 'a': labels must be whole numbers, but sample 0 has 0.5"),
    "a code as label": (lambda: two(X, np.where(Y == 0, 10**9, Y)), "client 'a' has the label 1000000000, which would"),
    "a hash as label": (lambda: two(X, np.full(N, 2**63, np.uint64)), "client 'a' has the label 9223372036854775808"),
    "one-hot labels": (lambda: two(X, np.eye(3)[Y]), "client 'a': labels must be one a sample"),
    "a column of labels": (lambda: two(X, Y[:, None]), "client 'a': labels must be one a sample"),
    "one label": (lambda: {"a": (X, 0)}, "client 'a': labels must be one a sample"),
    "nothing": (lambda: {"a": (None, None)}, "client 'a': labels are all numbers or all text"),
    "names that look alike": (lambda: two(X, np.array(["é", "e\u0301", "z"])[Y]), "look the same"),
    "broken Unicode": (lambda: two(X, np.array(["\ud800", "b", "c"], object)[Y]), "is not valid Unicode"),
    "broken bytes": (lambda: two(X, np.array([b"\xff", b"b", b"c"], object)[Y]), "is not UTF-8"),
    "one party's pair": (lambda: (X, Y), r"a tuple of ndarray, ndarray arrived; a party alone is \{'me': \(X, y\)\}"),
    "a loader a client": (
        lambda: {"a": torch().utils.data.DataLoader(list(zip(X, Y, strict=True)), batch_size=30)},
        r"client 'a' must be .* a DataLoader arrived; a stream of batches goes to measure_stream",
    ),
    "a stream": (lambda: datasets().Dataset.from_pandas(frame()).to_iterable_dataset(), "IterableDataset arrived"),
    "rows of nobody": (lambda: frame(client=["a"] * 59 + [None]), "column 'client' of clients has 1 missing values"),
    "NaN clients": (
        lambda: polars().DataFrame(frame(client=[1.0] * 59 + [float("nan")])),
        "column 'client' of clients has 1 missing values",
    ),
    "rows of no class": (lambda: frame(label=[None, *NAMES[Y[1:]]]), "column 'label' of labels has 1 missing values"),
    "lists as clients": (lambda: frame(client=[["a"]] * N), r"column 'client' of clients holds \['a'\]"),
    "complex numbers": (lambda: frame(f0=X[:, 0] + 1j), "does not become a table of columns of one type each"),
    "a name twice": (
        lambda: arrow().table([X[:, 0], X[:, 1], Y, SITE], names=["f", "f", "label", "client"]),
        "the table has two columns 'f'",
    ),
}


@pytest.mark.parametrize("head", ["fedncm", "auto"])
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_right_is_one_sentence(name: str, head: str) -> None:
    make, words = WRONG[name]
    with pytest.raises(InputError, match=words):
        fm.fit(head, make())


def test_sparse_matrices_are_refused_with_a_way_out() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(InputError, match=r"client 'a': a sparse matrix \(30, 4\) is not taken: give it as .toarray"):
        fm.fit("fedncm", two(sparse.csr_array(X), Y))


def test_columns_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(InputError, match="'label' cannot be of labels and of clients"):
        fm.fit("fedncm", frame(), client="label")
    with pytest.raises(InputError, match="columns are named by text"):
        fm.fit("fedncm", frame(), features=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="class_names has 'u' twice"):
        fm.fit("fedncm", two(X, NAMES[Y]), class_names=["u", "u", "v", "w"])
    with pytest.raises(InputError, match="class_names is a list of texts, not 'uvw'"):
        fm.fit("fedncm", two(X, NAMES[Y]), class_names="uvw")
    for count in ("3", 2.5, 0, True):
        with pytest.raises(InputError, match="n_classes must be a whole number of at least 1"):
            fm.fit("fedncm", two(X, Y), n_classes=count)  # type: ignore[arg-type]
