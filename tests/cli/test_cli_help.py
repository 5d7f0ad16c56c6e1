"""Every command says how it is used, with an example that works as it stands."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fedmoments.cli.app import app

CONTEXT = click.Context(app)


def commands_of(group: click.Group) -> dict[str, Any]:
    return {name: group.get_command(CONTEXT, name) for name in group.list_commands(CONTEXT)}


PROGRAM = commands_of(app)
GROUPS = sorted(name for name, command in PROGRAM.items() if isinstance(command, click.Group))
#: All commands that do something, those of groups as two words.
COMMANDS = sorted(
    [name for name in PROGRAM if name not in GROUPS]
    + [f"{group} {name}" for group in GROUPS for name in commands_of(PROGRAM[group])]
)
#: Their examples need the demo itself, a clinic's table, or processes on both sides.
ELSEWHERE = {"card", "export", "serve", "demo", "predict", "federate", "server run", "server tune", "table"}


def command_of(name: str) -> Any:
    command: Any = app
    for word in name.split():
        command = command.get_command(CONTEXT, word)
    return command


def help_of(command: str) -> str:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    return result.stdout


def examples(command: str) -> list[str]:
    _, found, end = help_of(command).rpartition("Example")
    assert found, f"the help of '{command}' has no example"
    return [line.strip() for line in end.splitlines()[1:] if line.strip()]


def test_all_commands_are_there() -> None:
    files = {"audit", "evaluate", "fit", "inspect", "measure", "merge", "predict", "split"}
    federation = {"client", "federate", "helper", "leave", "refit", "rejoin", "status"}
    federation |= {"keys client", "keys helper", "keys renew", "keys rotate", "keys server", "witness"}
    server = {f"server {name}" for name in ("amend", "app", "create", "enrol", "invite", "revoke", "run", "tune")}
    ledger = {f"ledger {name}" for name in ("drift", "log", "restore", "snapshot", "verify")}
    others = {"costs", "demo", "diagnose", "encoders", "heads", "personalise", "probe", "simulate", "tune"}
    others |= {"card", "compare", "encode", "export", "reproduce", "serve", "table"}
    assert files | federation | server | ledger | others == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example_of_the_command(command: str) -> None:
    assert examples(command)[-1].startswith(f"fedmoments {command}")


@pytest.mark.slow
def test_help_examples_of_and_after_the_demo_work_as_they_stand(demo: Any, run: Any, workshop: Path) -> None:
    from PIL import Image

    assert examples("demo") == ["fedmoments demo"]
    assert demo.printed
    shutil.copytree(demo.folder / "runs", workshop / "runs", dirs_exist_ok=True)
    Image.new("L", (60, 40), 90).save(workshop / "photo.jpg")
    for line in examples("predict"):
        assert "photo.jpg" in run(*shlex.split(line)[1:]).stdout
    for line in examples("export"):
        assert "wrote" in run(*shlex.split(line)[1:]).stdout


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ELSEWHERE])
def test_help_example_works_as_it_stands(command: str, run: Any) -> None:
    for line in examples(command):
        program, *arguments = shlex.split(line)
        assert program == "fedmoments"
        assert run(*arguments).stdout


@pytest.mark.long
def test_help_example_of_federate_works_as_it_stands(run: Any) -> None:
    for line in examples("federate"):
        assert "auto classifier" in run(*shlex.split(line)[1:]).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_plain_and_explains_every_argument_and_option(command: str) -> None:
    text = help_of(command)
    assert "\\[" not in text
    assert "\x1b" not in text
    assert text.count("rguments:") <= 1
    for parameter in command_of(command).params:
        assert parameter.help, f"'{parameter.name}' of '{command}' is not explained"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_offers_json(command: str) -> None:
    assert "--json" in help_of(command)


def test_help_of_the_program_lists_the_commands_in_whole_sentences(run: Any) -> None:
    text = run("--help").stdout
    _, *sections = re.split(r"^(?=\S.*:$)", text.partition("Options:")[2], flags=re.MULTILINE)
    assert [section.partition(":")[0] for section in sections] == [
        "Try, on one machine",
        "Take part in a federation",
        "Run a federation",
        "Research",
    ]
    listed = [line.split()[0] for section in sections for line in section.splitlines()[1:] if line.strip()]
    assert [name for name in listed if name in PROGRAM] == list(PROGRAM)
    assert not any("..." in section for section in sections)
    for group in GROUPS:
        text = run(group, "--help").stdout
        assert all(command in text for command in commands_of(PROGRAM[group]))
        assert "..." not in text.split("Commands:")[1]


def test_a_pipe_that_gets_no_arguments_shows_the_help_and_fails(run: Any) -> None:
    assert run(code=2).stdout == run("--help").stdout


def test_version(run: Any) -> None:
    import fedmoments

    assert run("--version").stdout == f"fedmoments {fedmoments.__version__}\n"
