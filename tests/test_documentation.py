"""Everything that README and docs show runs, and what is generated of the site is what would be generated now."""

import contextlib
import gc
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from filelock import FileLock
from tests.waiting import HANG

from fedmoments.cli.app import app
from fedmoments.federation.store import FederationStore
from fedmoments.registry import Registry

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: Pages of figures and of generated text have no blocks to run.
WITHOUT_BLOCKS = {DOCS / "reproduction", DOCS / "reference"}
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if page.parent not in WITHOUT_BLOCKS)]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


#: Six pages begin with this, which takes a minute: it runs once, and the others begin with a copy of what it left.
DEMO = "$ fedmoments demo --seeds 1"


def run(line: str, folder: Path) -> None:
    """Run a line as it is typed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        shlex.split(line[2:], comments=True),
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return what makes the demo's folder, once for all pages and all processes that run them."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "documentation"

    def made() -> Path:
        with FileLock(f"{folder}.lock"):
            if not (folder / "made").exists():
                folder.mkdir(exist_ok=True)
                run(DEMO, folder)
                (folder / "made").touch()
        return folder / "runs"

    return made


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def own_registries() -> Iterator[None]:
    """Let what a page registers be no concern of other tests in this process."""
    registries = [thing for thing in gc.get_objects() if type(thing) is Registry]  # isinstance would wake lazy modules
    before = {id(registry): set(registry._at_run_time) for registry in registries}
    yield
    for registry in registries:
        for name in set(registry._at_run_time) - before[id(registry)]:
            registry.remove(name)


@pytest.mark.parametrize("page", PAGES, ids=named)
@pytest.mark.usefixtures("own_registries")
def test_what_the_documentation_shows_runs(
    page: Path, tmp_path: Path, demo: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a page from its top to its end in one folder: Python in one namespace, commands as they are typed."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "python":
            exec(compile(text, str(page), "exec"), namespace)
        elif kind == "console":
            run_console(text, tmp_path, demo)


def run_console(text: str, folder: Path, demo: Callable[[], Path]) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        if line == DEMO:
            shutil.copytree(demo(), folder / "runs")
        elif line.startswith("$ ") and not line.startswith("$ make"):  # those two are what .ci/run runs
            run(line, folder)


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], ids=named)
def test_shell_scripts_of_the_documentation_run(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for script in blocks(page, "bash"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with subprocess.Popen(
            ["/bin/bash", "-e", "-c", script.replace("9092", str(port))],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                said, _ = shell.communicate(timeout=HANG)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)
        assert shell.returncode == 0, said
        with FederationStore.open(tmp_path / "fed.ledger") as store:
            assert [each.client for each in store.status().contributors] == ["clinic", "lab"], said
        for party in ("clinic", "lab"):
            lines = (tmp_path / party / "record.jsonl").read_text("utf-8").splitlines()
            assert {json.loads(line)["event"] for line in lines} >= {"sent", "acknowledged", "evaluated"}, said


def typed_commands(page: Path) -> Iterator[str]:
    """Yield every command that a page shows, in blocks of any kind and in sentences."""
    text = page.read_text()
    for kind, block in BLOCK.findall(text):
        for line in () if kind in ("python", "py") else block.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?<![\w./-])fedmoments (?=[a-z]+ [^1])", line):
                yield line[found.start() :].split("  #")[0]
    for found in re.finditer(r"`(fedmoments (?!contribution 1)[^`]+)`", BLOCK.sub("", text)):
        yield " ".join(found[1].split())


def misspelled(line: str) -> list[str]:
    """Return the words of a command that the command line does not take: a command or options."""
    words = re.sub(r"[|>&].*", "", line.replace("…", " ")).split()[1:]
    command: click.Command = app
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        named_so = command.get_command(click.Context(command), words.pop(0))
        if named_so is None:
            return [line]
        command = named_so
    if isinstance(command, click.Group):
        return []
    taken = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    given = [word.split("=")[0].rstrip(",.:;)") for word in words if re.match(r"--?[a-z]", word)]
    return [name for name in given if name not in taken | {"--help", "-h"}]


def test_commands_that_pages_show_have_the_options_that_they_name() -> None:
    """Blocks for two machines, and sentences, are not run: their commands are read as the command line reads them."""
    shown = [(named(page), line) for page in PAGES for line in typed_commands(page)]
    assert len(shown) > 200
    assert not [(page, line, wrong) for page, line in shown if (wrong := misspelled(line))]
    assert misspelled("fedmoments simulate x.npz --head auto --seeds 2") == ["--head"]
    assert misspelled("fedmoments simulat x.npz")


def test_settings_that_pages_show_can_be_read() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            assert tomllib.loads(text), named(page)
        for text in blocks(page, "json"):
            assert json.loads(text), named(page)


def test_the_documentation_has_examples_to_run() -> None:
    assert sum(len(blocks(page, "python")) + len(blocks(page, "console")) for page in PAGES) >= 4


def test_relative_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_generated_pages_are_up_to_date() -> None:
    check = [sys.executable, str(ROOT / ".ci" / "reference.py"), "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.long
@pytest.mark.parametrize("notebook", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=named)
def test_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    """A notebook has the blocks of its tutorial; a kernel of its own runs them, commands through a shell."""
    import nbclient
    import nbformat

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    document = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    client = nbclient.NotebookClient(document, timeout=HANG, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "PATH": path})
    said = "".join(output.get("text", "") for cell in document.cells for output in cell.get("outputs", []))
    assert "error:" not in said, said
