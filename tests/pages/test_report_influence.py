"""The section on whom the server left out and who moves the head."""

import re
from typing import Any

import pytest

from fedmoments.errors import FileFormatError
from fedmoments.pages import render

TITLE = "Who moves the head, and who was left out"


def robust(**changes: Any) -> dict[str, Any]:
    entries = [
        {"client": f"site {k}", "change": 0.2 / (k + 1), "flips": 0.01 * k, "samples": 100 + k, "share": 0.1}
        for k in range(4)
    ]
    return {
        "clients": 8,
        "examined": True,
        "dropped": [{"client": "site 0", "reason": "samples: it claims <9999>"}],
        "untested": 0,
        "head": "fedcof",
        "influence": entries,
        **changes,
    }


def page(results: dict[str, Any], **changes: Any) -> str:
    return render({**results, "robust": robust(**changes)}).replace("\u202f", " ")


def influences(drawn: str) -> list[str]:
    """Return the rows of the table of influence."""
    table = drawn.partition("Who moves the head</h3>")[2].partition("</table>")[0]
    return re.findall(r"<tr.*?</tr>", table.partition("<tbody>")[2], re.S)


def words_of(markup: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", markup).split())


def test_results_without_it_have_no_section(results: dict[str, Any]) -> None:
    assert TITLE not in render(results)
    assert TITLE not in render({**results, "robust": None})


def test_bars_are_drawn_and_those_left_out_are_marked_with_their_reason(results: dict[str, Any]) -> None:
    drawn = page(results)
    assert TITLE in drawn
    assert "1 of 8 clients was left out." in drawn
    rows = influences(drawn)
    assert [row.count('class="dropped"') for row in rows] == [1, 0, 0, 0]
    assert words_of(rows[3]) == "site 3 5.00 % 3.0 % 103"
    assert "samples: it claims &lt;9999&gt;" in drawn
    assert "<9999>" not in drawn
    assert "20.00 %" in drawn
    assert "class probabilities of fedcof, on average" in drawn


def test_longer_bars_are_more_influential_and_come_first(results: dict[str, Any]) -> None:
    drawn = page(results, influence=list(reversed(robust()["influence"])))
    rows = influences(drawn)
    assert [words_of(row).split(" ")[1] for row in rows] == ["0", "1", "2", "3"]
    bars = [float(width) for width in re.findall(r'style="width:([\d.]+)%"', "".join(rows))]
    assert bars == pytest.approx([100.0, 50.0, 33.3, 25.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dropped": []}, "Nobody of 8 clients was left out."),
        ({"dropped": [], "examined": False}, "No filter examined"),
        ({"untested": 3}, "3 class means had too few others"),
        (
            {"attack": "flip:0.1", "attackers": ["a", "b"], "caught": 1, "false": 0},
            "The simulated attack flip:0.1 had 2 attackers; 1 was found, and 0 honest clients were left out.",
        ),
        ({"attack": "flip:0.1", "attackers": ["a"], "examined": False, "dropped": []}, "had 1 attacker."),
    ],
)
def test_the_lead_says_what_happened(results: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    assert words in page(results, **changes)


def test_many_clients_are_cut_short_with_a_word(results: dict[str, Any]) -> None:
    many = [{"client": f"c{k}", "change": 0.001 * k} for k in range(60)]
    drawn = page(results, influence=many, dropped=[{"client": f"c{k}", "reason": "far"} for k in range(60)])
    assert len(influences(drawn)) == 20
    assert "… and 10 more, in results.json." in drawn


def test_odd_values_are_refused_by_name(results: dict[str, Any]) -> None:
    assert page(results, influence=[{"client": "a" * 200, "change": 0.0}]).rstrip().endswith("</html>")
    odd: list[dict[str, Any]] = [{"influence": None}, {"dropped": ["y"]}, {"clients": None}, {"untested": "many"}]
    for changes in odd:
        with pytest.raises(FileFormatError, match=r"results\.json holds"):
            page(results, **changes)
