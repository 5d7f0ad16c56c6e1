"""A party's rows that lie in many files: their classes and keys are known here, their features where files are read."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Accumulator, Statistics
from fedmoments.errors import InputError, PolicyError
from fedmoments.federation.flower.held import Held
from fedmoments.federation.lake.passes import Passes
from fedmoments.federation.lake.reader import FileReader
from fedmoments.federation.lake.work import (
    Measured,
    Rest,
    added,
    chained,
    counted,
    fetched,
    measured,
    read_survey,
    surveyed,
    unpack_counts,
    unpack_rows,
)
from fedmoments.federation.outbox.differences import SAMPLE_KEY
from fedmoments.federation.terms import Terms
from fedmoments.privacy.rare_values import (
    RareValues,
    Shown,
    aimed_stages,
    common_values,
    first_places,
    hides_before,
    hides_features,
)
from fedmoments.samples.lakes import joined

__all__ = ["LakeRows", "surveyed_rows"]

Ints = NDArray[np.int64]
#: Passes that look for rare values, before a feature map and behind it.
_STAGES = ("raw", "rare")


class _ShownElsewhere(Shown):
    """Features that are shown where files are read, and are never here."""

    def __init__(self, fewest: int) -> None:
        self.fewest = fewest

    def __getitem__(self, rows: slice | Ints) -> Any:
        raise PolicyError(
            "a new version of second moments is compared with those that were sent, sample by sample, which files that "
            "are measured one by one do not allow: leave --workers and --cluster out, or allow any change with "
            "--small-changes"
        )

    @property
    def is_kept_apart(self) -> bool:
        """Not known here, so that nothing is kept for a later version."""
        return False

    @property
    def compared(self) -> Any:
        """What a new version would be compared by, if it were here."""
        return self


class LakeRows(Held):
    """Rows of a lake, as :class:`~fedmoments.federation.flower.held.Held` has those in memory.

    Parameters
    ----------
    passes, reader
        Over which files, and how each is read.
    sizes
        (f,) rows of every file.
    keys
        (n,) key and label of every row.
    chosen
        (n,) which of them these are; None: all.
    """

    def __init__(
        self,
        passes: Passes,
        reader: FileReader,
        sizes: Ints,
        keys: NDArray[Any],
        chosen: NDArray[np.bool_] | None = None,
    ) -> None:
        self._passes, self._reader, self._sizes, self._all, self._chosen = passes, reader, sizes, keys, chosen

    @property
    def X(self) -> Any:  # noqa: N802 - as of rows in memory
        """Refuse: the features never stand together."""
        raise InputError(
            "this client measures its files one by one (workers, cluster), so that their features are never together: "
            "what asks for those takes data in memory, without --workers and --cluster"
        )

    @property
    def y(self) -> Ints:
        """(n,) agreed labels."""
        return self._keys["label"].astype(np.int64)

    @property
    def _keys(self) -> NDArray[Any]:
        return self._all if self._chosen is None else self._all[self._chosen]

    def digest(self) -> str:
        """Return the SHA-256 of labels and keys, in the order of the rows."""
        return sha256(self.keys()).hexdigest()

    def keys(self) -> bytes:
        """Return what tells these rows apart."""
        return self._keys.tobytes()

    def take(self, mask: NDArray[np.bool_]) -> "LakeRows":
        """Return some of the rows."""
        chosen = mask if self._chosen is None else np.zeros(len(self._all), np.bool_)
        if self._chosen is not None:
            chosen[np.flatnonzero(self._chosen)[mask]] = True
        return LakeRows(self._passes, self._reader, self._sizes, self._all, chosen)

    def repeated(self, fewest: int) -> list[int]:
        """Return the classes of which fewer than ``fewest`` rows differ."""
        labels, counts = np.unique(np.unique(self._keys)["label"], return_counts=True)
        return [int(label) for label, n in zip(labels, counts, strict=True) if n < fewest]

    def shown(self, terms: Terms, fewest: int) -> Shown:  # noqa: ARG002 - as of rows in memory
        """Return what says of how few rows a value is hidden."""
        return _ShownElsewhere(fewest)

    def measured(self, terms: Terms, shown: Shown) -> Statistics:
        """Return the statistics of these rows, without values that few of a class have."""
        fewest = shown.fewest
        if fewest > 1 and aimed_stages(self._reader.feature_map):
            raise PolicyError(
                "behind these terms' map rows are scaled around a chosen center, which may make few of them loud; "
                "files that are measured one by one cannot be looked at for that; leave --workers and "
                "--cluster out"
            )
        what: dict[str, Any] = {"terms": terms.digest, "rows": self.digest(), "fewest": fewest, "stages": 2}
        hides, first = hides_features(terms.spec.moments, fewest), hides_before(self._reader.feature_map)
        with self._passes.engine() as engine:
            before = self._rare(engine, what, terms, fewest, raw=True) if hides and first else None
            rare = self._rare(engine, what, terms, fewest, before=before) if hides else None
            plan = Measured(terms.spec, len(terms.classes), terms.dim, terms.seed, rare)
            files = zip(self._files(before), self._before(len(terms.classes)), strict=True)
            jobs = [partial(measured, rest, plan, counts) for rest, counts in files]
            total = self._passes.over(engine, "sums", {**what, "precision": plan.precision}, jobs, joined)
        self._passes.done("sums")
        for stage in _STAGES:
            self._passes.done(stage)
        if not total:
            return Accumulator(terms.spec, n_classes=len(terms.classes), dim=terms.dim, seed=terms.seed).statistics()
        return Accumulator.from_bytes(total).statistics()

    def _rare(
        self,
        engine: Any,
        what: Mapping[str, Any],
        terms: Terms,
        fewest: int,
        *,
        before: RareValues | None = None,
        raw: bool = False,
    ) -> RareValues:
        """Return the values of classes that few of their rows have, before the feature map (raw) or behind it."""
        y, n_classes = self.y, len(terms.classes)
        first = first_places(y, fewest)
        first += [np.zeros(0, np.int64)] * (n_classes - len(first))
        wanted = np.zeros(len(y), np.bool_)
        wanted[np.concatenate(first)] = True
        few = self.take(wanted)
        parts = [unpack_rows(fetched(rest)) for rest in few._files(before, raw=raw) if rest.asks]
        rows = np.concatenate(parts or [np.zeros((0, 0))])
        at = np.cumsum(wanted) - 1
        common = np.full((n_classes, self._reader.dim if raw else terms.dim), np.nan)
        for label, mine in enumerate(first):
            if len(mine):
                common[label] = common_values(rows[at[mine]], fewest)
        jobs = [partial(counted, rest, common) for rest in self._files(before, raw=raw)]
        differ = unpack_counts(self._passes.over(engine, _STAGES[not raw], what, jobs, added))
        return RareValues.of_counts(common, differ, np.bincount(y, minlength=n_classes), fewest)

    def _files(self, before: RareValues | None = None, *, raw: bool = False) -> list[Rest]:
        """Return of every file, which of its rows are chosen, and what is hidden before the feature map."""
        made = []
        for path, part in zip(self._passes.files, self._parts(), strict=True):
            mask = None if self._chosen is None or self._chosen[part].all() else np.packbits(self._chosen[part])
            bits = None if mask is None else mask.tobytes()
            made.append(Rest(str(path), self._reader, self._all[part].tobytes(), bits, before, raw))
        return made

    def _before(self, n_classes: int) -> list[Ints]:
        """Return of every file how many chosen rows of each class earlier files hold."""
        counts = np.zeros(n_classes, np.int64)
        found = []
        for part in self._parts():
            found.append(counts.copy())
            labels = self._all["label"][part]
            counts += np.bincount(labels if self._chosen is None else labels[self._chosen[part]], minlength=n_classes)
        return found

    def _parts(self) -> Iterator[slice]:
        ends = np.cumsum(self._sizes).tolist()
        return (slice(end - size, end) for end, size in zip(ends, self._sizes.tolist(), strict=True))


def surveyed_rows(passes: Passes, reader: FileReader, what: Mapping[str, Any]) -> tuple[LakeRows, int, Sequence[str]]:
    """Return all rows of a lake, how many more cannot be read, and the names of some of those.

    Parameters
    ----------
    passes, reader
        Over which files, and how each is read.
    what
        All that decides about the rows, beside the files.
    """
    with passes.engine() as engine:
        jobs = [partial(surveyed, str(file), reader) for file in passes.files]
        held, header = read_survey(passes.over(engine, "survey", what, jobs, chained))
    sizes = np.array(header["sizes"], np.int64) // SAMPLE_KEY.itemsize
    return LakeRows(passes, reader, sizes, held.view(SAMPLE_KEY)), header["unreadable"], header["names"]
