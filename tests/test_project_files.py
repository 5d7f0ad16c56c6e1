"""Files that say what the project is agree with the package, and machines can read them."""

import importlib.util
import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.waiting import HANG

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


@pytest.fixture
def metadata() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metadata", ROOT / ".ci" / "metadata.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_package_links_to_the_repository_that_built_it(metadata: ModuleType) -> None:
    links = metadata.urls({"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "own/fedmoments"})
    assert links["Homepage"] == "https://git.example/own/fedmoments"
    assert all(link.startswith(links["Homepage"]) for link in links.values())
    assert metadata.urls({}) == {}


def test_the_readme_of_a_package_leads_to_files_that_are_there(metadata: ModuleType) -> None:
    text, home = (ROOT / "README.md").read_text(), "https://git.example/own/fedmoments"
    assert metadata.readme(text, None, "1.2.0") == text
    shown = metadata.readme(text, home, "1.2.0")
    assert "![One upload per party" in shown
    assert f"({home}/raw/v1.2.0/docs/overview.svg)" in shown
    targets = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", text)) > 10
    for target in targets:
        assert target.startswith(("https://", "#")), target
        if target.startswith(home):
            place = target.removeprefix(home).split("/v1.2.0/")[1].partition("#")[0]
            assert (ROOT / place).exists(), place


def test_a_source_distribution_has_all_that_its_tests_need() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    if not (ROOT / ".git").exists():
        pytest.skip("this is a source distribution itself")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=HANG)
    for entry in sorted(
        {line.partition("/")[0] for line in listed.stdout.splitlines()} - {".gitignore", "pyproject.toml"}
    ):
        assert any(fnmatch(entry, pattern) for pattern in wanted), f"{entry} is in no pattern of the sdist"
