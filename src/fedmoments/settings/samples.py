"""Where samples come from."""

from dataclasses import dataclass
from functools import partial

from fedmoments.settings.option import option

__all__ = ["Columns", "SampleSource"]

_data = partial(option, group="Data")


@dataclass(frozen=True)
class Columns:
    """Data, and which of their columns or folders hold what."""

    data: str = option(
        "digits",
        "digits, folder:PATH, csv:PATH, parquet:PATH, npz:PATH or hf:NAME; a path alone where its ending, or that it "
        "is a folder, says what it is.",
        common=1,
    )
    text: str | None = _data(None, "Column of sentences.")
    image: str | None = _data(None, "Column of images or of paths to them.")
    label: str | None = _data(None, "Column of labels.")
    domains: bool | None = _data(None, "Folders are domain/class, not class.")


@dataclass(frozen=True)
class SampleSource(Columns):
    """Data with all that their readers take."""

    client: str | None = _data(None, "Column of clients, for the split 'id'.")
    domain: str | None = _data(None, "Column of domains, for the split 'domain'.")
    test: str | None = _data(None, "A second file, to test on.")
    test_share: float | None = _data(None, "Share to test on, of data that come in one part.", metavar="SHARE")
    strict: bool = _data(False, "Stop at the first sample that is unreadable.")
    seed: int = option(0, "The first seed; every random choice follows from it.", common=8)
