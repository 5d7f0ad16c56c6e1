"""Tables and comparisons of observations: against pandas, against counts by hand, and refusals that say what to do."""

import numpy as np
import pytest

from fedmoments.core.observations import Observation, Report, Results
from fedmoments.core.observations.observation import mcnemar, student_interval
from fedmoments.errors import InputError
from fedmoments.samples.features import Features, Samples
from fedmoments.study.simulation import simulate


@pytest.fixture(scope="module")
def simulated() -> Report:
    rng = np.random.default_rng(3)
    means = rng.normal(size=(4, 6))

    def draw(n: int) -> Samples:
        y = rng.integers(4, size=n)
        return Samples(means[y] + rng.normal(size=(n, 6)), y)

    features = Features("toy", 4, draw(300), draw(101))
    return simulate(features, ["fedncm", "gh-lda"], clients=[5, 10], splits=["iid"], seeds=3)


def test_a_simulation_emits_what_its_rows_say(simulated: Report) -> None:
    for row in simulated.rows:
        place = {"head": row.head, "clients": row.setting.clients}
        [accuracy] = simulated.results.at(**place).observations
        assert (accuracy.mean, accuracy.spread, accuracy.seeds) == (row.accuracy, row.accuracy_std, (0, 1, 2))
        [sent] = simulated.results.at(**place, quantity="up").observations
        assert sent.mean == pytest.approx(row.up_bytes_per_client)
        assert sent.unit == "bytes"


def test_the_frame_has_a_line_for_every_seed(simulated: Report) -> None:
    pytest.importorskip("pandas")
    frame = simulated.results.to_frame()
    shown = frame[frame.quantity == "accuracy"]
    assert len(shown) == 2 * 2 * 3
    for row in simulated.rows:
        mine = shown[(shown["head"] == row.head) & (shown["clients"] == row.setting.clients)]
        assert mine["value"].mean() == pytest.approx(row.accuracy)
        assert list(mine["seed"]) == [0, 1, 2]


def test_a_missing_pandas_is_said_kindly(simulated: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmoments.errors import MissingExtraError

    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="A data frame of results needs the package 'pandas'"):
        simulated.results.to_frame()


def test_a_pivot_has_the_means_and_refuses_what_is_ambiguous(simulated: Report) -> None:
    table = simulated.results.pivot("head", "clients")
    assert (table.row_values, table.column_values) == (("fedncm", "gh-lda"), (5, 10))
    for row in simulated.rows:
        assert table.cells[row.head, row.setting.clients].mean == row.accuracy
    with pytest.raises(InputError, match=r"differ in clients: say which, as pivot\('head', 'split', NAME=VALUE\)"):
        simulated.results.pivot("head", "split")
    assert simulated.results.pivot("head", "split", clients=5).cells["fedncm", "iid"].mean is not None


def test_latex_holds_every_cell(simulated: Report) -> None:
    text = simulated.results.pivot("head", "clients").to_latex(digits=1)
    for row in simulated.rows:
        assert f"{100 * (row.accuracy or 0):.1f} \\pm {100 * (row.accuracy_std or 0):.1f}" in text
    assert text.count(r"\\") == 3
    hostile = Observation({"head": "a_b & 50% {x}", "clients": 1}, (0.5,))
    assert r"a\_b \& 50\% \{x\} & $50.00$ \\" in Results((hostile,)).pivot("head", "clients").to_latex()


def test_methods_are_compared_by_seeds_and_by_samples(simulated: Report) -> None:
    for comparison in simulated.results.compare("gh-lda", "fedncm"):
        clients = comparison.place["clients"]
        ours, theirs = (
            next(row for row in simulated.rows if (row.head, row.setting.clients) == (head, clients))
            for head in ("gh-lda", "fedncm")
        )
        apart = [(a.accuracy or 0) - (b.accuracy or 0) for a, b in zip(ours.outcomes, theirs.outcomes, strict=True)]
        assert comparison.differences == pytest.approx(apart)
        assert comparison.interval == student_interval(comparison.differences)
        for test, one, other in zip(comparison.samples, ours.outcomes, theirs.outcomes, strict=True):
            bits = [np.unpackbits(np.frombuffer(each.hits, np.uint8))[:101] for each in (one, other)]
            first, second = int((bits[0] > bits[1]).sum()), int((bits[1] > bits[0]).sum())
            assert test == mcnemar(first, second)
            assert (first - second) / 101 == pytest.approx((one.accuracy or 0) - (other.accuracy or 0))
    assert len(simulated.results.compare("gh-lda", "fedncm")) == 2
    assert simulated.results.compare("gh-lda", "nobody") == ()
