"""Statistics as bytes for a row of the ledger: the file that they would be saved as."""

import tempfile
from pathlib import Path

from fedmoments.statistics import Statistics
from fedmoments.statistics.files import load_statistics, save_statistics

__all__ = ["pack_statistics", "unpack_statistics"]


def pack_statistics(stats: Statistics) -> bytes:
    """Return statistics as the bytes of their file.

    Examples
    --------
    >>> from fedmoments.statistics import StatisticsSpec
    >>> stats = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("gram"), n_classes=2)
    >>> unpack_statistics(pack_statistics(stats)) == stats
    True
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "statistics")
        save_statistics(path, stats)
        return path.read_bytes()


def unpack_statistics(data: bytes) -> Statistics:
    """Read what :func:`pack_statistics` returned, checking that it is sound."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "statistics")
        path.write_bytes(data)
        return load_statistics(path)[0]
