"""The privacy card on the page."""

from typing import Any

import pytest

from fedmoments.pages import render
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.protection import Agreed


def page(card: Any) -> str:
    return render({"rows": [], "privacy": card})


def test_the_card_tells_mode_assumptions_budget_and_what_was_withheld() -> None:
    card = privacy_card(
        Agreed(secure="sums", epsilon=2.0),
        min_count=5,
        withheld={"classes": 7, "samples": 20},
        spent={"epsilon": 2.0, "delta": 1e-5, "releases": 1},
    )
    shown = page(card)
    for words in ("secure sums, noised", "7 classes, 20 samples", "ε = 2 in 1 release", "What must be true"):
        assert words in shown
    for sentence in (*card["assumptions"], *card["not_promised"]):
        assert sentence.replace("'", "&#x27;") in shown


def test_clients_that_were_left_out_are_named_with_the_reason() -> None:
    dropped = {f"client-{k}": f"reason {k}" for k in range(30)}
    shown = page(privacy_card(Agreed(), robust="mad", dropped=dropped))
    assert "reason 19" in shown
    assert "reason 20" not in shown
    assert "… and 10 more" in shown


@pytest.mark.parametrize("card", [None, {}, [], "clear", {"facts": [1, ["a"], ["<b>", "x"]], "sees": 3, "dropped": []}])
def test_nonsense_in_place_of_a_card_breaks_nothing(card: Any) -> None:
    shown = page(card)
    assert "<b>x" not in shown
    assert ("What protects the parties" in shown) == (isinstance(card, dict) and bool(card))
