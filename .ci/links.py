"""Check the built site: every link and picture leads to a file, every anchor to a place in it, and nothing is fetched from elsewhere."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Tags that fetch something when a page is opened, with the attribute that says what.
FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """The targets of a page, and the places in it that a link can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        given = {name: value for name, value in attrs if value}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in FETCHED and FETCHED[tag] in given and given.get("rel") != "canonical":
            self.fetched.append(given[FETCHED[tag]])


def broken(site: Path) -> tuple[int, list[str]]:
    """Return the number of links of a site, and those that lead nowhere."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    count, wrong = 0, []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        wrong += [f"{path.relative_to(site)}: fetches {link}" for link in page.fetched if urlsplit(link).netloc]
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].places):
                wrong.append(f"{path.relative_to(site)}: {link}")
    return count, wrong


if __name__ == "__main__":
    total, nowhere = broken(Path(sys.argv[1]).resolve())
    sys.stdout.write("".join(f"{line}\n" for line in nowhere) + f"{total} links, {len(nowhere)} broken\n")
    sys.exit(1 if nowhere or not total else 0)
