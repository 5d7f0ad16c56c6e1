"""The card says who learns what, and says of every mode what it does not promise."""

import json

import pytest

from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.observations.federated import PrivacyCard
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.protection import Agreed

MODES = [
    Agreed(),
    Agreed(secure="sums"),
    Agreed(secure="two-phase"),
    Agreed(secure="cohorts"),
    Agreed(epsilon=2.0),
    Agreed(secure="sums", epsilon=2.0, neighbours="replace"),
    Agreed(epsilon=2.0, unit="client", client_norm=3.0, clip=2.0),
]


@pytest.mark.parametrize("agreed", MODES, ids=lambda agreed: json.dumps(agreed.to_dict()))
def test_every_mode_says_who_sees_what_and_what_is_not_promised(agreed: Agreed) -> None:
    card = privacy_card(agreed)
    assert card.sees
    assert card.assumptions
    assert card.not_promised
    assert from_plain(PrivacyCard, json.loads(json.dumps(to_plain(card)))) == card
    words = json.dumps(to_plain(card), ensure_ascii=False)
    assert ("do not work together" in words) == (agreed.secure is not None)
    assert ("public constants" in words) == (agreed.epsilon is not None)


def test_modes_have_different_names() -> None:
    assert len({privacy_card(agreed).mode for agreed in MODES[:6]}) == 6


def test_clear_sums_do_not_hide_that_single_samples_left() -> None:
    open_card = privacy_card(Agreed(), min_count=1, exposed={"cells": 10, "single": 4, "small": 6})
    assert ("Means of one sample", "4 of 10 (40%)") in open_card.facts
    assert any("exactly that sample's feature vector" in each for each in open_card.not_promised)
    closed = privacy_card(Agreed(), min_count=5, exposed={"cells": 4, "single": 0, "small": 0})
    assert not any("exactly" in each for each in closed.not_promised)


def test_obfuscation_is_never_called_a_promise() -> None:
    card = privacy_card(Agreed(), obfuscation="laplace:0.5")
    assert "Obfuscated counts are not differential privacy." in card.not_promised


def test_what_was_spent_withheld_and_left_out_is_told() -> None:
    card = privacy_card(
        Agreed(epsilon=2.0),
        withheld={"classes": 3, "samples": 1200},
        spent={"epsilon": 1.5, "delta": 1e-5, "releases": 2},
        robust="mad",
        dropped={"bad": "too far"},
    )
    facts = dict(card.facts)
    assert facts["Withheld by clients"] == "3 classes, 1,200 samples"
    assert facts["Spent"] == "ε = 1.5 in 2 releases"
    assert facts["Filter"] == "mad, 1 clients left out"
    assert facts["Budget"] == "ε = 2, δ = 1e-05 for one sample"


def test_clients_that_a_cap_left_out_are_told_without_a_filter() -> None:
    facts = dict(privacy_card(Agreed(), dropped={"a": "bad-count", "b": "bad-count"}).facts)
    assert facts["Filter"] == "checks and caps, 2 clients left out"


def test_the_card_does_not_say_less_than_a_server_learns() -> None:
    """The helper of two phases counts contributors and sees the broadcast; leaders see how many hold a class."""
    sees = {mode: dict(privacy_card(Agreed(secure=mode)).sees) for mode in ("sums", "two-phase", "cohorts")}
    assert "class means" in sees["two-phase"]["The helper"]
    assert all("hold a class" in sees[mode]["The helper"] for mode in sees)
    assert all("hold a class" in sees[mode]["The leader"] for mode in sees)
    alone = "A second-moment matrix covers all classes, including those that too few clients hold."
    assert alone in privacy_card(Agreed(secure="sums")).not_promised
    assert alone not in privacy_card(Agreed(secure="sums", epsilon=2.0)).not_promised
