"""Lines of one chart look different, however many there are, and baselines look like baselines."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from fedmoments.pages import render

Make = Callable[..., dict[str, Any]]
STYLES = files("fedmoments.pages").joinpath("report.css").read_text("utf-8")


def rules(part: str, name: str) -> dict[str, str]:
    """Return the value of a property by the class of a series that sets it, in the order of the style sheet."""
    return {
        each.group(1): found.group(1)
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", STYLES)
        for selector in selectors.split(",")
        if (each := re.fullmatch(rf"\.(s\d|d\d|baseline){part}", selector.strip()))
        and (found := re.search(rf"(?:^|[\s;]){name}: ([^;]+);", body))
    }


def look(classes: list[str], markers: str) -> tuple[str, ...]:
    """Return colour, dash and filling as the style sheet gives them (the last rule wins), and the shape of a marker."""
    found = []
    for part, name in (("", "--c"), (" .line", "stroke-dasharray"), (" .marker", "fill")):
        values = [value for mine, value in rules(part, name).items() if mine in classes]
        found.append(values[-1] if values else "")
    shape = re.search(r"<circle[^>]*class=\"marker\"|<polygon points=\"([^\"]*)\"", markers)
    assert shape
    return (*found, str(len((shape.group(1) or "").split())))


def drawn(page: str) -> dict[str, tuple[list[str], str]]:
    """Return classes and markup of every line by its head."""
    groups = re.findall(r'<g class="series ([^"]*)" data-head="([^"]*)">(.*?)</g></g>', page, re.S)
    return {head: (classes.split(), inside) for classes, head, inside in groups}


@pytest.mark.parametrize(("heads", "baselines"), [(3, 1), (7, 7), (20, 9), (28, 10)])
def test_no_two_lines_look_alike(make_row: Make, heads: int, baselines: int) -> None:
    names = [(f"h{i}", False) for i in range(heads)] + [(f"b{i}", True) for i in range(baselines)]
    rows = [
        make_row(name, 0.5 + i / 200, 100.0, clients=k, baseline=compared)
        for i, (name, compared) in enumerate(names)
        for k in (10, 100)
    ]
    page = render({"data": {}, "seeds": 1, "rows": rows})
    lines = drawn(page)
    assert set(lines) == {name for name, _ in names}
    looks = {name: look(*line) for name, line in lines.items()}
    assert len(set(looks.values())) == len(names)
    for name, compared in names:
        colour, _, filling, _ = looks[name]
        assert (colour == "var(--quiet)") == compared, "baselines alone are grey"
        assert filling == "var(--ground)" or not compared, "their markers are hollow"


def test_names_of_baselines_are_grey_and_their_markers_square(make_row: Make) -> None:
    rows = [
        make_row(name, 0.5, 100.0, clients=k, baseline=name == "fedpft") for name in ("ridge", "fedpft") for k in (2, 9)
    ]
    page = render({"data": {}, "seeds": 1, "rows": rows})
    assert re.search(r'class="label quiet">fedpft<', page)
    assert re.search(r'class="label t0">ridge<', page)
    corners = re.search(r'<polygon points="([^"]*)"', drawn(page)["fedpft"][1])
    assert corners
    assert len(corners.group(1).split()) == 4
    assert "<polygon" not in drawn(page)["ridge"][1]
