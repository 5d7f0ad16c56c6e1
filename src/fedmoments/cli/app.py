"""All commands in one app, and the one place where errors become a sentence and an exit code."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import fedmoments
from fedmoments.cli.audit import audit_command
from fedmoments.cli.classifiers import evaluate_command, fit_command
from fedmoments.cli.client import client_command, rejoin_command
from fedmoments.cli.command import PlainGroup
from fedmoments.cli.costs import costs_command
from fedmoments.cli.demo import demo_command
from fedmoments.cli.diagnose import diagnose_command
from fedmoments.cli.encoders import encoders_command
from fedmoments.cli.federate import federate_command
from fedmoments.cli.heads import heads_command
from fedmoments.cli.helper import helper_command
from fedmoments.cli.inspect import inspect_command
from fedmoments.cli.keys import keys_commands
from fedmoments.cli.ledger import leave_command, ledger_commands, refit_command, status_command
from fedmoments.cli.measure import measure_command
from fedmoments.cli.merge import merge_command
from fedmoments.cli.personalise import personalise_command
from fedmoments.cli.predict import predict_command
from fedmoments.cli.probe import probe_command
from fedmoments.cli.reproduce import reproduce_command
from fedmoments.cli.server import server_commands
from fedmoments.cli.simulate import simulate_command
from fedmoments.cli.split import split_command
from fedmoments.cli.tune import tune_command
from fedmoments.errors import FedMomentsError, FitWarning

__all__ = ["app"]

# Typer may carry a copy of click of its own: the root of its usage errors is found from the one that it exports.
_UsageError: Any = typer.BadParameter.__mro__[2]


class _Group(PlainGroup):
    """A group of commands that refuses bad input with one sentence and exit code 2, never with a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002, FBT001, FBT002 - the signature is typer's
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,
    ) -> Any:
        code: Any = 0
        try:
            with _plain_notes():
                code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)  # noqa: FBT003
        except _UsageError as error:
            code = _refuse(_usage(error))
        except KeyboardInterrupt:
            code = 130
        except FedMomentsError as error:
            code = _refuse(str(error))
        except OSError as error:
            code = _refuse(_system(error))
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _plain_notes() -> Iterator[None]:
    """Show what was fitted in a lesser way than asked for as one line on stderr, once; other warnings as usual."""
    told: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not issubclass(category, FitWarning):
                usual(message, category, *rest, **more)
            elif str(message) not in told:
                told.add(str(message))
                sys.stderr.write(f"note: {' '.join(str(message).split())}\n")

        warnings.simplefilter("always", FitWarning)
        warnings.showwarning = show
        yield


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")  # one line, whatever a message holds
    return 2


def _usage(error: Any) -> str:
    """Return what was typed wrongly, and where to read how it is typed."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "fedmoments"
    return f"{error.format_message().rstrip('.')}; see '{path} --help'"


def _system(error: OSError) -> str:
    """Return what the operating system refused, with the file's name first."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


app = typer.Typer(
    name="fedmoments",
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    epilog="Start with 'fedmoments demo'; then every example of 'fedmoments COMMAND --help' works as it stands.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        sys.stdout.write(f"fedmoments {fedmoments.__version__}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
]


@app.callback()
def _root(*, version: Version = False) -> None:
    """One-shot federated learning: clients send moments of features once, a server solves for the classifier."""


for _command in (
    demo_command,
    heads_command,
    split_command,
    measure_command,
    merge_command,
    inspect_command,
    audit_command,
    fit_command,
    evaluate_command,
    simulate_command,
    tune_command,
    diagnose_command,
    predict_command,
    personalise_command,
    probe_command,
    encoders_command,
    costs_command,
    reproduce_command,
    federate_command,
    keys_commands,
    server_commands,
    client_command,
    helper_command,
    status_command,
    leave_command,
    rejoin_command,
    refit_command,
    ledger_commands,
):
    _command(app)
