"""How a model is served: where, with which certificate, and what requests may ask for."""

from dataclasses import dataclass
from functools import partial

from fedmoments.settings.option import option

__all__ = ["ServingSettings"]

_limit = partial(option, group="Server", least=1, metavar="N")


@dataclass(frozen=True)
class ServingSettings:
    """Address, TLS and limits of ``fedmoments serve``."""

    host: str = option("127.0.0.1", "Address to listen on; another than this machine's own wants --certificate.")
    port: int = option(8080, "Port; 0 takes a free one.", metavar="PORT", least=0)
    certificate: str | None = option(None, "TLS certificate (PEM); with --key.", metavar="FILE")
    key: str | None = option(None, "Private key of the certificate (PEM).", metavar="FILE", needs="certificate")
    max_batch: int = _limit(32, "Samples that are encoded at once.")
    max_request_bytes: int = _limit(32_000_000, "Bytes of one request.")
    max_samples: int = _limit(256, "Samples of one request.")
    max_waiting: int = _limit(2048, "Samples of all requests that may wait; more are answered with 503.")
