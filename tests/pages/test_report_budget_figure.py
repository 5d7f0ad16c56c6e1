"""Budget curves as figures of their own, and in a browser."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.pages.pointer import told_of

from fedmoments.core.observations import Report
from fedmoments.errors import InputError
from fedmoments.pages import write_report
from fedmoments.pages.budget_chart import budget_figure


@pytest.fixture
def document(budgets: Any) -> dict[str, Any]:
    """Return two heads on sketches, four others and two re-compressions."""
    made: dict[str, Any] = budgets.document()
    return made


# ---------------------------------------------------------------------------------------------- a figure of its own


def panels(drawn: str) -> list[Any]:
    return [each for each in ElementTree.fromstring(drawn).iter() if each.get("class") == "panel"]


def test_a_figure_is_sound_xml_with_the_colours_of_the_page(document: dict[str, Any]) -> None:
    drawn = budget_figure(
        Report.from_dict(document), title="BANKING77 & more", names={"auto": "ours", "fedcof": "FedCOF"}
    )
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("viewBox")) == ("844", "-12 -12 844 386")
    assert len(panels(drawn)) == 1
    for rule in ("prefers-color-scheme: dark", ".ours .line", ".payload", "svg text.label"):
        assert rule in drawn
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"BANKING77 & more", "ours", "FedCOF", "sketch", "FedNCM, FedCOF", "Fed3R"} <= set(words)
    assert "auto" not in words
    assert "url(" not in drawn
    assert "@import" not in drawn


def test_several_documents_share_colours_whatever_each_of_them_has(budgets: Any, document: dict[str, Any]) -> None:
    less = budgets.document({"gh-lda": budgets.others["gh-lda"], "fedcof": budgets.others["fedcof"]})
    less["data"]["name"] = "other"
    drawn = budget_figure([*map(Report.from_dict, (document, less, document))], columns=2, size=(900.0, 300.0))
    found = panels(drawn)
    assert [each.get("transform") for each in found] == ["translate(0 0)", "translate(463 0)", "translate(0 326)"]
    looks = [
        {
            each.get("data-head"): each.get("class")
            for each in panel.iter()
            if each.get("class", "").startswith("series")
        }
        for panel in found
    ]
    assert set(looks[1]) == {"auto", "sketch", "gh-lda", "fedcof"}
    assert looks[1].items() <= looks[0].items()
    assert "other · 100 clients" in drawn
    assert [drawn.count("accuracy,\u202f%"), drawn.count("(logarithmic)")] == [2, 2], "one a row, one a column"


def test_a_figure_draws_the_heads_that_are_asked_for(document: dict[str, Any]) -> None:
    drawn = budget_figure(Report.from_dict(document), heads=["auto", "fedcof"])
    assert set(re.findall(r'class="series [^"]*" data-head="([^"]*)"', drawn)) == {"auto", "fedcof"}


def test_a_figure_that_cannot_be_drawn_says_why(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"report 2 has none.*--budget-curve"):
        budget_figure([Report.from_dict(document), Report()])
    with pytest.raises(InputError, match=r"report 1 has no budget curve of qda; it has those of auto, sketch, fedncm"):
        budget_figure(Report.from_dict(document), heads=["qda"])
    with pytest.raises(InputError, match="one heading; there are 1 and 2 headings"):
        budget_figure([Report.from_dict(document)], headings=["a", "b"])
    with pytest.raises(InputError, match="an empty list arrived"):
        budget_figure([])


# ---------------------------------------------------------------------------------------------- in a browser


def opened(browser: Any, path: Path, width: int, *, dark: bool = False) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get_log("browser")
    browser.get(path.as_uri())


def touching(browser: Any, within: str, kind: str) -> Any:
    """Return pairs of texts of a kind that overlap in drawings that are shown."""
    return browser.execute_script(
        """return Array.from(document.querySelectorAll(arguments[0])).filter(s => s.getClientRects().length)
             .flatMap(s => { const b = Array.from(s.querySelectorAll(arguments[1])).filter(t => t.textContent).map(t =>
                 [t.textContent, t.getBoundingClientRect()]);
               return b.flatMap(([n, p], i) => b.slice(i + 1).filter(([, q]) => p.left < q.right && q.left < p.right
                 && p.top + 2 < q.bottom - 2 && q.top + 2 < p.bottom - 2).map(([m]) => [n, m])) })""",
        within,
        kind,
    )


def outside(browser: Any, within: str) -> Any:
    """Return texts that leave their drawing."""
    return browser.execute_script(
        """return Array.from(document.querySelectorAll(arguments[0])).filter(s => s.getClientRects().length)
             .flatMap(s => Array.from(s.querySelectorAll('text')).filter(t => t.textContent).map(t =>
               [t.textContent, t.getBoundingClientRect(), s.getBoundingClientRect()]))
             .filter(([, t, s]) => t.left < s.left - 2 || t.right > s.right + 2 || t.top < s.top - 2
               || t.bottom > s.bottom + 2).map(([words]) => words)""",
        within,
    )


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("many", [False, True])
def test_the_page_fits_the_window_and_no_words_touch(
    budgets: Any, browser: Any, tmp_path: Path, width: int, many: bool
) -> None:
    more = {f"head-{i}": (0.8 + 0.008 * i, (budgets.means, budgets.gram)[i % 2]) for i in range(8)} if many else {}
    write_report(tmp_path / "report.html", budgets.document(budgets.others | more))
    opened(browser, tmp_path / "report.html", width, dark=many)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    assert outside(browser, "#budget svg") == []
    assert touching(browser, "#budget svg", "text") == []
    names = browser.execute_script(
        """return Array.from(document.querySelectorAll('#budget svg text.label'))
             .filter(t => t.getClientRects().length).map(t => t.textContent)"""
    )
    assert sorted(names) == sorted(["auto", "sketch", *budgets.others, *more]), "every line is named, once"


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_no_words_of_a_figure_touch(browser: Any, tmp_path: Path, document: dict[str, Any], columns: int) -> None:
    drawn = budget_figure(
        [Report.from_dict(document)] * 3, headings=["BANKING77", "CIFAR-10", "PACS"], columns=columns, title="Accuracy"
    )
    (tmp_path / "figure.svg").write_text(drawn, "utf-8")
    opened(browser, tmp_path / "figure.svg", 900)
    assert outside(browser, "svg") == []
    assert touching(browser, "svg", "text") == []


def test_points_tell_and_light_the_rows_of_their_head(browser: Any, tmp_path: Path, document: dict[str, Any]) -> None:
    from selenium.webdriver.common.keys import Keys

    write_report(tmp_path / "report.html", document)
    opened(browser, tmp_path / "report.html", 1280)
    ring = browser.find_element("css selector", '#budget .wide .own[data-head="gh-lda"] .dot')
    assert told_of(browser, ring) == "gh-lda: 90.3 % ± 0.4 over 3 seeds, 313 kB per client, as published"
    lit = browser.execute_script("return Array.from(document.querySelectorAll('tr.lit')).map(row => row.dataset.head)")
    assert set(lit) == {"gh-lda"}
    browser.execute_script("document.querySelector('#budget .wide .ours .point').focus()")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert "budget means/4" in browser.find_element("css selector", "#tip").text
