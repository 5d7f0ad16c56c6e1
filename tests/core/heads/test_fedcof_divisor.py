"""FedCOF with the divisor K − 1 of its printed Eq. 8, against the formula written out."""

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.errors import InputError

Floats = NDArray[np.float64]


def clients() -> dict[int, tuple[Floats, NDArray[np.int64]]]:
    """Six clients; class 2 is held by three of them alone."""
    rng = np.random.default_rng(0)
    parts = {}
    for k in range(6):
        y = rng.integers(0, 3 if k < 3 else 2, 40)
        parts[k] = (rng.normal(size=(40, 5)) + 2.0 * np.eye(3, 5)[y], y)
    return parts


def printed(parts: dict[int, tuple[Floats, NDArray[np.int64]]], ridge: float) -> Floats:
    """Return FedCOF's weights with Σ̂_c = Σ_k n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ/(K − 1)."""
    X, y = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    counts = np.bincount(y)
    means = np.stack([X[y == c].mean(axis=0) for c in range(3)])
    gram = len(y) * np.outer(X.mean(axis=0), X.mean(axis=0))
    for c in range(3):
        own = [(part[0][part[1] == c].mean(axis=0), (part[1] == c).sum()) for part in parts.values() if c in part[1]]
        spread = sum(n * np.outer(mean - means[c], mean - means[c]) for mean, n in own) / (len(parts) - 1)
        gram += (counts[c] - 1) * spread
    weights = np.linalg.solve(gram + ridge * np.eye(5), (counts[:, None] * means).T)
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


def test_the_printed_divisor_is_the_formula_of_the_paper() -> None:
    parts = clients()
    ours = fm.fit("fedcof", parts, shrinkage="none", ridge=0.01, divisor="clients")
    assert np.allclose(dict(ours.arrays())["weights"], printed(parts, 0.01), atol=1e-9)


def test_it_differs_where_a_class_is_missing_at_some_clients_and_nowhere_else() -> None:
    parts = clients()
    everywhere = {k: part for k, part in parts.items() if k < 3}
    for held, same in ((parts, False), (everywhere, True)):
        printed_way, ours = (fm.fit("fedcof", held, divisor=word) for word in ("clients", "holders"))
        X = held[0][0]
        assert np.allclose(printed_way.scores(X), ours.scores(X)) == same


@pytest.mark.parametrize("head", ["fed3r", "fedcof-oracle"])
def test_other_covariances_have_no_such_divisor(head: str) -> None:
    with pytest.raises(InputError, match="belongs to the free covariance"):
        fm.make_head(head, divisor="clients")
    with pytest.raises(InputError, match="divisor is one of holders, clients"):
        fm.make_head("fedcof", divisor="means")
