"""The page as people use it, in headless Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pages.pointer import told_of

from fedmoments.pages import write_report

Make = Callable[..., dict[str, Any]]
Open = Callable[..., Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return what opens a report in a window of a width, light or dark."""

    def opened(results: dict[str, Any], *, width: int = 1280, dark: bool = False) -> Any:
        path = tmp_path / "report.html"
        write_report(path, results)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    yield opened
    browser.execute_script("try { localStorage.clear() } catch {}")


def css(page: Any, selector: str) -> Any:
    return page.find_element("css selector", selector)


def heads_of_rows(page: Any) -> list[str]:
    names: list[str] = page.execute_script(
        "return Array.from(document.querySelectorAll('#heads tbody tr')).map(row => row.dataset.head)"
    )
    return names


def column(page: Any, title: str) -> Any:
    return next(b for b in page.find_elements("css selector", "#heads thead button") if b.text.startswith(title))


def sorted_as(page: Any, title: str) -> str:
    return str(column(page, title).find_element("xpath", "..").get_attribute("aria-sort"))


def test_page_opens_without_errors_and_fetches_nothing(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    assert page.get_log("browser") == []
    assert page.title == "photos: what one upload teaches"
    fetched = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []


def test_table_sorts_by_click(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    assert heads_of_rows(page) == ["gh-qda", "fedcof", "fedncm", "gh-lda"]
    assert sorted_as(page, "Accuracy") == "descending"
    column(page, "Accuracy").click()
    assert heads_of_rows(page) == ["fedncm", "fedcof", "gh-qda", "gh-lda"], "what is unknown stays last"
    assert sorted_as(page, "Accuracy") == "ascending"
    column(page, "Bytes").click()
    assert heads_of_rows(page) == ["gh-qda", "gh-lda", "fedncm", "fedcof"]
    assert (sorted_as(page, "Accuracy"), sorted_as(page, "Bytes")) == ("none", "descending")


@pytest.mark.parametrize("key", ["\ue007", " "], ids=["enter", "space"])
def test_table_sorts_by_keyboard(show: Open, results: dict[str, Any], key: str) -> None:
    page = show(results)
    button = column(page, "Head")
    page.execute_script("arguments[0].focus()", button)
    page.switch_to.active_element.send_keys(key)
    assert heads_of_rows(page) == ["fedcof", "fedncm", "gh-lda", "gh-qda"]
    assert sorted_as(page, "Head") == "ascending"
    page.switch_to.active_element.send_keys(key)
    assert heads_of_rows(page) == ["gh-qda", "gh-lda", "fedncm", "fedcof"]


def test_chosen_head_is_shown_in_all_its_sections(show: Open, results: dict[str, Any]) -> None:
    from selenium.webdriver.support.select import Select

    page = show(results)
    shown = "return Array.from(document.querySelectorAll('[data-panel=head]:not([hidden])')).map(p => p.textContent)"
    before = page.execute_script(shown)
    assert len(before) == 2
    assert all("fedcof" in words for words in before), "the head of the answer comes first"
    Select(css(page, "#classes select")).select_by_visible_text("fedncm")
    after = page.execute_script(shown)
    assert len(after) == 2
    assert all("fedncm" in words and "fedcof" not in words for words in after)
    assert "cat taken for dog" in " ".join(after[0].split())
    assert Select(css(page, "#calibration select")).first_selected_option.text == "fedncm"


def test_chosen_setting_is_drawn(show: Open, make_row: Make) -> None:
    from selenium.webdriver.support.select import Select

    rows = [make_row(head, 0.5, 100.0, clients=k) for k in (10, 100) for head in ("fedncm", "fedcof")]
    page = show({"data": {}, "seeds": 1, "rows": rows})
    Select(css(page, "#bytes select")).select_by_visible_text("100 clients")
    panels = page.find_elements("css selector", "#bytes .panel")
    assert [panel.is_displayed() for panel in panels] == [False, True]
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_page_never_scrolls_sideways(show: Open, results: dict[str, Any], width: int) -> None:
    results["data"]["class_names"][0] = "a_class_" + "with_a_very_long_name" * 8
    results["data"]["class_names"][1] = "unbreakable" * 20
    results["rows"][1]["head"] = results["details"][1]["head"] = "a-head-with-a-rather-long-name"
    results["command"] += " --option " + "x" * 300
    page = show(results, width=width)
    page.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    wide, window = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= width
    assert window == width
    assert css(page, "#bytes .narrow" if width < 720 else "#bytes .wide").is_displayed()


def test_text_of_charts_is_legible_on_a_phone(show: Open, results: dict[str, Any]) -> None:
    page = show(results, width=390)
    smallest = page.execute_script(
        """return Math.min(...Array.from(document.querySelectorAll('svg text'))
             .filter(t => t.getClientRects().length && t.textContent)
             .map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().d || 99))"""
    )
    assert smallest >= 9.5


def test_labels_of_the_chart_do_not_overlap(show: Open, make_row: Make) -> None:
    heads = ["fed3r", "fedcgs", "fedcof", "fedcof-diagonal", "fedcof-oracle", "fedcof-spherical", "fedncm", "gh-lda"]
    rows = [make_row(head, 0.85 + i % 4 / 200, 30_000.0 * 2 ** (i % 3)) for i, head in enumerate(heads)]
    for width in (390, 1280):
        page = show({"data": {}, "seeds": 1, "rows": rows}, width=width)
        boxes = page.execute_script(
            """return Array.from(document.querySelectorAll('#bytes text.label')).map(t => t.getBoundingClientRect())
                 .filter(b => b.width).map(b => [b.left, b.top + 2, b.right, b.bottom - 2])"""
        )
        assert len(boxes) >= 6
        for i, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[:i]:
                assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


def background(page: Any) -> str:
    return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_dark_follows_the_system_and_the_reader(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    light = background(page)
    css(page, "#theme").click()
    dark = background(page)
    assert sum(map(int, dark[4:-1].split(","))) < 150 < 600 < sum(map(int, light[4:-1].split(",")))
    page.refresh()
    assert background(page) == dark, "the choice is kept"
    css(page, "#theme").click()
    assert background(page) == light
    page.execute_script("localStorage.clear()")
    assert background(show(results, dark=True)) == dark
    assert css(page, "#theme").text == "Light"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert background(page) == light, "paper is light"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_points_and_cells_tell_what_they_are(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    assert not css(page, "#tip").is_displayed()
    assert told_of(page, css(page, "#bytes .wide .first .dot")).startswith("fedcof: 92.0 ± 0.4")
    lit = page.execute_script("return document.querySelector('#heads tr.lit').dataset.head")
    assert lit == "fedcof"
    told = told_of(page, css(page, "#holders .wide .heat-hit"))
    assert "site" in told
    assert "sample" in told


def test_points_are_reached_by_keyboard(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    page.execute_script("document.querySelector('#bytes a, nav a:last-child').focus()")
    page.switch_to.active_element.send_keys("\ue004")
    assert css(page, "#tip").is_displayed()
    assert page.switch_to.active_element.get_attribute("aria-label")


def test_command_is_copied(show: Open, results: dict[str, Any]) -> None:
    page = show(results)
    page.execute_script("navigator.clipboard.writeText = async (words) => { window.copied = words; }")
    css(page, "#reproduce .copy").click()
    assert page.execute_script("return window.copied") == results["command"]
    assert css(page, "#reproduce .copy").text == "Copied"


def test_hostile_names_run_nothing(show: Open, results: dict[str, Any]) -> None:
    attack = '</script><img src=x onerror="window.hit=1"><script>window.hit=1</script>'
    results["data"]["name"] = results["data"]["class_names"][0] = results["rows"][0]["head"] = attack
    results["details"][0]["head"] = results["holders"]["clients"][0] = attack
    page = show(results)
    assert page.execute_script("return window.hit") is None
    assert page.get_log("browser") == []
    assert page.find_elements("css selector", "img") == []
