"""What a scatter sketch cannot go with is refused early, whose it is and what to do instead; nothing is dropped."""

from collections.abc import Hashable

import numpy as np
import pytest
from tests.privacy.secure_workshop import run_cohorts, run_two_phase

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import FixedPoint, SketchPlan
from fedmoments.errors import InputError, MissingMomentError, PolicyError, PrivacyError
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy import Agreed, DenseLayout, Obfuscation
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.dp import plan
from fedmoments.privacy.dp.client_clip import clip_client
from fedmoments.privacy.dp.noise_plan import require_additive
from fedmoments.privacy.modes.opened import parts_of
from fedmoments.privacy.robust import inconsistencies, poison, suspects, without_rows
from fedmoments.privacy.robust.moving import relabelled, translated
from fedmoments.privacy.secure.parties import named_statistics
from fedmoments.privacy.small_classes import merge_rows
from fedmoments.samples.fingerprint import Fingerprint

SPEC = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=4, code="float64"))
FORM = FixedPoint(norm_bound=32.0, max_samples=10_000)
D, C = 8, 3


def client(seed: int = 0, n: int = 40, spec: StatisticsSpec = SPEC, form: FixedPoint | None = None) -> Statistics:
    X = np.random.default_rng(seed).normal(size=(n, D))
    return Statistics.of(X, np.arange(n) % C, spec, n_classes=C, fixed_point=form)


# ---------------------------------------------------------------------------------------------- sums that hide


@pytest.mark.parametrize("secure", ["sums", "two-phase", "cohorts"])
def test_secure_sums_refuse_sketches_and_name_gram(secure: str) -> None:
    with pytest.raises(PrivacyError, match=f"secure {secure} exclude each other: .*Send 'gram' under secure sums"):
        Agreed(secure=secure).mode.check_sketch(SPEC)
    Agreed(secure=secure).mode.check_sketch(StatisticsSpec.of("client_means"))
    Agreed().mode.check_sketch(SPEC)


def test_noise_refuses_sketches_and_names_gram() -> None:
    with pytest.raises(PrivacyError, match=r"an epsilon of 2 exclude each other: .*Send 'gram' with an epsilon"):
        Agreed(epsilon=2.0).mode.check_sketch(SPEC)
    with pytest.raises(PrivacyError, match=r"turns the leading directions .*'gram'"):
        require_additive(SPEC)


def test_a_dense_vector_refuses_sketches() -> None:
    with pytest.raises(InputError, match="laid side by side and never added up: send 'gram'"):
        DenseLayout(SPEC, C, D)
    agreed, stats = Agreed(epsilon=1.0, unit="client", client_norm=5.0), client(form=FORM)
    with pytest.raises(InputError, match="never added up"):
        clip_client(stats, agreed)
    with pytest.raises(InputError, match="never added up"):
        plan(DenseLayout(SPEC, C, D), FORM, Agreed(epsilon=1.0))


def test_two_phases_and_cohorts_do_not_drop_a_sketch_in_silence() -> None:
    parties = {k: client(k, form=FORM) for k in range(6)}
    for refused in (run_two_phase, run_cohorts, named_statistics):
        with pytest.raises(InputError, match=r"client 0 measured a scatter sketch, .*measure client_means alone"):
            refused(parties)


def test_what_masks_opened_holds_no_sketch() -> None:
    with pytest.raises(InputError, match="secure sums open no scatter sketches"):
        parts_of(client(), "batch-1")


@pytest.mark.parametrize(
    "privacy", [Agreed(secure="sums", helper="ab" * 32), Agreed(epsilon=2.0)], ids=["sums", "noise"]
)
def test_a_client_refuses_terms_that_promise_what_a_sketch_breaks(privacy: Agreed) -> None:
    """Terms refuse it themselves; a client does not rely on that."""
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog", "cow"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, D, SPEC)
    ClientPolicy().require(terms)
    object.__setattr__(terms, "privacy", privacy)
    with pytest.raises(PolicyError, match=r"moments: scatter sketches and .* exclude each other"):
        ClientPolicy(min_count=1).require(terms)


# ---------------------------------------------------------------------------------------------- counts


def test_counts_are_not_blurred_beside_a_sketch() -> None:
    blur = Obfuscation("laplace", 0.5)
    for refused in (lambda: blur.require(SPEC), lambda: blur.apply(client())):
        with pytest.raises(InputError, match=r"grow with the true counts.*Measure client means alone"):
            refused()
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog", "cow"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, D, SPEC)
    with pytest.raises(PolicyError, match="obfuscate: counts cannot be obfuscated beside scatter sketches"):
        ClientPolicy(obfuscate="laplace:0.5").require(terms)


def test_a_policy_that_allows_client_means_alone_refuses_sketches() -> None:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog", "cow"))
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, D, SPEC)
    with pytest.raises(
        PolicyError, match="moments: the server asks for scatter_sketch, allowed are client_means, sums"
    ):
        ClientPolicy(moments=("client_means",)).require(terms)


# ---------------------------------------------------------------------------------------------- rows


def test_single_rows_are_not_taken_out_beside_a_sketch() -> None:
    with pytest.raises(MissingMomentError, match="a scatter sketch is of all classes of a client"):
        without_rows(client(), {0: "too far"})
    means = client().restricted(StatisticsSpec.of("client_means"))
    assert len(without_rows(means, {0: "too far"}).row_owners) == C - 1


def test_merging_small_means_leaves_the_sketch_and_owners_in_step() -> None:
    spec = StatisticsSpec(SPEC.moments, 4, SPEC.sketch)
    stats = client(spec=spec)
    merged = merge_rows(stats, min_count=5)
    assert len(merged.row_labels) == len(merged.row_owners) == C < len(stats.row_labels)
    np.testing.assert_array_equal(merged.sketches.rows, stats.sketches.rows)
    total = merged + merged
    assert sorted(set(total.row_owners.tolist())) == [0, 1]


def test_blurred_rows_keep_owners_in_step() -> None:
    stats = Statistics.merge([client(k).restricted(StatisticsSpec.of("client_means")) for k in range(3)])
    blurred = Obfuscation("laplace", 0.05).apply(stats, seed=3)
    assert len(blurred.row_owners) == len(blurred.row_labels)


# ---------------------------------------------------------------------------------------------- attackers


def test_law_counts_times_a_factor_scale_the_scatter() -> None:
    X, y = np.random.default_rng(0).normal(size=(40, D)), np.arange(40) % C
    one, nine = (Statistics.of(np.tile(X, (k, 1)), np.tile(y, k), SPEC, n_classes=C) for k in (1, 9))
    moved = relabelled(one, np.arange(C), 9)
    np.testing.assert_allclose(moved.sketches.rows, nine.sketches.rows, atol=1e-9)
    np.testing.assert_allclose(moved.sketch_residuals, nine.sketch_residuals, rtol=1e-9)


def test_law_a_translated_class_has_the_same_sketch() -> None:
    X, y = np.random.default_rng(0).normal(size=(40, D)), np.arange(40) % C
    steps = np.random.default_rng(1).normal(size=(C, D))
    there = Statistics.of(X + steps[y], y, SPEC, n_classes=C)
    moved = translated(Statistics.of(X, y, SPEC, n_classes=C), steps)
    np.testing.assert_allclose(moved.sketches.rows, there.sketches.rows, atol=1e-9)
    np.testing.assert_allclose(moved.sums, there.sums)


@pytest.mark.parametrize("form", [None, FORM], ids=["float64", "fixed point"])
@pytest.mark.parametrize("attack", ["junk:0.1:huge", "junk:0.1:empty", "flip:0.1:100"])
def test_law_attackers_among_sketches_are_found(attack: str, form: FixedPoint | None) -> None:
    rng = np.random.default_rng(5)
    means = 6 * rng.normal(size=(C, D)) / np.sqrt(D)
    parties = {}
    for k in range(20):
        y = rng.integers(0, C, 60)
        parties[k] = Statistics.of(means[y] + rng.normal(size=(60, D)), y, SPEC, n_classes=C, fixed_point=form)
    assert suspects(parties).dropped == {}
    assert inconsistencies(parties) == {}
    sent, attackers = poison(parties, attack, seed=1)
    assert attackers
    assert set(suspects(sent).dropped) == attackers


def test_junk_with_the_right_trace_is_not_found() -> None:
    """Only the trace of sketches is compared: a limit that the documentation states."""
    parties: dict[Hashable, Statistics] = {k: client(k) for k in range(20)}
    sent, attackers = poison(parties, "junk:0.1:random", seed=1)
    for k in attackers:
        np.testing.assert_allclose(sent[k].sketches.trace, parties[k].sketches.trace)
        assert np.linalg.matrix_rank(sent[k].sketches.rows) == 1
    assert not set(suspects(sent).dropped) & set(attackers)


# ---------------------------------------------------------------------------------------------- the card


def test_the_card_says_what_sketches_tell() -> None:
    card = privacy_card(Agreed(), sketches={"clients": 9, "rows": 30, "share": 0.2, "most": 0.25, "energy": 0.61})
    facts = dict(card.facts)
    assert facts["Scatter sketches"].startswith(
        "20% of the directions that describe a client's samples completely, 25% at most"
    )
    assert "61% of the scatter" in facts["Scatter sketches"]
    assert any("an outlier at a small client" in each for each in card.not_promised)
    plain = privacy_card(Agreed())
    assert plain.sketches is None
    assert not any("outlier" in each for each in plain.not_promised)
