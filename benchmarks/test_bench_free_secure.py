"""What FedCOF under secure sums costs, and what it keeps: accuracy and bytes beside the clear one and the gram.

Run it on features of your own, an npz file with x_train, y_train, x_test and y_test::

    python benchmarks/test_bench_free_secure.py features.npz --clients 100 --seeds 3
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import OVERHEAD_BYTES
from fedmoments.privacy.secure.cohort_draw import Roster, deal_cohorts
from fedmoments.privacy.secure.cohorts import plan_openings, rows_of
from fedmoments.privacy.secure.parties import SIMULATED
from fedmoments.samples import dirichlet_per_class

Array = NDArray[Any]
FORM = FixedPoint(norm_bound=1.0, max_samples=2**16)
ROWS = StatisticsSpec.of("client_means")


class Data(NamedTuple):
    """Features of length 1 and labels, to learn from and to test on."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    def accuracy(self, head: str, stats: Statistics) -> float:
        return float((fm.fit(head, stats).predict(self.X_test) == self.y_test).mean())

    def parts(self, n_clients: int, alpha: float, seed: int, spec: StatisticsSpec = ROWS) -> dict[str, Statistics]:
        split = dirichlet_per_class(self.y, n_clients, alpha, seed)
        return {
            f"{i:05d}": Statistics.of(
                self.X[split.indices(i)], self.y[split.indices(i)], spec, n_classes=self.n_classes, fixed_point=FORM
            )
            for i in range(n_clients)
        }


class Line(NamedTuple):
    """One line of the table: bytes are those of a client, both messages for two phases."""

    what: str
    accuracy: float
    rows: int
    bytes_up: int


def cohort_rows(parts: dict[str, Statistics], size: int, contributors: int, seed: int) -> Statistics:
    """Return the rows that the servers open, added up in the clear: the same bits, sooner."""
    first = next(iter(parts.values()))
    layout = DenseLayout(StatisticsSpec(), first.n_classes, first.dim)
    roster = Roster.of({name: hashlib.sha256(name.encode()).hexdigest() for name in parts})
    cohorts = deal_cohorts(roster, SIMULATED, seed.to_bytes(32, "big"), size)
    sums = np.stack([np.stack([layout.pack(parts[name]) for name in cohort]).sum(axis=0) for cohort in cohorts])
    openings, _ = plan_openings(np.stack([layout.contributors(total) for total in sums]), contributors)
    opened = []
    for each in openings:
        whole = sums[list(each.cohorts)].sum(axis=0)
        opened.append(np.concatenate([whole[layout.class_block(label)] for label in each.labels]))
    return rows_of(openings, opened, layout, FORM)


def free_table(
    data: Data,
    *,
    n_clients: int,
    alpha: float = 0.1,
    seed: int = 0,
    sizes: tuple[int, ...] = (5, 10, 20),
    thresholds: tuple[int, ...] = (3, 2, 1),
) -> Iterator[Line]:
    """Yield clear FedCOF, two phases, cohorts, and the gram with the within scatter."""
    parts = data.parts(n_clients, alpha, seed)
    clear = Statistics.merge(parts.values())
    sparse = int(np.mean([8 * part.class_counts.size * (data.X.shape[1] + 1) for part in parts.values()]))
    yield Line("clear", data.accuracy("fedcof", clear), len(clear.rows), sparse)
    mode, crowd = Agreed(secure="two-phase").mode, Crowd.of(parts)
    stats, up = mode.simulated(crowd).statistics, mode.cost(crowd.asked, clear=0).up
    yield Line("two-phase, threshold 3", data.accuracy("fedcof", stats), len(clear.rows), up)
    layout = DenseLayout(StatisticsSpec(), data.n_classes, data.X.shape[1])
    for size in sizes:
        for contributors in thresholds:
            stats = cohort_rows(parts, size, contributors, seed)
            what = f"cohorts of {size}, threshold {contributors}"
            yield Line(what, data.accuracy("fedcof", stats), len(stats.rows), OVERHEAD_BYTES + 8 * layout.size)
    spec = StatisticsSpec.of("gram")
    exact = Statistics.merge(data.parts(n_clients, alpha, seed, spec).values())
    layout = DenseLayout(spec, data.n_classes, data.X.shape[1])
    what = "gram, within scatter (fedcof-oracle)"
    yield Line(what, data.accuracy("fedcof-oracle", exact), 0, OVERHEAD_BYTES + 8 * layout.size)


def simulated(seed: int = 0) -> Data:
    """Return Gaussian classes with one covariance, features of length 1."""
    rng = np.random.default_rng(seed)
    n_classes, dim = 20, 48
    root = rng.normal(size=(dim, dim)) * np.geomspace(0.3, 0.02, dim)
    means = rng.normal(size=(n_classes, dim)) * 0.18
    y = rng.integers(0, n_classes, 6000)
    X = means[y] + rng.normal(size=(6000, dim)) @ root
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Data(X[:4000], y[:4000], X[4000:], y[4000:])


def test_two_phases_keep_what_cohorts_trade_for_bytes(note: Callable[[str, str, str], None]) -> None:
    lines = {each.what: each for each in free_table(simulated(), n_clients=60, alpha=0.3, sizes=(5, 15))}
    for each in lines.values():
        note(f"FedCOF {each.what}", f"{100 * each.accuracy:.1f} %, {each.bytes_up:,} B", "")
    clear, exact = lines["clear"], lines["two-phase, threshold 3"]
    assert exact.accuracy == clear.accuracy
    small, large = lines["cohorts of 5, threshold 1"], lines["cohorts of 15, threshold 1"]
    assert large.rows < small.rows < clear.rows
    assert small.accuracy > clear.accuracy - 0.03
    assert small.bytes_up < exact.bytes_up
    assert lines["gram, within scatter (fedcof-oracle)"].bytes_up < exact.bytes_up


def test_cohorts_in_the_clear_are_the_protocol() -> None:
    parts = simulated().parts(24, 0.3, 0)
    stats = Agreed(secure="cohorts", cohort=6).mode.simulated(Crowd.of(parts)).statistics
    clear = cohort_rows(parts, 6, 3, 0)
    np.testing.assert_array_equal(stats.raw("sums"), clear.raw("sums"))


def test_cost_of_cohorts_beside_one_sum(compare: Callable[..., float]) -> None:
    parts = simulated().parts(60, 0.3, 0)
    sums = {name: part.restricted(StatisticsSpec()) for name, part in parts.items()}
    compare(
        "cohorts of 10 / one secure sum",
        lambda: Agreed(secure="cohorts").mode.simulated(Crowd.of(parts)),
        lambda: Agreed(secure="sums").mode.simulated(Crowd.of(sums)),
        at_most=10.0,
        rounds=2,
    )


def main() -> None:
    """Print the table of an npz file."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    reader.add_argument("file")
    reader.add_argument("--clients", type=int, default=100)
    reader.add_argument("--seeds", type=int, default=3)
    reader.add_argument("--alpha", type=float, default=0.1)
    asked = reader.parse_args()
    with np.load(asked.file, allow_pickle=False) as file:
        data = Data(*(file[name] for name in ("x_train", "y_train", "x_test", "y_test")))
    runs = [list(free_table(data, n_clients=asked.clients, alpha=asked.alpha, seed=s)) for s in range(asked.seeds)]
    print(f"{asked.clients} clients, Dirichlet {asked.alpha:g}, {asked.seeds} seeds")
    for lines in zip(*runs, strict=True):
        found = 100 * np.array([each.accuracy for each in lines])
        rows, size = np.mean([each.rows for each in lines]), np.mean([each.bytes_up for each in lines])
        print(f"{lines[0].what:38} {found.mean():6.2f} ± {found.std():.2f} %  {rows:7.0f} rows  {size:9,.0f} B")


if __name__ == "__main__":
    main()
