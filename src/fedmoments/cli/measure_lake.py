"""``fedmoments measure LAKE/``: one client's many files, by processes of this machine or by a cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmoments.cli.output import progress_bar
from fedmoments.settings.option import option
from fedmoments.workers import workers_of

__all__ = ["Lake", "lake_dim", "lake_of", "measure_lake"]

PREFIXES = ("parquet:", "arrow:", "csv:")


@dataclass(frozen=True)
class Lake:
    """How files of tables are read, and by whom."""

    label: str = option("label", "Column of labels (tables).", metavar="COLUMN")
    features: tuple[str, ...] = option(
        (),
        'Feature columns: a,b,c or "emb*", or one column of vectors; all other columns of numbers by default (tables).',
        metavar="COLUMN,…",
    )
    targets: tuple[str, ...] = option(
        (),
        "Columns of numbers to predict, instead of labels (ridge-regression, multi-label); of an .npz, names for the "
        "columns of y_train.",
        metavar="COLUMN,…",
    )
    encode: str | None = option(
        None, "First encode samples, or the column --features of tables, with this encoder.", metavar="ENCODER"
    )
    workers: int = option(1, "Number of local processes that measure files (tables).", metavar="N")
    cluster: str | None = option(
        None, "A Dask scheduler, tcp://… or tls://…, whose workers measure files (tables).", metavar="ADDRESS"
    )
    manifest: str | None = option(
        None, "Record progress in this file; the same command resumes from it (tables).", metavar="FILE"
    )


def lake_of(text: str) -> str | None:
    """Return the path of tables that a text names, or None where it names a features file or samples.

    Examples
    --------
    >>> lake_of("parquet:lake/"), lake_of("part.parquet"), lake_of("features.npz")
    ('lake/', 'part.parquet', None)
    """
    from fedmoments.samples.lakes.reading import ENDINGS, tables_in

    for prefix in PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    path = Path(text).expanduser()
    if path.is_dir():  # one without tables holds samples
        return text if tables_in(path) else None
    return text if path.suffix.lower() in set(ENDINGS) - {".npz"} else None


def measure_lake(place: str, lake: Lake, spec: Any, **options: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the statistics of all files, and the names of the classes."""
    from fedmoments.samples.lakes import class_names_of, measure_files

    names: tuple[str, ...] = ()
    if options.get("n_classes") is None and not lake.targets:
        names, options["n_classes"] = class_names_of(place, lake.label)
    with workers_of(lake.workers, lake.cluster) as executor, progress_bar("measuring") as move:
        stats = measure_files(
            place, spec, executor=executor, class_names=names or None, label=lake.label,
            features=lake.features or None, targets=lake.targets, encoder=lake.encode, manifest=lake.manifest,
            progress=lambda done, total: move(done, total, "files"), **options,
        )  # fmt: skip
    return stats, names


def lake_dim(place: str, lake: Lake) -> int:
    """Return the dimension of the features, from the first rows of the first file."""
    from fedmoments.core.parties import Columns
    from fedmoments.samples.lakes.reading import files_of, table_batches

    if lake.encode is not None:
        from fedmoments.samples.encoders.registry import load_encoder

        return load_encoder(lake.encode).dim
    columns = Columns(label=lake.label, features=lake.features or None, targets=lake.targets)
    X, _ = next(iter(table_batches(files_of(place)[0], columns)))
    return int(X.shape[1])
