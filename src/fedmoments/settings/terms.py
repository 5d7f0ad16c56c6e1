"""What the terms of a federation are drawn up from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from fedmoments.settings.encoding import EncoderChoice
from fedmoments.settings.files import FromFile
from fedmoments.settings.option import option
from fedmoments.settings.samples import Columns

__all__ = ["TermsSettings"]

_federation = partial(option, group="Federation")


@dataclass(frozen=True)
class TermsSettings(EncoderChoice, Columns, FromFile):
    """A federation to be: what its clients are asked for.

    Parameters
    ----------
    data
        Data like the clients', which tell class names and the dimension of features; empty: the settings do.
    classes
        File with one class a line, or names separated by commas, in order; empty: the data tell.
    after
        Ledger of a federation with the same encoder and classes, in whose Fisher directions this one measures.
    privacy
        What is agreed on: rules of :class:`fedmoments.privacy.protection.Agreed`.
    """

    sources: ClassVar[tuple[str, ...]] = ("data",)

    data: str = option("", "Take class names, and the dimension of features, from data like the clients'.", common=1)
    name: str = option("", "What people call the federation.", common=1)
    heads: tuple[str, ...] = option(
        (),
        "Clients are asked for the least that serves these heads; separated by commas.",
        shown="auto; fedcof where privacy or --rows allow no sketch",
        common=3,
    )
    classes: str = option(
        "", "File with one class a line, or names separated by commas, in order.", metavar="FILE|NAME,…", common=3
    )
    dim: int | None = _federation(None, "Dimensions of the features, where they are given.", metavar="D")
    means_per_client: int = _federation(1, "Means that a client sends of each class.", metavar="N")
    feature_map: str = _federation(
        "",
        "none, power (√x, then unit length: for features behind a ReLU) or auto (as the encoder says; where features "
        "are given, power if none is negative and they are skewed).",
        "--map",
        metavar="MAP",
        shown="auto if auto is the only head, else none",
    )
    budget: str | None = _federation(
        None,
        "means, means/8, gram, 50KB …: bytes that a client's means and scatter sketch may take, for heads on sketches.",
        metavar="BYTES",
    )
    after: str = _federation(
        "",
        "A second exchange: ask in the Fisher directions of what this ledger of a first one holds (--heads gh-qda).",
        metavar="LEDGER",
    )
    norm_bound: float = _federation(1024.0, "Largest norm of a sample's features.", metavar="NORM")
    max_samples: int = _federation(2**24, "Most samples in the whole federation.", metavar="N")
    rows: str = _federation("int64", "How means travel: int64, float32, float16, bfloat16 or int8.", metavar="TYPE")
    seed: int = _federation(0, "Public; deals samples to several means of a class.", metavar="N")
    privacy: Mapping[str, Any] = option({}, "What is agreed on.", group="Privacy")
