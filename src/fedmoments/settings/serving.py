"""How a model answers, and how it is served: where, with which certificate, and what requests may ask for."""

from dataclasses import dataclass
from functools import partial

from fedmoments.errors import InputError
from fedmoments.settings.option import option

__all__ = ["AnswerSettings", "ServingSettings"]

_limit = partial(option, group="Server", least=1, metavar="N")


@dataclass(frozen=True)
class AnswerSettings:
    """When a model says that it does not know a sample, and how sure its sets of classes are."""

    abstain: str | None = option(
        None, "Answer 'unknown' for samples less familiar than all but this share of familiar ones: 1% or 0.01."
    )
    coverage: str | None = option(
        None, "Show a set of classes that holds the true one with this probability: 95% or 0.95. For tested heads."
    )

    def shares(self) -> dict[str, float | None]:
        """Return both as numbers between 0 and 1; None where nothing was requested.

        Examples
        --------
        >>> AnswerSettings("1%").shares()
        {'abstain': 0.01, 'coverage': None}
        """
        return {"abstain": _share(self.abstain, "--abstain"), "coverage": _share(self.coverage, "--coverage")}


def _share(text: str | None, whose: str) -> float | None:
    """Return a share from 0 to 1 of "1%" or "0.01"."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not 0.0 < value < 1.0:
        raise InputError(f"{whose}: a share is a number between 0 and 1, or between 0% and 100%, not {text!r}")
    return value


@dataclass(frozen=True)
class ServingSettings:
    """Address, TLS and limits of ``fedmoments serve``."""

    host: str = option("127.0.0.1", "Address to listen on; any but a loopback address requires --certificate.")
    port: int = option(8080, "Port; 0 picks a free one.", metavar="PORT", least=0)
    certificate: str | None = option(None, "TLS certificate (PEM); with --key.", metavar="FILE")
    key: str | None = option(None, "Private key of the certificate (PEM).", metavar="FILE", needs="certificate")
    max_batch: int = _limit(32, "Samples encoded per batch.")
    max_request_bytes: int = _limit(32_000_000, "Most bytes per request.")
    max_samples: int = _limit(256, "Most samples per request.")
    max_waiting: int = _limit(2048, "Most samples that may wait, over all requests; more are answered with 503.")
    max_pixels: int = _limit(50_000_000, "Most pixels per image, and in all images decoded at the same time.")
    max_characters: int = _limit(20_000, "Most characters per text.")
