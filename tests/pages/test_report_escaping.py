"""Nothing in the data becomes markup or code, whatever things are called."""

import copy
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fedmoments.pages import render

ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "<!-- ]]> &amp; <![CDATA[",
    "\x00\x08\udcff\u2028",
]


def poisoned(value: Any, attack: str) -> Any:
    """Return results in which every text holds the attack, but for bits in base64, which are no text."""
    if isinstance(value, dict):
        return {key: inner if key == "hits" else poisoned(inner, attack) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, attack) for inner in value]
    return f"{value}{attack}" if isinstance(value, str) else value


class Elements(HTMLParser):
    """Collects what a browser would make of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


def elements(page: str) -> Elements:
    reader = Elements()
    reader.feed(page)
    return reader


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_never_become_markup(results: dict[str, Any], attack: str) -> None:
    results["data"]["class_names"][0] = "a/b"  # a name may break after its slash
    clean, dirty = elements(render(results)), elements(render(poisoned(results, attack)))
    assert dirty.found.count("script") == clean.found.count("script")
    assert "img" not in dirty.found
    assert not {name for name in dirty.attributes if name.startswith("on") or name == "autofocus"}
    assert set(dirty.found) <= set(clean.found)


def test_keys_never_become_markup(results: dict[str, Any]) -> None:
    changed = copy.deepcopy(results)
    changed["config"] = {ATTACKS[1]: {ATTACKS[2]: ATTACKS[0]}}
    changed["timings"] = {ATTACKS[0]: 1.0}
    changed["rows"][0]["hyper"] = {ATTACKS[0]: [ATTACKS[1]]}
    changed["data"]["encoder"]["preprocessing"] = {ATTACKS[2]: ATTACKS[0]}
    page = render(changed)
    assert elements(page).found.count("script") == elements(render(results)).found.count("script")
    assert "img" not in elements(page).found


def test_names_do_not_turn_the_direction_of_what_stands_beside_them(results: dict[str, Any]) -> None:
    """A class called "cat" and a right-to-left override showed 51 % as 15 %."""
    turning = "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    page = render(poisoned(results, f"{turning}שלום"))
    assert not set(turning) & set(page)
    assert "שלום" in page


def test_page_is_sound_text(results: dict[str, Any]) -> None:
    page = render(poisoned(results, ATTACKS[-1]))
    page.encode("utf-8")
    assert not re.search("[\x00-\x08]", page)


def test_names_are_shown_as_they_are(results: dict[str, Any]) -> None:
    results["data"]["class_names"][0] = 'a <b> & "c"'
    assert "a &lt;b&gt; &amp; &quot;c&quot;" in render(results)
