"""A command line that is generated: an option is a field, a file and what is typed say the same, help has headings."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

import click
import pytest
from click.testing import CliRunner

from fedmoments.cli.app import app
from fedmoments.cli.generate import Command, command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.errors import InputError
from fedmoments.privacy.modes import secure_names
from fedmoments.settings.files import FromFile
from fedmoments.settings.option import GROUPS, option, option_of
from fedmoments.settings.plan import TuningPlan
from fedmoments.settings.policy import PolicyRules
from fedmoments.settings.server import ServerSettings, TuningSettings
from fedmoments.settings.study import StudySettings, TuningStudy

seen: list[Any] = []


@dataclass(frozen=True)
class Rules:
    """Keys of a table."""

    limit: int | None = option(None, "The most.", group="Privacy", swept="1,2 sweeps.")


@dataclass(frozen=True)
class Shelf(FromFile):
    """Settings with a field of every kind."""

    books: tuple[str, ...] = option(("atlas",), "Names.", common=1)
    width: float = option(0.5, "Metres.", "--wide", "-w", group="Data", metavar="M")
    lamp: bool = option(False, "Has a lamp.", group="Data")
    hyper: Mapping[str, Mapping[str, Any]] = option({}, "Of heads.", "--set", kind="hyper", group="Heads")
    rules: Mapping[str, Any] = option({}, "Rules.", group="Privacy")


@command("shelve", "Example:\n  shelve a")
def shelve(
    name: Annotated[str, positional(help="Whose.")],
    shelf: Annotated[Shelf, Taken(tables={"rules": (Rules,)}, sweeps=True, file=True)],
    *,
    depth: Annotated[int, typed(help="Centimetres.", group="Output", least=1)] = 30,
) -> None:
    """Put up a shelf."""
    seen.append((name, shelf, depth))


def put_up(*words: str) -> Any:
    result = CliRunner().invoke(shelve, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return seen.pop()


def test_nothing_typed_is_the_defaults() -> None:
    assert put_up("ann") == ("ann", Shelf(), 30)


def test_every_kind_of_field_is_read_from_words() -> None:
    words = ["--books", "atlas,novel", "-w", "2", "--lamp", "--set", "gh-lda.shrinkage=none", "--limit", "1,2"]
    hyper, rules = {"gh-lda": {"shrinkage": "none"}}, {"limit": [1, 2]}
    assert put_up("ann", *words) == ("ann", Shelf(("atlas", "novel"), 2.0, True, hyper, rules), 30)


def test_what_is_typed_wins_over_the_file_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    written = Shelf(("novel",), 3.0, lamp=True, hyper={"gh-lda": {"shrinkage": "none"}}, rules={"limit": 3})
    (tmp_path / "shelf.toml").write_text(written.to_toml())
    config = ("--config", str(tmp_path / "shelf.toml"))
    assert put_up("ann", *config)[1] == written
    words = ("--no-lamp", "--wide", "1", "--set", "gh-lda.covariance=free", "--limit", "4")
    both = {"gh-lda": {"shrinkage": "none", "covariance": "free"}}
    assert put_up("ann", *config, *words)[1] == Shelf(("novel",), 1.0, lamp=False, hyper=both, rules={"limit": [4]})


def test_help_has_the_common_options_first_then_headings_with_defaults() -> None:
    text = CliRunner().invoke(shelve, ["--help"]).stdout
    places = [text.index(f"\n{heading}:") for heading in ("Options", "Data", "Heads", "Privacy", "Output")]
    assert places == sorted(places)
    assert "--books NAME,…" in text[places[0] : places[1]]
    assert "[default: atlas]" in text[places[0] : places[1]]
    assert "-w, --wide M" in text[places[1] : places[2]]
    assert "[default: 0.5]" in text[places[1] : places[2]]
    assert "--lamp / --no-lamp" in text[places[1] : places[2]]
    assert "The most; 1,2 sweeps." in text[places[3] : places[4]]
    assert "[default: 30]" in text[places[4] :]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--wide", "broad"], "Invalid value for '--wide'"),
        (["--depth", "0"], "Invalid value for '--depth'"),
        (["--limit", "1,many"], "--limit takes whole numbers, separated by commas, but '1,many' arrived"),
        (["--books", ","], "--books takes at least one value"),
        (["--set", "shrinkage=1"], "--set is typed as HEAD.NAME=VALUE here, but 'shrinkage=1' arrived"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_option_and_what_arrived(words: list[str], told: str) -> None:
    with pytest.raises((InputError, click.ClickException)) as refusal:
        shelve.main(["ann", *words], standalone_mode=False)
    message = refusal.value.format_message() if isinstance(refusal.value, click.ClickException) else str(refusal.value)
    assert told in message


def test_what_was_typed_can_be_written_as_words_again() -> None:
    found: list[Given[Shelf]] = []

    @command("look")
    def look(shelf: Annotated[Given[Shelf], Taken(tables={"rules": (Rules,)}, sweeps=True)]) -> None:
        """Look."""
        found.append(shelf)

    words = ["--books", "atlas,novel", "--wide", "2.0", "--no-lamp", "--set", "gh-lda.shrinkage=none", "--limit", "1,2"]
    look.main(words, standalone_mode=False)
    assert found[0].arguments() == words
    assert found[0].arguments(only=["books"], without=["width"]) == words[:2]
    assert found[0].names == ["--books", "--wide", "--lamp", "--set", "--limit"]


# ---------------------------------------------------------------------------------------------- our own commands


def own(name: str) -> Command:
    found = app.get_command(click.Context(app), name)
    assert isinstance(found, Command)
    return found


@pytest.mark.parametrize(
    ("name", "settings", "hidden"),
    [("simulate", StudySettings, {"privacy"}), ("tune", TuningStudy, {"plan"}), ("client", PolicyRules, set())],
)
def test_every_field_that_people_set_is_explained_and_has_a_known_heading(
    name: str, settings: Any, hidden: set[str]
) -> None:
    declared = {field.name: option_of(field) for field in fields(settings)}
    explained = {key: said for key, said in declared.items() if said is not None}
    assert all(said.help.endswith(".") and (said.common or said.group in GROUPS) for said in explained.values())
    offered = {(param.name or "").rpartition("__")[2] for param in own(name).params}
    missing = set(explained) - offered - hidden
    assert missing <= {
        "shrinkages", "means_per_client", "projections", "feature_map", "budgets", "budget_curve", "participation",
        "privacy", "memory_limit", "runtime", "report_withheld", "small_sketches",
    }  # fmt: skip
    assert not missing or name != "simulate"


def test_simulate_shows_a_dozen_options_before_the_headings(run: Any) -> None:
    text = run("simulate", "--help").stdout
    first = text[text.index("\nOptions:") : text.index("\nData:")]
    assert 8 <= first.count("\n  -") <= 14
    for heading in ("Data", "Encoder", "Federation", "Heads", "Privacy", "Output"):
        assert f"\n{heading}:\n" in text


def test_help_of_simulate_waits_for_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['fedmoments', 'simulate', '--help']\n"
        "from fedmoments.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'scipy', 'torch', 'flwr', 'typer') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def said_of(option_name: str, *words: str) -> str:
    """Return what the help of a command says of an option, in one line."""
    context, group = click.Context(app), cast("Any", app)
    for word in words:
        group = group.get_command(context, word)
    rows = (row for _, rows in group.sections(context) for row in rows)
    return str(next(text for names, text in rows if option_name in names.split()))


@pytest.mark.parametrize("words", [("simulate",), ("federate",), ("server", "create")])
def test_help_names_all_privacy_modes_also_of_packages_that_do_not_load(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = said_of("--secure", *words)
    named = before.partition(":")[0].replace(" or ", ", ").split(", ")
    assert sorted(named) == sorted(secure_names())
    assert "Installed" not in before
    info = tmp_path / "quiet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedmoments.privacy]\nodd = nowhere:Odd\neven = nowhere:Even\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert said_of("--secure", *words) == f"{before} Installed packages add: even, odd."


@pytest.mark.parametrize("number", ["0.2", "auto"])
def test_a_plan_is_typed_as_it_is_written(run: Any, features: str, number: str) -> None:
    words = ["--starts", "fedncm", "--clients", "4", "--rounds", "1", "--seeds", "1", "--temperature", number]
    run("tune", features, *words, "--out", "t")
    temperature = float(number) if number != "auto" else number
    assert TuningStudy.load("t/config.toml").plan == {"rounds": 1, "temperature": temperature}
    assert TuningPlan(**TuningStudy.load("t/config.toml").plan).temperature == temperature


def test_a_list_that_was_emptied_stays_empty_in_the_file(run: Any, features: str) -> None:
    words = ["--starts", "fedncm", "--clients", "4", "--rounds", "1", "--seeds", "1"]
    run("tune", features, *words, "--refit", "none", "--out", "t")
    assert TuningStudy.load("t/config.toml").refit == ()
    assert TuningStudy().refit == ("fed3r",)


def test_a_federation_is_read_from_a_file_with_a_table_for_each_party(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    Path("trial.toml").write_text(
        f'[study]\ndata = "{features}"\nclients = 9\nsplits = "iid"\n\n[server]\nheads = ["fedncm", "gh-lda"]\n'
        "evaluate = false\n\n[policy]\nmin_count = 2\n"
    )
    command = ("federate", "--local", "2", "--engine", "memory", "--config", "trial.toml", "--json")
    found = json.loads(run(*command, "--clients", "6", "--out", "a").stdout)
    assert (found["clients"], [each["head"] for each in found["heads"]]) == (6, ["fedncm", "gh-lda"])
    assert "--clients 6 --split iid" in found["simulate"]
    assert "--min-count 2" in found["simulate"]
    Path("trial.toml").write_text("[studdy]\nclients = 9\n")
    assert "unknown table of trial.toml 'studdy': did you mean 'study'" in run(*command, code=2).stderr
    Path("trial.toml").write_text("[server]\nheds = 'fedncm'\n")
    assert "unknown key of [server] of trial.toml 'heds'" in run(*command, code=2).stderr


def test_terms_are_drawn_up_from_a_file(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    Path("terms.toml").write_text(f'name = "pets"\ndata = "{features}"\nheads = "fed3r"\nnorm_bound = 64\n')
    document = json.loads(run("server", "create", "a.ledger", "--config", "terms.toml", "--json").stdout)
    assert (document["name"], document["norm_bound"]) == ("pets", 64.0)
    typed_too = ("server", "create", "b.ledger", "--config", "terms.toml", "--norm-bound", "32", "--json")
    assert json.loads(run(*typed_too).stdout)["norm_bound"] == 32.0
    assert "--name NAME" in run("server", "create", "c.ledger", "--data", features, code=2).stderr


def test_a_server_reads_its_settings_from_a_file(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    run("server", "create", "a.ledger", "--name", "pets", "--data", features)
    command = ("server", "run", "a.ledger", "--insecure", "--config", "server.toml")
    Path("server.toml").write_text("quorum = 3\n")
    assert "--quorum 3 cannot be reached: 0 clients may contribute" in run(*command, code=2).stderr
    Path("server.toml").write_text("deadline = 100\nttl = 50\n")
    assert "deadline is 100.0 s, ttl is 50.0 s" in run(*command, code=2).stderr
    Path("server.toml").write_text('heads = "fedcov"\n')
    assert "did you mean 'fedcof'" in run(*command, code=2).stderr
    assert "not among the heads" in run(*command, "--heads", "fedcof", "--set", "gh-lda.shrinkage=none", code=2).stderr


def test_a_helper_reads_its_settings_from_a_file(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    run("keys", "helper", "keys", "--name", "notary")
    terms = ("--name", "pets", "--data", features, "--heads", "fed3r", "--secure", "sums")
    run("server", "create", "a.ledger", *terms, "--helper", "keys/notary.helper.card")
    run("keys", "client", "keys", "--name", "ward")
    asked = ("helper", "notary", "--terms", "a.ledger.terms.json", "--plan", "--json")
    first = json.loads(run(*asked, "--keys", "keys", "--member", "keys/ward.card", "--minimum", "5").stdout)
    assert (first["minimum"], first["members"]) == (5, 1)
    Path("notary/helper.toml").rename("mine.toml")
    kept = json.loads(run(*asked, "--config", "mine.toml").stdout)
    assert (kept["minimum"], kept["settings"]) == (5, str(Path("mine.toml").resolve()))
    changed = json.loads(run(*asked, "--config", "mine.toml", "--minimum", "7").stdout)
    assert (changed["minimum"], changed["settings"]) == (7, str(Path("notary/helper.toml").resolve()))


@pytest.mark.parametrize("settings", [ServerSettings, TuningSettings])
def test_settings_that_stand_alone_name_their_ledger(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "server.toml"
    path.write_text("nodes = 2\n")
    assert settings.load(path).nodes == 2
    with pytest.raises(InputError, match="names no ledger"):
        settings.load_whole(str(path))
    path.write_text('ledger = "a.ledger"\n')
    assert settings.load_whole(str(path)).ledger == str(tmp_path / "a.ledger")
