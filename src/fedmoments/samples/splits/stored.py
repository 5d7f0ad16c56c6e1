"""A split that was written to a file: the same clients whatever the seed."""

from pathlib import Path

from fedmoments.errors import InputError
from fedmoments.samples.splits.scheme import Parameter, Request, Scheme
from fedmoments.samples.splits.split import Split

__all__: list[str] = []


def _path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise InputError(f"there is no file {text}: 'fedmoments split DATA --out PATH' writes one")
    return path


def _stored(request: Request, path: Path) -> Split:
    split = Split.load(path)
    if len(split.clients) != len(request.y):
        raise InputError(
            f"the split {path} divides {len(split.clients):,} samples, but these data have {len(request.y):,} training "
            "samples: it was made for other data, or for another test share or seed of them. Give 'fedmoments split' "
            "and this command the same --test-share and --seed"
        )
    return split


SPLITS = (
    Scheme(
        "file",
        "as 'fedmoments split' wrote it",
        (Parameter("PATH", _path, rest=True),),
        _stored,
        finds_clients=lambda *_: True,
    ),
)
