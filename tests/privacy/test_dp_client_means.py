"""Client means with noise: the sensitivity is a public constant, the law without noise, the account, who adds it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import Accountant, release_client_means
from fedmoments.privacy.dp.client_means import MeansForm, scatter_plan, spread_of
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed

FORM = FixedPoint(1.0, 2**20)
SPEC = StatisticsSpec.of("client_means")


def norm(packed: np.ndarray, dim: int) -> float:
    """Return the Frobenius norm of a packed matrix."""
    steps = np.arange(dim)
    diagonal = packed[steps * (steps + 3) // 2]
    return float(np.sqrt(2 * np.square(packed).sum() - np.square(diagonal).sum()))


def spread(X: np.ndarray, centre: np.ndarray, clip: float) -> np.ndarray:
    if not len(X):
        return np.zeros(len(centre) * (len(centre) + 1) // 2)
    stats = Statistics.of(X, np.zeros(len(X), int), SPEC, n_classes=1)
    return np.asarray(spread_of(stats, centre[None], np.array([True]), clip)[0])


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 60), clip=st.sampled_from([0.05, 0.3, 1.0, 2.0]))
def test_law_one_sample_changes_the_spread_by_no_more_than_the_public_bound(seed: int, n: int, clip: float) -> None:
    """The neighbours that an attacker would choose: aligned, opposite, at the bound and inside it."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 4))

    def vector() -> np.ndarray:
        drawn = rng.normal(size=dim)
        return np.asarray(drawn / np.linalg.norm(drawn) * rng.choice([1.0, 1.0, rng.random()]))

    axis = vector()
    others = np.array([axis if rng.random() < 0.7 else vector() for _ in range(n)]).reshape(n, dim)
    new = -axis if rng.random() < 0.7 else vector()
    centre = rng.choice([0.0, 1.0, -1.0, rng.random()]) * axis
    change = norm(spread(np.vstack([others, new]), centre, clip) - spread(others, centre, clip), dim)
    assert change <= (clip**2 + 4 * clip) * (1 + 1e-9)


def test_the_bound_is_nearly_attained() -> None:
    """A bound that no data come near would only mean more noise than is needed."""
    clip = 0.05  # the mean moves by 2/(n+1) along the axis, just beyond the clipped ball's edge
    closest = 0.0
    for n in range(1, 200):
        axis = np.array([1.0])
        for offset in np.linspace(-1, 1, 81):
            others = np.full((n, 1), 1.0)
            change = norm(
                spread(np.vstack([others, -axis]), np.array([offset]), clip) - spread(others, np.array([offset]), clip),
                1,
            )
            closest = max(closest, change / (clip**2 + 4 * clip))
    assert closest > 0.45


def test_law_without_noise_it_is_the_free_scatter() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(12):  # every client holds five samples of every class: equal counts, equal numbers of clients
        X = rng.normal(size=(15, 4)) * 0.1
        parts.append(Statistics.of(X, np.repeat(np.arange(3), 5), SPEC, n_classes=3))
    whole = Statistics.merge(parts)
    means = whole.sums / whole.counts[:, None]
    packed, pairs = spread_of(whole, means, np.array([True] * 3), clip=10.0)
    assert pairs == 36
    rows = whole.rows.block_means(slice(None)) - means[whole.rows.labels]
    exact = (60 - 1) / (12 - 1) * 5 * rows.T @ rows
    ours = packed * (180 - 3) / (pairs - 3)
    assert ours == pytest.approx(exact[np.triu_indices(4)][[0, 1, 4, 2, 5, 7, 3, 6, 8, 9]], rel=1e-12)


def clients(n_clients: int, seed: int = 0) -> dict[str, Statistics]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, 8))
    parts = {}
    for k in range(n_clients):
        y = rng.integers(0, 4, 40)
        X = centres[y] + 0.4 * rng.normal(size=(40, 8))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        parts[f"c{k}"] = Statistics.of(X, y, SPEC, n_classes=4, fixed_point=FORM)
    return parts


def test_both_steps_together_spend_the_budget_and_no_more() -> None:
    account = Accountant(2.0, 1e-5)
    out = release_client_means(Statistics.merge(clients(30).values()), Agreed(epsilon=2.0), account)
    assert account.spent == pytest.approx(2.0, rel=1e-6)
    both = scatter_plan(DenseLayout(StatisticsSpec(), 4, 8), FORM, Agreed(epsilon=2.0))
    apart = Accountant(2.0, 1e-5)  # the account adds the two steps up to the one that was charged
    apart.record(both.sums.ratio)
    apart.record(both.ratio)
    assert apart.spent == pytest.approx(account.spent, rel=1e-6)
    assert set(out.arrays) == {"sums", "contributors", "free_scatter"}
    with pytest.raises(PrivacyError):
        release_client_means(Statistics.merge(clients(30).values()), Agreed(epsilon=2.0), account)


def test_the_noise_has_the_size_that_was_planned() -> None:
    agreed, layout = Agreed(epsilon=1.0), DenseLayout(StatisticsSpec(), 4, 8)
    both = scatter_plan(layout, FORM, agreed)
    from fedmoments.privacy.dp.client_means import _noised
    from fedmoments.privacy.dp.discrete import Stream

    draws = np.array([FORM.dequantize(_noised(np.zeros(36), 0, both, Stream()), 2) for _ in range(400)])
    assert draws[:, 0].std() == pytest.approx(both.scatter_sigma, rel=0.15)
    assert draws[:, 1].std() == pytest.approx(both.scatter_sigma / np.sqrt(2), rel=0.15)
    twice = scatter_plan(layout, FORM, Agreed(epsilon=1.0, neighbours="replace"))
    assert twice.sensitivity == pytest.approx(2 * both.sensitivity)


def test_sums_that_drown_in_noise_are_spent_all_the_same() -> None:
    """That no class stands out is told by the noised sums: whoever drew again until one does would read them free."""
    few = Statistics.of(np.eye(8)[:1], [0], SPEC, n_classes=4, fixed_point=FORM)
    form = MeansForm(DenseLayout(StatisticsSpec(), 4, 8), FORM, Agreed(epsilon=0.01))
    for _ in range(20):
        drawn = form.noised(few)
        assert drawn.shape == (form.size,)
        try:
            form.statistics(drawn)
        except NotEnoughDataError:
            return
    pytest.fail("noise of ε = 0.01 drowns one sample in most draws")


def test_heads_on_client_means_are_fitted_from_what_was_noised() -> None:
    parts = clients(200)
    noised = Agreed(epsilon=8.0).mode.simulated(Crowd.of(parts)).statistics
    clear = Statistics.merge(parts.values())
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 8))
    agree = (fm.fit("fedcof", noised).predict(X) == fm.fit("fedcof", clear).predict(X)).mean()
    assert agree > 0.7
    first, second = (Agreed(epsilon=8.0).mode.simulated(Crowd.of(parts)).statistics for _ in range(2))
    assert first.digest() != second.digest()  # noise never follows from a seed


def test_what_the_derivation_does_not_cover_is_refused() -> None:
    mode = Agreed(epsilon=1.0).mode
    for spec in (StatisticsSpec.of("client_means", "gram"), StatisticsSpec.of("client_means", means_per_client=2)):
        with pytest.raises(PrivacyError, match="client means are released with differential privacy alone"):
            mode.check(spec)
    with pytest.raises(PrivacyError, match="hiding one client was requested"):
        Agreed(epsilon=1.0, unit="client", client_norm=20.0).mode.check(SPEC)


def test_local_noise_is_at_every_client_and_root_k_as_large() -> None:
    agreed = Agreed(epsilon=4.0, noise="local")
    spec = StatisticsSpec()
    parts = {name: part.restricted(spec) for name, part in clients(50).items()}
    true = Statistics.merge(parts.values())
    errors: dict[str, list[np.ndarray]] = {"local": [], "central": []}
    for noise, found in errors.items():
        for _ in range(6):
            out = Agreed(epsilon=4.0, noise=noise).mode.simulated(Crowd.of(parts)).statistics
            found.append((out.sums - true.sums)[out.classes].ravel())
    ratio = np.concatenate(errors["local"]).std() / np.concatenate(errors["central"]).std()
    assert ratio == pytest.approx(np.sqrt(50), rel=0.3)
    assert agreed.mode.rows()["noised by"] == "every client, before it sends anything"


def test_local_noise_does_not_go_with_masks_or_client_means() -> None:
    with pytest.raises(InputError, match="noise = local and secure sums exclude each other"):
        Agreed(epsilon=1.0, noise="local", secure="sums")
    with pytest.raises(PrivacyError):
        Agreed(epsilon=1.0, noise="local").mode.check(SPEC)
