"""The holdings of a client whose lake is measured file by file."""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.columns import Columns
from fedmoments.core.maps import table_of
from fedmoments.errors import InputError
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.lake.passes import Passes
from fedmoments.federation.lake.reader import FileReader
from fedmoments.federation.lake.rows import surveyed_rows
from fedmoments.federation.own_data import alone_test, own_classes, reading_own
from fedmoments.federation.own_memory import require_nothing_remembered
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders.registry import require_trusted
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.samples.lakes.lake import LakeFiles
from fedmoments.samples.reading import choose_encoder
from fedmoments.samples.samples import Samples
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.samples import SampleSource

__all__ = ["LakeHoldings"]


class LakeHoldings(Holdings):
    """What :class:`~fedmoments.federation.flower.holdings.Holdings` is for data in memory; tests are in a second file.

    Parameters
    ----------
    settings, terms
        As there.
    """

    def __init__(self, settings: ClientSettings, terms: Terms) -> None:
        self._settings, self.terms = settings, terms
        self.clients = (settings.name,)
        self.unreadable = [(), ()]
        if table_of(terms.map_or_none) is not None:
            raise InputError(
                "rows of a raw table are coded by what all rows of a class share, so they are measured in memory: "
                "leave --workers and --cluster out"
            )
        with reading_own():
            require_nothing_remembered(settings)
            own = own_classes(settings, terms)
            self.unknown: Mapping[str, int] = own.unknown
            name, options = str(terms.encoder["name"]), dict(terms.encoder["options"])
            require_trusted(name, settings.trust, "the federation's terms")
            files = LakeFiles(settings)
            given = files.dim if name == "identity" else None
            encoding = settings.with_encoder(name, **options)
            self._encoder = choose_encoder(encoding, "features" if given else "", given)
            here = Fingerprint.of(self._encoder, terms.fingerprint.feature_map, terms.classes)
            terms.fingerprint.require_same(here, ours="the federation's terms", theirs="this client")
            columns = files.columns if given else Columns(files.label)
            source = SampleSource(**{each.name: getattr(settings, each.name) for each in fields(SampleSource)})
            reader = FileReader(
                columns,
                dict(zip(own.names, own.labels.tolist(), strict=True)),
                self._encoder.dim,
                None if given else source,
                encoding,
                terms.map_or_none,
            )
            place = settings.memory or settings.folder
            passes = Passes(files.files, workers=settings.workers, cluster=settings.cluster, folder=place)
            words = [repr(each) for each in (columns, reader.source, name, sorted(options.items()))]
            what = {"classes": reader.labels, "read": words}
            self._rows, lost, names = surveyed_rows(passes, reader, what)
            if not len(self._rows.y):
                raise InputError(f"{settings.data} holds no row of an agreed class to measure")
        self.unreadable[0] = tuple(names) + ("…",) * (lost - len(names))
        self._tests: Held | None = None

    def samples(self, *, test: bool = False) -> Samples:  # noqa: ARG002 - as of data in memory
        """Refuse: samples never stand together."""
        return self._rows.X  # type: ignore[no-any-return]

    def rows(self, client: str, *, test: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ARG002
        """Refuse: samples never stand together."""
        return self._rows.X  # type: ignore[no-any-return]

    def _held(self, client: str, part: int) -> Held:
        if not part:
            return self._rows
        if self._tests is None and self._settings.test is not None:
            self._tests = Holdings(alone_test(self._settings), self.terms).train(client)
        return self._tests or Held(np.zeros((0, self._encoder.dim), np.float32), np.zeros(0, np.int64))
