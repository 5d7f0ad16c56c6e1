"""What a built package says of where it comes from: links to the repository that built it, and a README whose links lead there.

No address is written down here: a workflow knows its repository by GITHUB_SERVER_URL and GITHUB_REPOSITORY. Elsewhere, a package has no
links of its own, and its README those of a clone.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # the tests read the two functions without the builder
    MetadataHookInterface = object

ROOT = Path(__file__).parents[1]
#: A link or a picture of Markdown whose target is a file of this repository.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the project's links, by their labels; none outside of a workflow."""
    server, repository = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if not server or not repository:
        return {}
    home = f"{server}/{repository}"
    return {
        "Homepage": home,
        "Documentation": f"{home}/blob/main/docs/index.md",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def readme(text: str, home: str | None, version: str) -> str:
    """Return a README in which links to files lead to those of a version, and pictures show."""
    if home is None:
        return text

    def whole(link: re.Match[str]) -> str:
        place = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({home}/{place}/v{version}/{link[3]})"

    return LINK.sub(whole, text)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the links and the README."""
        found = re.search(r'__version__ = "(.+)"', (ROOT / "src/fedmoments/__init__.py").read_text(encoding="utf-8"))
        if found is None:
            raise ValueError("src/fedmoments/__init__.py has no __version__")
        links = urls(os.environ)
        text = readme((ROOT / "README.md").read_text(encoding="utf-8"), links.get("Homepage"), found[1])
        metadata["urls"] = links
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
