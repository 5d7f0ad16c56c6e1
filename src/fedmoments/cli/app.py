"""All commands in one app, and the one place where errors become a sentence and an exit code."""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

import fedmoments
from fedmoments.errors import DataWarning, FedMomentsError, FitWarning, in_full

__all__ = ["app"]

#: Name of a command -> the function that it is, imported when it is typed, and what the list of commands says of it.
Commands = Mapping[str, tuple[str, str]]

SERVER: Commands = {
    "create": ("server_create:create", "Write the terms and create a ledger."),
    "amend": ("server:amend", "Add classes to the terms."),
    "invite": ("server_invite:invite", "Write a start-up kit for each party."),
    "enrol": ("server:enrol", "Let clients contribute, by their cards."),
    "revoke": ("server:revoke", "Bar a client for good."),
    "run": ("server:run", "Collect contributions and fit heads."),
    "tune": ("server_tune:tune", "Probe or fine-tune with the clients."),
    "app": ("server:app", "Write a Flower app folder."),
}
KEYS: Commands = {
    "server": ("keys:server", "Make certificates for a server."),
    "client": ("keys:client", "Make keys for a client."),
    "helper": ("keys:helper", "Make keys for a helper."),
    "rotate": ("keys:rotate", "Make a new client key, signed by the old one."),
    "renew": ("keys:renew", "Make a new server certificate."),
}
LEDGER: Commands = {
    "verify": ("ledger:verify", "Check and replay the log."),
    "log": ("ledger:log", "Show what happened."),
    "drift": ("drift:drift", "Compare new contributions with old ones."),
    "snapshot": ("ledger:snapshot", "Copy a ledger."),
    "restore": ("ledger:restore", "Make a ledger from a snapshot."),
}
GROUPS: Mapping[str, tuple[Commands, str]] = {
    "keys": (KEYS, "Make certificates and keys."),
    "server": (SERVER, "Create a federation, enrol clients, run it."),
    "ledger": (LEDGER, "Check, read, copy and restore a ledger."),
}
#: Heading of the program's help -> the commands under it, in the order in which people need them.
HEADINGS: Mapping[str, Commands] = {
    "Try, on one machine": {
        "demo": ("demo:demo", "See it work in a minute, on bundled images."),
        "simulate": ("simulate:simulate", "Compare heads on your data, split over simulated clients."),
        "heads": ("heads:heads", "List all heads, or explain one."),
        "encoders": ("encoders:encoders", "List encoders, or install weights."),
        "predict": ("predict:predict", "Classify images or sentences."),
        "serve": ("serve:serve", "Answer requests over HTTP with a fitted head."),
        "export": ("export:export", "Write a model for software without fedmoments."),
        "federate": ("federate:federate", "Run a real federation, all parties on this machine."),
    },
    "Take part in a federation": {
        "client": ("client:client", "Measure your data, send moments once."),
        "audit": ("audit:audit", "Show what a contribution would reveal."),
        "encode": ("encode:encode", "Encode samples into a features file."),
        "measure": ("measure:measure", "Measure samples or features into a statistics file."),
        "table": ("tables:table", "Describe the columns of raw tables."),
        "inspect": ("inspect:inspect", "Show what a file holds."),
        "rejoin": ("client:rejoin", "Contribute again after leaving."),
        "personalise": ("personalise:personalise", "Make a client's own classifier, without training."),
        "helper": ("helper:helper", "Open masks for secure sums, as the second server."),
    },
    "Run a federation": {
        "server": ("", GROUPS["server"][1]),
        "keys": ("", GROUPS["keys"][1]),
        "status": ("ledger:status", "Show who contributed to a federation."),
        "leave": ("ledger:leave", "Remove a client's contribution."),
        "witness": ("witness:witness", "Check that a server showed all parties one log."),
        "refit": ("ledger:refit", "Fit heads from a ledger, again."),
        "ledger": ("", GROUPS["ledger"][1]),
        "merge": ("merge:merge", "Merge statistics files of many clients."),
        "fit": ("classifiers:fit", "Fit a classifier from statistics files."),
        "evaluate": ("classifiers:evaluate", "Test a classifier on held-out samples."),
        "card": ("card:card", "Print the model card of a classifier."),
        "compare": ("compare:compare", "Show how two classifiers differ."),
    },
    "Research": {
        "reproduce": ("reproduce:reproduce", "Reproduce tables and figures of the papers."),
        "diagnose": ("diagnose:diagnose", "Check the assumptions of Gaussian heads."),
        "tune": ("tune:tune", "Probe or fine-tune from a head, in rounds."),
        "probe": ("probe:probe", "Test a tuned encoder with closed-form heads."),
        "costs": ("costs:costs", "Compute costs: bytes, both ways, and rounds."),
        "split": ("split:split", "Split training samples over clients."),
    },
}
#: What a terminal shows when nothing but the name of the program is typed.
START = """\
fedmoments: one-shot federated learning without training. Start here:

  fedmoments demo                      see it work in a minute, without download
  fedmoments simulate folder:PHOTOS    which head, how accurate, for how many bytes:
                                       on your own data; --heads auto is a good start
  fedmoments federate --local 3 --tls  real processes, keys and certificates
  fedmoments client --help             take part in somebody's federation
  fedmoments server --help             run one

'fedmoments --help' lists all commands; 'fedmoments COMMAND --help' explains one
and ends with an example.
"""


class _Group(click.Group):
    """A group of commands, each imported when it is requested.

    Parameters
    ----------
    headings
        Heading of its help -> commands under it.
    attributes
        As in :class:`click.Group`.
    """

    def __init__(self, headings: Mapping[str, Commands], **attributes: Any) -> None:
        super().__init__(no_args_is_help=True, **attributes)
        self._headings = headings
        self._table = {name: place for table in headings.values() for name, place in table.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        """Return all names, in their order."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command, or a group of commands, by name."""
        if cmd_name not in self._table:
            return None
        module, _, function = self._table[cmd_name][0].partition(":")
        if not module:
            table, summary = GROUPS[cmd_name]
            return _Group({"Commands": table}, name=cmd_name, help=summary)
        command: click.Command = getattr(import_module(f"fedmoments.cli.{module}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write what each command does, without importing any; all headings keep one column."""
        widest = max(map(len, self._table))
        for heading, table in self._headings.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{widest}}", summary) for name, (_, summary) in table.items()])


class _App(_Group):
    """All commands; bad input is refused with one sentence and exit code 2, never with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an interruption ends it with its exit code, and with no line of click's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002, FBT001, FBT002 - the signature is click's
        **extra: Any,
    ) -> Any:
        """Run a command, and end with its exit code; nothing typed at a terminal shows where to start."""
        if not (sys.argv[1:] if args is None else args) and sys.stdout.isatty():
            sys.stdout.write(START)
            sys.exit(0)
        code: Any = 0
        try:
            with _plain_notes():
                code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            sys.stdout.write(f"{error.format_message()}\n")
            code = 2
        except click.ClickException as error:
            code = _refuse(_usage(error))
        except KeyboardInterrupt:
            code = 130
        except FedMomentsError as error:
            code = _refuse(in_full(error))
        except OSError as error:
            code = _refuse(_system(error))
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _plain_notes() -> Iterator[None]:
    """Show our own warnings as one line each on stderr, once; others as usual."""
    from fedmoments.cli.output import print_note

    shown: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not issubclass(category, (FitWarning, DataWarning)):
                usual(message, category, *rest, **more)
            elif str(message) not in shown:
                shown.add(str(message))
                print_note(f"note: {message}")

        warnings.simplefilter("always", FitWarning)
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = show
        yield


def _refuse(message: str) -> int:
    from fedmoments.cli.output import print_note

    print_note(f"error: {message}")
    return 2


def _usage(error: click.ClickException) -> str:
    """Return what was typed wrongly, and where to read how it is typed."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "fedmoments"
    return f"{error.format_message().rstrip('.')}; see '{path} --help'"


def _system(error: OSError) -> str:
    """Return what the operating system refused, with the file's name first."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it
    if wanted:
        sys.stdout.write(f"fedmoments {fedmoments.__version__}\n")
        ctx.exit()


app = _App(
    HEADINGS,
    name="fedmoments",
    help="One-shot federated learning: clients send moments of features once, a server solves for the classifier.",
    epilog="Start with 'fedmoments demo'; then every example of 'fedmoments COMMAND --help' works as it stands.",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_version,
            help="Print the version and exit.",
        )
    ],
)
