"""Laws of a simulation: it is what the library gives, head by head; seeds, sweeps and bytes are as they say."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import fedmoments as fm
from fedmoments.core.heads import Head
from fedmoments.core.observations import Report
from fedmoments.errors import InputError
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.simulation import Federation, simulate, standard_heads, upload_size


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(3)
    means = rng.normal(scale=1.5, size=(6, 8))

    def draw(n: int) -> Samples:
        y = rng.integers(6, size=n)
        return Samples(means[y] + rng.normal(size=(n, 8)), y)

    return Features("toy", 6, draw(400), draw(300), domains=np.arange(400) % 3, ids=np.arange(400) % 7)


def parties(features: Features, scheme: str, clients: int, seed: int) -> dict[Any, Any]:
    split = parse_split(scheme).apply(features.train.y, n_clients=clients, seed=seed)
    return {k: (features.train.X[mine], features.train.y[mine]) for k, mine in enumerate(split)}


@pytest.mark.parametrize("head", fm.head_names())
def test_every_head_gets_the_accuracy_that_fit_gives(features: Features, head: str) -> None:
    hyper: dict[str, Any] = {"n_features": 50} if head == "fed3r-rf" else {}
    heads = dict.fromkeys(["fedncm", "gh-qda", "fedcof", head])
    result = simulate(features, heads, clients=[8], splits=["dirichlet:0.5"], seeds=2, hyper={head: hyper})
    row = next(row for row in result.rows if row.head == head)
    for outcome in row.outcomes:
        direct = fm.fit(head, parties(features, "dirichlet:0.5", 8, outcome.seed), n_classes=6, **hyper)
        expected = (direct.predict(features.test.X) == features.test.y).mean()
        assert outcome.accuracy == pytest.approx(expected)


def test_a_mapped_head_on_client_means_keeps_clients_apart(features: Features) -> None:
    hyper: dict[str, Any] = {"n_features": 40, "scatter": "within", "covariance": "free"}
    row = simulate(features, ["fed3r-rf"], clients=[8], splits=["iid"], seeds=1, hyper={"fed3r-rf": hyper}).rows[0]
    direct = fm.fit("fed3r-rf", parties(features, "iid", 8, 0), n_classes=6, **hyper)
    assert row.accuracy == pytest.approx((direct.predict(features.test.X) == features.test.y).mean())


def test_additive_heads_do_not_depend_on_the_split(features: Features) -> None:
    rows = simulate(features, ["gh-lda"], clients=[3, 30], splits=["iid", "dirichlet:0.1"], seeds=3).rows
    assert len({accuracy for row in rows for accuracy in row.accuracies}) == 1


def test_a_sweep_is_the_cartesian_product(features: Features) -> None:
    result = simulate(
        features,
        ["fedncm", "fedcof"],
        clients=[4, 9],
        splits=["iid", "dirichlet:0.3"],
        shrinkages=["automatic", "absolute:1"],
        means_per_client=[1, 2],
        seeds=2,
    )
    assert len({(row.setting, row.head) for row in result.rows}) == len(result.rows) == 2**5
    assert all(len(row.outcomes) == 2 for row in result.rows)
    assert len(result.splits) == 2 * 2 * 2
    fedcof = [row for row in result.rows if row.head == "fedcof"]
    assert {row.hyper["shrinkage"] for row in fedcof} == {"automatic", "absolute:1"}
    one, two = (next(r for r in fedcof if r.setting.means_per_client == several) for several in (1, 2))
    assert two.up_bytes_total > one.up_bytes_total


def test_repeated_values_are_run_once(features: Features) -> None:
    assert len(simulate(features, ["fedncm", "fedncm"], clients=[4, 4], splits=["iid"], seeds=1).rows) == 1


@pytest.mark.parametrize(("split", "clients"), [("domain", 3), ("id", 7)])
def test_natural_splits_find_their_clients_in_the_data(features: Features, split: str, clients: int) -> None:
    row = simulate(features, ["fedncm"], splits=[split], seeds=1).rows[0]
    assert row.setting.clients is None
    assert row.outcomes[0].clients == clients


def test_a_head_that_cannot_be_fitted_has_a_row_with_the_reason(features: Features) -> None:
    rows = simulate(features, ["fedcof", "fedncm"], clients=[1], splits=["iid"], seeds=2).rows
    assert rows[0].accuracy is None
    assert rows[0].fit_seconds is None
    assert "shrinkage" in rows[0].reasons[0]
    assert rows[1].accuracy is not None


def test_a_head_that_needs_too_much_memory_is_reported_and_not_measured(features: Features) -> None:
    heads = [fm.make_head("gh-qda"), fm.make_head("gh-lda")]
    federation = Federation(features, parse_split("iid").apply(features.train.y, n_clients=5, seed=0), heads)
    most, limit = (federation._bytes(head, features.dim) for head in heads)
    assert most > limit
    rows = simulate(features, ["gh-qda", "gh-lda"], clients=[5], splits=["iid"], seeds=1, memory_limit=limit).rows
    assert "more than the limit" in rows[0].reasons[0]
    assert rows[1].accuracy is not None


def test_bytes_are_those_of_the_formula_over_classes_held(features: Features) -> None:
    rows = simulate(features, standard_heads(), clients=[9], splits=["dirichlet:0.2"], seeds=1).rows
    by_head = {row.head: row for row in rows}
    split = parse_split("dirichlet:0.2").apply(features.train.y, n_clients=9, seed=0)
    held, senders = split.cells(features.train.y, 6).nnz, int((split.sizes > 0).sum())
    assert by_head["fedcof"].up_bytes_total == by_head["fedncm"].up_bytes_total == 4 * held * 8
    assert by_head["fed3r"].up_bytes_total == 4 * (held * 8 + senders * 36)
    assert by_head["gh-qda"].up_bytes_total == 4 * held * (8 + 36)
    assert by_head["fed3r"].up_bytes_per_client == pytest.approx(by_head["fed3r"].up_bytes_total / senders)


def test_bytes_of_several_means_are_those_of_the_rows_really_sent(features: Features) -> None:
    split = parse_split("dirichlet:0.2").apply(features.train.y, n_clients=9, seed=0)
    spec = fm.spec_for("fedcof", means_per_client=3)
    ledger = fm.Ledger.of(features.train.X, features.train.y, split.clients, spec, n_classes=6)
    size = upload_size(spec, 8, split.cells(features.train.y, 6))
    assert size.counts == len(ledger.statistics().rows)
    assert size.floats == 8 * size.counts


def test_rows_and_a_gram_together_count_their_counts_once() -> None:
    cells = csr_array(np.array([[3, 0, 4], [0, 0, 0]]))
    size = upload_size(fm.spec_for("fedcof", "gh-lda"), 5, cells)
    assert (size.counts, size.floats) == (2, 2 * 5 + 15)


def test_random_features_count_their_own_dimension_and_the_first_exchange(features: Features) -> None:
    row = simulate(
        features, ["fed3r-rf"], clients=[4], splits=["iid"], seeds=1, hyper={"fed3r-rf": {"n_features": 10}}
    ).rows[0]
    held = 4 * 6
    assert row.up_bytes_total == 4 * (held * 10 + 4 * 55 + held * (8 + 1))


def test_results_are_json(features: Features) -> None:
    result = simulate(features, ["fedcof", "fedncm"], clients=[1, 5], splits=["iid"], seeds=2)
    read = json.loads(result.to_json())
    assert read == json.loads(json.dumps(result.to_dict()))
    sizes = {name: read["data"][name] for name in ("name", "train", "test", "dim", "classes")}
    assert sizes == {"name": "toy", "train": 400, "test": 300, "dim": 8, "classes": 6}
    assert [row.outcomes for row in Report.from_dict(read).rows] == [row.outcomes for row in result.rows]


def test_progress_counts_every_step(features: Features) -> None:
    steps: list[tuple[int, int]] = []
    simulate(
        features,
        ["fedncm", "gh-lda"],
        clients=[3, 4],
        splits=["iid"],
        seeds=2,
        progress=lambda done, total, _: steps.append((done, total)),
    )
    assert steps == [(done, 8) for done in range(9)]


def test_a_federation_fits_an_equal_head_once(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    head = fm.make_head("fedncm")
    federation = Federation(features, parse_split("iid").apply(features.train.y, n_clients=3), [head])
    first = federation.outcome(head)
    monkeypatch.setattr(Head, "fit", None)
    assert federation.outcome(replace(head)) is first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": []}, "no head"),
        ({"heads": ["nothing"]}, "unknown head"),
        ({"seeds": 0}, "seeds"),
        ({"splits": []}, "nothing to simulate"),
        ({"splits": ["quantity:0"]}, "ALPHA"),
        ({"means_per_client": [0]}, "1 or more"),
        ({"shrinkages": ["much"]}, "shrinkage is one of"),
        ({"hyper": {"gh-lda": {}}}, "not among the heads"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_measured(
    features: Features, change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fm.Ledger, "of", None)
    settings: dict[str, Any] = {"heads": ["fedncm"], "clients": [3], "splits": ["iid"], **change}
    with pytest.raises(InputError, match=words):
        simulate(features, **settings)
