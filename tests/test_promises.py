"""Every promise of the pages on privacy, federations and bytes has a test that attacks it.

``tests/promises/PAGE.toml`` quotes every sentence, and every row of a table, that promises something, and names the
tests; ``tests`` may instead be a word of `NO_PROMISE`, for what has the words of a promise and is none. Who changes a
sentence changes its entry, and looks whether the tests still attack what it says.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
#: Page -> its file of promises. All rows of the tables of `TABLES` count; elsewhere, what has a word of `WORDS`.
PAGES = {
    "privacy.md": "privacy",
    "privacy/contributions.md": "contributions",
    "privacy/secure-sums.md": "secure-sums",
    "privacy/noise.md": "noise",
    "privacy/poison.md": "poison",
    "privacy/deployment.md": "deployment",
    "federation.md": "federation",
    "living.md": "living",
    "wire.md": "wire",
    "../README.md": "readme",
}
TABLES = ("privacy.md", "federation.md")
#: Of this page, every sentence of one part counts, and of the rest none.
PART = {"../README.md": ("## What it promises", "## How it compares")}
WORDS = re.compile(
    r"\b(never|refuse[sd]?|cannot|nobody|nothing|at most|only|exactly|bit for bit|withheld|hidden|erased|overwritten|"
    r"no others|survives?|declined|rewritten|checked|noticed?|stops|drawn|remembers|cannot be)\b",
    re.IGNORECASE,
)
NO_PROMISE = {"limit", "assumption", "advice", "description", "figure"}


def sentences(page: str) -> list[tuple[str, bool]]:
    """Return sentences and rows of tables of a page, code left out, on one line each, with whether it is a row."""
    text = re.sub(r"^```.*?^```[^\n]*$", "", page, flags=re.DOTALL | re.MULTILINE)
    found: list[tuple[str, bool]] = []
    paragraph: list[str] = []

    def end() -> None:
        whole = " ".join(" ".join(paragraph).split())
        paragraph.clear()
        found.extend((part, False) for part in re.split(r"(?<=[.:;])\s+(?=[A-Z`*(])", whole) if part)

    lines = [line.strip() for line in text.splitlines()]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_rule = re.fullmatch(r"[|:\s-]+", line) is not None
        if line.startswith("|"):
            end()
            if not is_rule and not re.fullmatch(r"\|[|:\s-]+", following):  # what stands above the rule are headings
                found.append((" ".join(line.strip("|").split()), True))
        elif not line or line.startswith("#"):
            end()
        elif re.match(r"([-*]|\d+\.) ", line):
            end()
            paragraph.append(re.sub(r"^([-*]|\d+\.) ", "", line))
        else:
            paragraph.append(line)
    end()
    return found


def promised(page: str) -> list[str]:
    """Return what has the words of a promise, in order."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    if page in PART:
        first, after = PART[page]
        return [sentence for sentence, _ in sentences(text[text.index(first) : text.index(after)])]
    told = sentences(text)
    return list(dict.fromkeys(text for text, is_row in told if (is_row and page in TABLES) or WORDS.search(text)))


@cache
def entries(page: str) -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads((ROOT / "tests" / "promises" / f"{PAGES[page]}.toml").read_text("utf-8"))["promise"])


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_has_an_entry_and_every_entry_is_still_promised(page: str) -> None:
    said, listed = promised(page), [entry["says"] for entry in entries(page)]
    missing = [text for text in said if text not in listed]
    gone = [text for text in listed if text not in said]
    where = f"tests/promises/{PAGES[page]}.toml"
    assert not missing, f"no entry in {where}: {missing}"
    assert not gone, f"docs/{page} does not say this any more, see {where}: {gone}"
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_an_entry_names_is_there(page: str) -> None:
    for entry in entries(page):
        if isinstance(entry["tests"], str) and entry["tests"] in NO_PROMISE:
            continue
        assert isinstance(entry["tests"], list), entry["says"]
        assert entry["tests"], entry["says"]
        for named in entry["tests"]:
            file, _, test = named.partition("::")
            assert (ROOT / file).is_file(), named
            assert test in names_in(file), named


def test_sentences_and_rows_are_told_apart() -> None:
    page = "# Never a title\n\nOne is\nrefused. `Two` is not; Three.\n\n- nobody reads\n  this\n\n"
    page += "| a | b |\n|---|---|\n| c | d |\n\n```\nnever read\n```\n"
    expected = [("One is refused.", False), ("`Two` is not;", False), ("Three.", False), ("nobody reads this", False)]
    assert sentences(page) == [*expected, ("c | d", True)]
