"""Files that say what the project is agree with the package, and machines can read them."""

import re
from pathlib import Path

import pytest
import yaml

import fedmoments

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_citation_names_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == fedmoments.__version__
    assert citation["license"] == "Apache-2.0"


def test_the_changelog_has_a_dated_entry_of_this_version() -> None:
    entries = re.findall(
        r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    dated = {version: date for version, date in entries if date}
    assert fedmoments.__version__ in dated


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_can_be_read_and_ask_for_no_more_than_they_need(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["steps"]
        assert not any("password" in str(step) or "secrets." in str(step) for step in job["steps"])


def test_every_page_of_the_documentation_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    docs = ROOT / "docs"
    missing = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if str(page.relative_to(docs)) not in menu]
    assert not missing, "name them under nav in mkdocs.yml"
