"""The privacy card on the page."""

from typing import Any

import pytest

from fedmoments.core.observations.codec import to_plain
from fedmoments.errors import FileFormatError
from fedmoments.pages import render
from fedmoments.privacy.card import privacy_card
from fedmoments.privacy.protection import Agreed


def page(card: Any) -> str:
    return render({"rows": [], "privacy": to_plain(card)})


def test_the_card_tells_mode_assumptions_budget_and_what_was_withheld() -> None:
    card = privacy_card(
        Agreed(secure="sums", epsilon=2.0),
        min_count=5,
        withheld={"classes": 7, "samples": 20},
        spent={"epsilon": 2.0, "delta": 1e-5, "releases": 1},
    )
    shown = page(card)
    for words in ("secure sums, noised", "7 classes, 20 samples", "ε = 2 in 1 release", "Assumptions"):
        assert words in shown
    for sentence in (*card.assumptions, *card.not_promised):
        assert sentence.replace("'", "&#x27;") in shown


def test_clients_that_were_left_out_are_named_with_the_reason() -> None:
    dropped = {f"client-{k}": f"reason {k}" for k in range(30)}
    shown = page(privacy_card(Agreed(), robust="mad", dropped=dropped))
    assert "reason 19" in shown
    assert "reason 20" not in shown
    assert "… and 10 more" in shown


@pytest.mark.parametrize("card", [[], "clear", {"mode": "<b>", "facts": [["a"]]}, {"mode": "x", "sees": 3}])
def test_nonsense_in_place_of_a_card_is_refused(card: Any) -> None:
    with pytest.raises(FileFormatError, match=r"results\.json holds"):
        page(card)


def test_a_report_without_a_card_has_no_such_section() -> None:
    assert "Privacy" not in page(None)
