"""A class that too few clients hold is not opened under secure sums, whatever the leader asks for."""

import numpy as np
import pytest

from fedmoments import Statistics, StatisticsSpec, fit
from fedmoments.core.statistics import FixedPoint
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import HelperKey
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.parties import LocalParties

FORM = FixedPoint(norm_bound=8.0, max_samples=10_000)
SPEC = StatisticsSpec.of("gram")
D = 5


def parts(spec: StatisticsSpec = SPEC) -> dict[str, Statistics]:
    """Six clients: all hold class 0, three hold class 1, and class 2 is one client's secret."""
    rng = np.random.default_rng(4)
    held = {}
    for k in range(6):
        labels = [0] * 9 + [1] * 7 * (k < 3) + [2] * 6 * (k == 5)
        X = rng.normal(size=(len(labels), D)).clip(-2, 2) + np.eye(3, D)[labels]
        held[f"client-{k}"] = Statistics.of(X, labels, spec, n_classes=3, fixed_point=FORM)
    return held


def test_a_class_of_one_client_is_not_opened() -> None:
    clients = parts()
    secret = clients["client-5"].counts[2], clients["client-5"].sums[2]
    opened = Agreed(secure="sums").mode.simulated(Crowd.of(clients))
    merged = Statistics.merge(clients.values())
    assert merged.counts[2] == secret[0]
    np.testing.assert_array_equal(merged.sums[2], secret[1])  # the attack: the sum of a class is that client's
    stats = opened.statistics
    assert stats.classes.tolist() == [0, 1]
    assert stats.counts.tolist() == [54, 21, 0]
    assert not stats.sums[2].any()
    np.testing.assert_array_equal(stats.sums[:2], merged.sums[:2])
    np.testing.assert_array_equal(stats.arrays["gram"], merged.arrays["gram"])
    assert opened.facts["suppressed"] == ["2"]


@pytest.mark.parametrize(("contributors", "classes"), [(1, [0, 1, 2]), (3, [0, 1]), (4, [0]), (6, [0])])
def test_the_threshold_is_the_agreed_one(contributors: int, classes: list[int]) -> None:
    opened = Agreed(secure="sums", contributors=contributors).mode.simulated(Crowd.of(parts()))
    assert opened.statistics.classes.tolist() == classes


def test_where_no_class_is_held_by_enough_nothing_is_opened() -> None:
    with pytest.raises(NotEnoughDataError, match="no class is held by 7 clients"):
        Agreed(secure="sums", contributors=7).mode.simulated(Crowd.of(parts()))


@pytest.mark.parametrize("head", ["fed3r", "gh-lda", "fedncm", "fedcof-oracle"])
def test_heads_are_fitted_from_what_is_opened(head: str) -> None:
    stats = Agreed(secure="sums").mode.simulated(Crowd.of(parts())).statistics
    classifier = fit(head, stats)
    assert classifier.present.tolist() == [True, True, False]
    assert (classifier.predict(np.eye(3, D)) < 2).all()


def test_a_leader_that_asks_for_the_class_is_refused() -> None:
    mode, crowd = Agreed(secure="sums").mode, Crowd.of(parts())
    layout = crowd.asked.layout
    local = LocalParties(crowd.parts, 3, crowd.randomness)
    gate = mode.gate(local.helper, crowd.asked, minimum=3)
    leader = local.report(crowd.vectors, crowd.asked.context)
    start, secret = layout.n_classes, layout.class_block(2)
    learn = leader.request(blocks=[(0, start)])
    everything = leader.request(blocks=[(start, layout.size)])
    with pytest.raises(PrivacyError, match="learn the contributors of the group first"):
        gate.open(everything)
    gate.learn(learn, leader.finish(learn, np.zeros(learn.size, np.uint64)))
    for blocks in ([(start, layout.size)], [(secret.start, secret.stop)], [(secret.start, layout.size)]):
        with pytest.raises(PrivacyError, match="no class may be opened that fewer than 3 clients hold"):
            gate.open(leader.request(blocks=blocks))
    for blocks in (
        [(secret.start + 1, secret.stop)],
        [(secret.stop + 1, layout.size)],
        [(secret.stop, layout.size - 1)],
    ):
        with pytest.raises(PrivacyError, match="classes are opened whole"):
            gate.open(leader.request(blocks=blocks))
    for step in ("sum", "second"):
        with pytest.raises(PrivacyError, match="have the steps learn, open"):
            mode.check_step(step)


def test_under_an_epsilon_noise_hides_the_class_and_nobody_counts_holders() -> None:
    mode = Agreed(secure="sums", epsilon=1.0).mode
    assert not mode.opens_classes
    mode.check_step("sum")
    with pytest.raises(PrivacyError, match="have the steps sum, but not 'learn'"):
        mode.check_step("learn")
    with pytest.raises(InputError, match="a class cannot wait for 5 contributors under an epsilon"):
        Agreed(secure="sums", epsilon=1.0, contributors=5)
    helper = Helper(HelperKey.generate(), minimum=3)
    assert not hasattr(mode.gate(helper, Crowd.of(parts()).asked, minimum=3), "learn")
