"""Protections in a simulation: exact where they promise it, noisy where they must be, refused where they do not go."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmoments.core.heads import make_head
from fedmoments.core.statistics import FixedPoint, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.protection import Agreed, Protection
from fedmoments.privacy.secure import OVERHEAD_BYTES
from fedmoments.privacy.sweep import read_protections
from fedmoments.samples import DROPPED, Split, parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study
from fedmoments.study.jobs import run_job
from fedmoments.study.simulation import Federation, simulate
from fedmoments.study.simulation.payload import withhold

CLASSES, DIM = 4, 6


def made(n: int = 1200, *, spread: float = 0.25, seed: int = 0) -> Features:
    rng = np.random.default_rng(seed)
    centres = np.eye(CLASSES, DIM)

    def draw(size: int) -> Samples:
        y = rng.integers(0, CLASSES, size)
        return Samples(centres[y] + spread * rng.normal(size=(size, DIM)), y)

    return Features("toy", CLASSES, draw(n), draw(400))


TOY = made()
SPLIT = parse_split("dirichlet:0.5").apply(TOY.train.y, n_clients=12, seed=0)


def federation(protection: Protection, *heads: str, split: Split = SPLIT, **more: object) -> Federation:
    chosen = [make_head(name) for name in heads or ("gh-lda",)]
    return Federation(TOY, split, chosen, protection=protection, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["fedncm", "fed3r", "gh-lda", "gh-nb", "gh-qda"])
def test_secure_sums_give_the_classifier_of_clear_sums_bit_for_bit(head: str) -> None:
    clear = federation(Protection(), head, fixed_point=FixedPoint())
    masked = federation(Protection(Agreed(secure="sums")), head)
    chosen = make_head(head)
    assert masked.received(chosen) == clear.received(chosen)
    assert masked.fitted(chosen).digest() == clear.fitted(chosen).digest()


def test_a_masked_vector_is_charged_whole_at_eight_bytes_a_number() -> None:
    head = make_head("gh-lda")
    outcome = federation(Protection(Agreed(secure="sums"))).outcome(head)
    each = 8 * DenseLayout(StatisticsSpec.of("gram"), CLASSES, DIM).size + OVERHEAD_BYTES
    assert outcome.up_floats * 4 == pytest.approx(12 * each, abs=4)


def test_a_batch_that_is_too_small_fits_nothing_and_says_why() -> None:
    outcome = federation(Protection(Agreed(secure="sums", batch=13))).outcome(make_head("gh-lda"))
    assert outcome.accuracy is None
    assert "a batch must have 13 reports" in (outcome.reason or "")


@pytest.mark.parametrize("secure", [None, "sums"])
def test_noise_is_drawn_anew_whatever_the_seed(secure: str | None) -> None:
    protection = Protection(Agreed(secure=secure, epsilon=4.0))
    head = make_head("gh-lda")
    np.random.seed(0)  # noqa: NPY002 - must change nothing
    first = federation(protection).received(head)
    np.random.seed(0)  # noqa: NPY002
    second = federation(protection).received(head)
    assert first != second
    assert federation(protection).outcome(head).accuracy == pytest.approx(0.9, abs=0.1)


def test_each_head_has_a_release_of_its_own() -> None:
    noisy = federation(Protection(Agreed(epsilon=2.0)), "fedncm", "gh-lda")
    means, second = (noisy.received(make_head(name)) for name in ("fedncm", "gh-lda"))
    assert (means.spec.sent, second.spec.sent) == (("sums",), ("sums", "gram"))
    assert not np.array_equal(means.sums, second.sums)
    assert noisy.shield is not None
    spent = {"epsilon": pytest.approx(2.0, rel=1e-3), "delta": 1e-5, "releases": 1}
    assert noisy.shield.spent == spent


@pytest.mark.parametrize("secure", [None, "sums"])
def test_one_of_two_planned_releases_spends_less_than_both(secure: str | None) -> None:
    noisy = federation(Protection(Agreed(secure=secure, epsilon=2.0, releases=2)))
    noisy.received(make_head("gh-lda"))
    assert noisy.shield is not None
    assert noisy.shield.spent is not None
    assert 1.0 < noisy.shield.spent["epsilon"] < 1.6  # two Gaussian releases compose to 2, not to twice one of them


def test_under_noise_features_are_bounded_by_a_public_map() -> None:
    unit = federation(Protection(Agreed(epsilon=2.0)))
    assert np.allclose(np.linalg.norm(unit.mapped.train.X[unit.split.clients != DROPPED], axis=1), 1.0)
    clipped = federation(Protection(Agreed(epsilon=2.0, clip=0.5)))
    assert np.linalg.norm(clipped.mapped.train.X, axis=1).max() <= 0.5
    assert clipped.fitted(make_head("fedncm")).feature_map is not None


@pytest.mark.parametrize(
    ("agreed", "why"),
    [
        (Agreed(epsilon=2.0, unit="client", client_norm=20.0), "hiding one client was requested"),
        (Agreed(epsilon=2.0, noise="local"), "cannot be released with differential privacy"),
        (Agreed(secure="sums"), "choose the modes two-phase or cohorts"),
    ],
)
def test_heads_on_client_means_are_refused_where_they_cannot_be_protected(agreed: Agreed, why: str) -> None:
    outcome = federation(Protection(agreed), "fedcof").outcome(make_head("fedcof"))
    assert outcome.accuracy is None
    assert why in (outcome.reason or "")


def test_heads_on_client_means_are_fitted_from_noised_phases() -> None:
    noised = federation(Protection(Agreed(epsilon=8.0)), "fedcof")
    assert (noised.outcome(make_head("fedcof")).accuracy or 0.0) > 0.5
    assert noised.shield is not None
    assert noised.shield.spent == {"epsilon": pytest.approx(8.0), "delta": 1e-5, "releases": 1}
    by_class = noised.outcome(make_head("qda-free"))
    assert by_class.accuracy is None
    assert by_class.reason


def test_local_noise_needs_no_trust_and_costs_accuracy() -> None:
    local = federation(Protection(Agreed(epsilon=8.0, noise="local")), "fedncm").outcome(make_head("fedncm"))
    central = federation(Protection(Agreed(epsilon=8.0)), "fedncm").outcome(make_head("fedncm"))
    assert local.accuracy is not None
    assert central.accuracy is not None
    assert local.accuracy <= central.accuracy + 0.05


def test_two_phases_give_the_classifier_of_clear_client_means() -> None:
    head = make_head("fedcof")
    clear = federation(Protection(), "fedcof").fitted(head)
    masked = federation(Protection(Agreed(secure="two-phase")), "fedcof")
    found = masked.fitted(head)
    assert np.allclose(found.scores(TOY.test.X), clear.scores(TOY.test.X), rtol=1e-6, atol=1e-6)
    by_class = masked.outcome(make_head("qda-free"))
    assert "secure sums inside cohorts" in (by_class.reason or "")


def test_cohorts_serve_heads_on_client_means_and_follow_from_the_seed() -> None:
    protection = Protection(Agreed(secure="cohorts", cohort=4))
    head = make_head("fedcof")
    first, again, other = (federation(protection, "fedcof", seed=seed) for seed in (0, 0, 1))
    assert first.received(head) == again.received(head)
    assert first.received(head) != other.received(head)
    assert len(first.received(head).rows) <= 3 * CLASSES
    assert first.outcome(head).accuracy == pytest.approx(1.0, abs=0.1)
    assert first.outcome(make_head("gh-lda")).accuracy == pytest.approx(1.0, abs=0.1)


def test_secure_client_means_are_one_a_class() -> None:
    several = federation(Protection(Agreed(secure="cohorts", cohort=4)), "fedcof", means_per_client=2)
    assert "one mean a client and class" in (several.outcome(make_head("fedcof")).reason or "")


def test_an_examination_names_attackers_and_who_moves_the_head() -> None:
    head = make_head("fedncm")
    spec = head.needs
    shield = federation(Protection(attack="flip:0.1:100", robust="mad"), "fedncm").shield
    assert shield is not None
    found = shield.examination("fedncm", head, spec)
    assert found is not None
    assert found.attackers == tuple(each.client for each in found.dropped)
    assert found.influence[0].client in found.attackers
    plain = federation(Protection(obfuscation="uniform:0.5"), "fedncm").shield
    assert plain is not None
    assert plain.examination("fedncm", head, spec) is None


def test_a_minimum_count_leaves_out_what_a_client_would_withhold() -> None:
    kept = withhold(SPLIT, TOY.train.y, 20)
    cells = SPLIT.cells(TOY.train.y, CLASSES).toarray()
    expected = np.where(cells >= 20, cells, 0)
    assert 0 < (expected == 0).sum() < expected.size
    assert np.array_equal(kept.cells(TOY.train.y, CLASSES).toarray(), expected)
    assert f"{int(cells.sum() - expected.sum()):,} samples" in kept.why
    by_rule = federation(Protection(min_count=20), "fedcof").outcome(make_head("fedcof"))
    by_hand = federation(Protection(), "fedcof", split=kept).outcome(make_head("fedcof"))
    assert replace(by_rule, fit_seconds=None) == replace(by_hand, fit_seconds=None)


def test_nothing_is_withheld_from_one_sample_on() -> None:
    assert withhold(SPLIT, TOY.train.y, 1) is SPLIT


def test_obfuscated_counts_follow_from_the_seed_and_keep_means() -> None:
    protection = Protection(obfuscation="uniform:0.3")
    head = make_head("fedcof")
    first, again = (federation(protection, "fedcof", seed=3).received(head) for _ in range(2))
    assert first == again
    assert first != federation(protection, "fedcof", seed=4).received(head)
    clear = federation(Protection(), "fedcof").received(head)
    before, after = (
        {(label, *np.round(mean, 6)) for label, mean in zip(rows.labels, rows.block_means(), strict=True)}
        for rows in (clear.rows, first.rows)
    )
    assert len(after & before) > 0.9 * len(after)


def test_a_filter_takes_the_sting_out_of_flipped_labels() -> None:
    features = made(6000)
    split = parse_split("iid").apply(features.train.y, n_clients=40, seed=0)
    heads = [make_head(name) for name in ("fedncm", "gh-lda", "fedcof")]

    def accuracy(protection: Protection) -> list[float]:
        made_here = Federation(features, split, heads, protection=protection)
        return [made_here.outcome(head).accuracy or 0.0 for head in heads]

    clean = accuracy(Protection())
    hit = accuracy(Protection(attack="flip:0.1:100"))
    saved = accuracy(Protection(attack="flip:0.1:100", robust="mad"))
    assert max(hit) < min(clean) - 0.3
    assert np.allclose(saved, clean, atol=0.01)


def test_a_cap_on_samples_is_public_and_needs_no_filter() -> None:
    capped = federation(Protection(max_samples=int(SPLIT.sizes.max()) - 1))
    capped.received(make_head("gh-lda"))
    assert capped.shield is not None
    assert list(capped.shield.dropped) == [f"client-{SPLIT.sizes.argmax():02d}"]


def test_a_cap_that_nobody_keeps_is_said() -> None:
    capped = federation(Protection(max_samples=1))
    with pytest.raises(NotEnoughDataError, match=r"clients were left out, such as .* Raise max_samples"):
        capped.received(make_head("gh-lda"))


def test_a_simulation_of_fewer_clients_than_a_head_needs_is_refused() -> None:
    assert federation(Protection(Agreed(parties=SPLIT.n_clients))).received(make_head("gh-lda")).n_samples
    with pytest.raises(InputError, match=f"{SPLIT.n_clients + 1} parties or more .* but there are {SPLIT.n_clients}"):
        federation(Protection(Agreed(parties=SPLIT.n_clients + 1))).received(make_head("gh-lda"))


def test_baselines_and_own_maps_say_why_they_are_not_protected() -> None:
    found = simulate(
        TOY,
        ["head-average", "fed3r-rf"],
        clients=[5],
        splits=["iid"],
        seeds=1,
        protections=[Protection(Agreed(epsilon=1.0))],
    )
    reasons = [row.reasons for row in found.rows]
    assert "neither summed in secret" in reasons[0][0]
    assert "feature map of its own" in reasons[1][0]


def test_epsilon_is_swept_and_told_in_every_file(tmp_path: Path) -> None:
    data = tmp_path / "toy.npz"
    train, test = TOY.train, TOY.test
    np.savez(data, x_train=train.X, y_train=train.y, x_test=test.X, y_test=test.y)
    config = StudySettings(
        data=f"npz:{data}",
        heads=("fedncm",),
        clients=(6,),
        splits=("iid",),
        seeds=1,
        privacy={"epsilon": [1.0, math.inf]},
    )
    found = run_job(config, tmp_path / "out", cache_dir=False)
    assert [row["epsilon"] for row in found.document["rows"]] == [1.0, None]
    card = found.document["privacy"]
    assert (card["mode"], card["agreed"]) == ("clear sums, noised", {"epsilon": 1.0})
    written = StudySettings.load(tmp_path / "out" / "config.toml")
    assert read_protections(written.privacy) == read_protections(config.privacy)
    lines = (tmp_path / "out" / "results.csv").read_text("utf-8").splitlines()
    place = lines[0].split(",").index("epsilon")
    assert [line.split(",")[place] for line in lines[1:]] == ["1.0", ""]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Who learns what" in page
    assert "ε = 1" in page


def test_a_job_refuses_rounds_beside_protections_before_any_work() -> None:
    config = StudySettings(heads=("fedncm",), participation=("5",), privacy={"epsilon": 1.0})
    with pytest.raises(InputError, match="simulated in the clear"):
        check_study(config)
    check_study(StudySettings(heads=("fedncm",), participation=("5",), privacy={"min_count": 5}))
