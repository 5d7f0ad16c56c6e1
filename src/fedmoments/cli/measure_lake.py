"""``fedmoments measure LAKE/``: one client's many files, by processes of this machine or by a cluster."""

from dataclasses import dataclass
from typing import Any

from fedmoments.cli.output import progress_bar
from fedmoments.settings.option import option
from fedmoments.settings.samples import ByFile
from fedmoments.workers import workers_of

__all__ = ["Lake", "lake_dim", "measure_lake"]


@dataclass(frozen=True)
class Lake(ByFile):
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
    manifest: str | None = option(
        None, "Record progress in this file; the same command resumes from it (tables).", metavar="FILE"
    )


def measure_lake(place: str, lake: Lake, spec: Any, **options: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the statistics of all files, and the names of the classes."""
    from fedmoments.samples.lakes import class_names_of, measure_files

    names: tuple[str, ...] = ()
    if options.get("n_classes") is None and not lake.targets:
        names, options["n_classes"] = class_names_of(place, lake.label)
    with workers_of(lake.workers or 1, lake.cluster) as executor, progress_bar("measuring") as move:
        stats = measure_files(
            place, spec, executor=executor, class_names=names or None, label=lake.label,
            features=lake.features or None, targets=lake.targets, encoder=lake.encode, manifest=lake.manifest,
            progress=lambda done, total: move(done, total, "files"), **options,
        )  # fmt: skip
    return stats, names


def lake_dim(place: str, lake: Lake) -> int:
    """Return the dimension of the features, from the first rows of the first file."""
    from fedmoments.core.columns import Columns
    from fedmoments.samples.lakes.reading import files_of, table_batches

    if lake.encode is not None:
        from fedmoments.samples.encoders.registry import load_encoder

        return load_encoder(lake.encode).dim
    columns = Columns(label=lake.label, features=lake.features or None, targets=lake.targets)
    X, _ = next(iter(table_batches(files_of(place)[0], columns)))
    return int(X.shape[1])
