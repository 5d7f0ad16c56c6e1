"""What a party remembers of its own samples, by their content: which are held out, and which are forgotten.

====================  ===========================================================================================
``held-out.json``     content and class of the samples that were kept for tests: whatever comes or goes
                      later, a sample that was tested on is never measured, and the others stay what they are
``forgotten.txt``     SHA-256 and name of samples that are as if they were not there, also in a copy elsewhere
====================  ===========================================================================================

Both lie in the party's own folder and never leave it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import TableMap
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import write_whole
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.digests import sample_digests
from fedmoments.samples.joining import join_data
from fedmoments.samples.reading import read_data
from fedmoments.samples.samples import Samples
from fedmoments.settings.client import ClientSettings

__all__ = ["FORGOTTEN", "HELD_OUT", "forget", "memory_stamp", "remembered_data", "require_nothing_remembered"]

HELD_OUT, FORGOTTEN = "held-out.json", "forgotten.txt"


def remembered_data(settings: ClientSettings, *, keep: bool, table: TableMap | None = None) -> DataSet:
    """Return a party's samples, those that were added among them, without those that are forgotten.

    Parameters
    ----------
    settings
        The party's own.
    keep
        Whether what is held out for the first time is written down.
    table
        What codes the cells of raw tables, where the federation agreed on that.
    """
    if settings.split:  # a trial: the data are dealt out anew each time
        return read_data(settings, table)
    place = settings.memory or settings.folder
    parts = _parts(settings, Path(place) if place else None, keep=keep, table=table)
    gone = _forgotten(Path(place)) if place else {}
    if gone:
        parts = [
            DataSet(_without(part.train, gone), _without(part.test, gone), part.name, part.description)
            for part in parts
        ]
    whole = join_data(parts)
    if not len(whole.train):
        raise InputError(f"{settings.data} holds no sample to measure: all are forgotten or kept for tests")
    return whole


def memory_stamp(settings: ClientSettings) -> str:
    """Return a text that changes when something more is forgotten."""
    path = Path(settings.memory or settings.folder) / FORGOTTEN
    return f"{path.stat().st_mtime_ns} {path.stat().st_size}" if path.exists() else ""


def require_nothing_remembered(settings: ClientSettings) -> None:
    """Refuse to measure files one by one where samples are forgotten or kept for tests: nobody would find them there.

    Examples
    --------
    >>> require_nothing_remembered(ClientSettings(name="clinic", key_seed="x"))
    """
    place = settings.memory or settings.folder
    if place and (_forgotten(Path(place)) or _held_out(Path(place) / HELD_OUT)[0]):
        raise InputError(
            f"{place} remembers samples that are forgotten or kept for tests, which are found in memory only: leave "
            "--workers and --cluster out, or take them out of the files and begin in another folder"
        )


def forget(settings: ClientSettings, names: Sequence[str]) -> int:
    """Note samples as forgotten, and return how many there are of them, copies included.

    Parameters
    ----------
    settings
        The party's own; its folder keeps the note.
    names
        Of samples, as ``--plan`` and error messages name them (``dog/7.png``, ``row 17``), or paths of files. Where two
        data have the same name, with the data and a colon in front.

    Raises
    ------
    InputError
        When there is no such sample, or two of different content; nothing is noted then.
    """
    if settings.by_file:
        raise InputError(
            f"{settings.name} measures its files one by one: take rows that are to be forgotten out of "
            f"{settings.data}, and start it again"
        )
    known, count = _by_name(_parts(settings, Path(settings.folder), keep=True))
    noted: dict[str, str] = {}
    for line in names:
        digests = known.get(line, set()) or known.get(str(Path(line).absolute()), set())
        if len(digests) != 1:
            what = "in several of the data: write 'DATA:' before it" if digests else "not among this client's samples"
            raise InputError(f"'{line}' cannot be forgotten: it is {what}")
        noted[next(iter(digests))] = line
    before = _forgotten(Path(settings.folder))
    lines = [f"{digest} {name}" for digest, name in (before | noted).items()]
    write_whole(Path(settings.folder) / FORGOTTEN, "".join(f"{line}\n" for line in lines).encode())
    return sum(count[digest] for digest in noted)


def _by_name(several: Iterable[DataSet]) -> tuple[dict[str, set[str]], Counter[str]]:
    """Return the digests of what every name stands for, and how many samples there are of each digest."""
    known: dict[str, set[str]] = {}
    count = Counter[str]()
    for data in several:
        for part in (data.train, data.test):
            for place, digest in enumerate(_hexes(part)):
                count[digest] += 1
                for name in _names(data, part, place):
                    known.setdefault(name, set()).add(digest)
    return known, count


def _names(data: DataSet, part: Samples, place: int) -> list[str]:
    item = part.items[place]
    name = part.source(place)
    paths = [str(item.absolute()), str(item)] if isinstance(item, Path) else []
    return [name, f"{data.name}:{name}", f"{data.name.partition(':')[2]}:{name}", *paths]


def _parts(settings: ClientSettings, place: Path | None, *, keep: bool, table: TableMap | None = None) -> list[DataSet]:
    """Return the data and each that were added, with the samples held out that always were."""
    own = [settings, *(replace(settings, data=text, test=None) for text in settings.also)]
    if place is None:
        return [read_data(source, table) for source in own]
    known, seen = _held_out(place / HELD_OUT)
    parts = []
    for source in own:
        in_order = read_data(replace(source, test_share=0.0), table)
        if len(in_order.test):  # a test part of its own
            parts.append(in_order)
            continue
        if source.data not in seen and not _contents(known) & _contents(_keys(in_order.train)):
            known += Counter(_keys(read_data(source, table).test))
        seen |= {source.data}
        parts.append(_divided(in_order, known))
    if keep and (known, seen) != _held_out(place / HELD_OUT):
        document = {"data": sorted(seen), "held_out": sorted(known.elements())}
        write_whole(place / HELD_OUT, json.dumps(document, indent=1).encode())
    return parts


def _divided(data: DataSet, known: Counter[str]) -> DataSet:
    """Return data in one part without the samples that are known to be held out, and these."""
    held = _held(_keys(data.train), known)
    groups = data.train.groups
    if groups is not None:  # a new sample of a patient who is tested on is not measured
        held |= np.isin(groups, groups[held])
    train, test = (data.train.take(np.flatnonzero(which)) for which in (~held, held))
    return DataSet(train, test, data.name, data.description)


def _held(keys: Sequence[str], known: Counter[str]) -> NDArray[np.bool_]:
    """Return which samples are held out: as many of a content and class as were; then also under another class."""
    left = Counter(known)
    held = np.zeros(len(keys), bool)
    for place, key in enumerate(keys):
        if left[key] > 0:
            held[place] = True
            left[key] -= 1
    others = Counter(key[:64] for key, n in left.items() for _ in range(n))
    for place in np.flatnonzero(~held).tolist():
        if others[keys[place][:64]] > 0:
            held[place] = True
            others[keys[place][:64]] -= 1
    return held


def _keys(part: Samples) -> list[str]:
    """Return the content and the class of each sample."""
    return [f"{digest} {part.class_names[label]}" for digest, label in zip(_hexes(part), part.labels, strict=True)]


def _contents(keys: Iterable[str]) -> set[str]:
    return {key[:64] for key in keys}


def _held_out(path: Path) -> tuple[Counter[str], set[str]]:
    """Return content and class of what is held out, and of which data they were chosen."""
    if not path.exists():
        return Counter(), set()
    try:
        document = json.loads(path.read_bytes())
        return Counter(map(str, document["held_out"])), set(map(str, document["data"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is damaged: restore it; without it, samples to test on would be measured"
        ) from error


def _forgotten(place: Path) -> dict[str, str]:
    path = place / FORGOTTEN
    if not path.exists():
        return {}
    text = path.read_bytes().decode("utf-8", "replace")
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    if any(len(digest) != 64 or not set(digest) <= set("0123456789abcdef") for digest, _, _ in lines):
        raise FileFormatError(f"{path} is damaged: restore it; without it, samples that were forgotten would come back")
    return {digest: name for digest, _, name in lines}


def _without(part: Samples, gone: dict[str, str]) -> Samples:
    stays: NDArray[np.int64] = np.array([i for i, digest in enumerate(_hexes(part)) if digest not in gone], np.int64)
    return part if len(stays) == len(part) else part.take(stays)


def _hexes(part: Samples) -> list[str]:
    return [row.tobytes().hex() for row in sample_digests(part)]
