"""From what a person typed to one client's statistics: a features file, tables, or samples that are encoded first."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmoments.cli.encode import encoded_source
from fedmoments.cli.measure_lake import Lake, lake_dim, measure_lake
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.samples.lakes.lake import lake_of
from fedmoments.settings.measuring import MapSettings, MeasureSettings, RoundingSettings
from fedmoments.settings.option import option
from fedmoments.settings.samples import Encoding, SampleSource

if TYPE_CHECKING:
    from fedmoments.core.statistics import FixedPoint

__all__ = ["Measured", "Way", "Whose", "form_of", "measure_any"]


@dataclass(frozen=True)
class Whose:
    """Whose samples are measured, and what is said of them."""

    client: str | None = option(
        None, "Name of this client; the file's name by default. With --split: the client to measure."
    )
    split: str | None = option(None, "Split file: measure only the samples of --client.", metavar="FILE")
    n_classes: int | None = option(
        None, "Number of classes, the same at every client, if the file does not name them.", metavar="N"
    )
    encoder: str | None = option(None, "Which encoder made the features; compared on merging.")


@dataclass(frozen=True)
class Way:
    """How samples are measured: which moments, behind which maps, in which form."""

    spec: Any
    asked: MeasureSettings
    mapping: MapSettings
    form: "FixedPoint | None"

    def behind(self, dim: int, first: Any) -> Any:
        """Return all maps, one after the other; None where there is none.

        Parameters
        ----------
        dim
            Dimensions of the features.
        first
            The map that comes first, found from its name.
        """
        from fedmoments.samples.feature_maps import stacked_map

        return stacked_map(dim, first=first, project=self.asked.project, **vars(self.mapping))


def form_of(rounding: RoundingSettings) -> "FixedPoint | None":
    """Return the form of the sums; None: floats."""
    from fedmoments.core.statistics import FixedPoint

    given = {"norm_bound": rounding.norm_bound, "max_samples": rounding.max_samples}
    bounds: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if bounds and not rounding.fixed_point:
        raise InputError("--norm-bound and --max-samples belong to --fixed-point, which was not given")
    return FixedPoint(**bounds) if rounding.fixed_point else None


@dataclass(frozen=True)
class Measured:
    """One client's statistics, and what is noted beside them."""

    client: str
    stats: Any
    class_names: tuple[str, ...]
    feature_map: Any
    encoder: str | dict[str, Any] | None
    targets: tuple[str, ...] = ()
    problems: tuple[Any, ...] = ()


def measure_any(data: str, way: Way, whose: Whose, lake: Lake, columns: SampleSource) -> Measured:
    """Measure what a person typed.

    Parameters
    ----------
    data
        A features file, tables, or any data source.
    way, whose
        How it is measured, and what is said of it.
    lake, columns
        How tables and samples are read.
    """
    if data.startswith("npz:") and lake.encode is None:  # features, as a path alone; images need an encoder
        data = data.removeprefix("npz:")
    if columns.table is not None:
        return _of_raw_table(replace(columns, data=data), way, whose, lake)
    tables = data if lake.targets else lake_of(data)
    if tables is None and _names_samples(data):
        return _of_samples(replace(columns, data=data), way, whose, lake)
    if columns != SampleSource():
        raise InputError(f"--text, --image and --domains are for samples that are encoded first, not for {data}")
    if tables is not None:
        return _of_tables(tables, way, whose, lake)
    if lake != Lake():
        raise InputError(
            f"--label, --features, --encode, --workers, --cluster and --manifest are for tables, not {data}"
        )
    return _of_file(existing_file(Path(data)), way, whose)


def _of_raw_table(source: SampleSource, way: Way, whose: Whose, lake: Lake) -> Measured:
    """Measure all rows of a raw table behind the map that all clients agreed on."""
    import numpy as np

    from fedmoments.samples.raw_tables import is_draft
    from fedmoments.samples.reading import read_data

    if lake != Lake(label=lake.label, features=lake.features) or whose != Whose(client=whose.client):
        raise InputError("a raw table (--table) is measured whole: leave out what is for features and other tables")
    if is_draft(source.table):
        raise InputError(
            "all clients measure behind the same table: write a draft by 'fedmoments table', agree on it, and give "
            "that file to --table"
        )
    label, features = None if lake.label == Lake().label else lake.label, ",".join(lake.features) or None
    data = read_data(replace(source, label=label, features=features, test_share=0.0))
    train = data.train
    every = np.arange(len(train))
    stats, feature_map = _sums(train.items, train.labels, every, len(data.class_names), way, table=data.table)
    name = whose.client or Path(source.data.partition(":")[2] or source.data).stem
    return Measured(name, stats, data.class_names, feature_map, None, problems=data.problems)


def _names_samples(data: str) -> bool:
    """Say whether a text names a data source, rather than a features file."""
    from fedmoments.samples.sources.registry import sources

    prefix, colon, _ = data.partition(":")
    known = sources()
    return Path(data).expanduser().is_dir() or (prefix in known and bool(colon or not known[prefix].argument))


def _of_tables(place: str, way: Way, whose: Whose, lake: Lake) -> Measured:
    from fedmoments.core.maps.power import named_map

    if whose.split is not None or way.asked.feature_map == "auto":
        raise InputError("--split and --map auto look at one features file; tables are measured file by file")
    feature_map = way.behind(lake_dim(place, lake), named_map(way.asked.feature_map))
    stats, class_names = measure_lake(
        place, lake, way.spec, n_classes=whose.n_classes, feature_map=feature_map, seed=way.mapping.seed,
        fixed_point=way.form,
    )  # fmt: skip
    return Measured(
        whose.client or Path(place).stem or "client", stats, class_names, feature_map, whose.encoder or lake.encode,
        lake.targets,
    )  # fmt: skip


def _of_file(file: Path, way: Way, whose: Whose) -> Measured:
    from fedmoments.samples.features import load_features

    loaded = load_features(file, ["train"], n_classes=whose.n_classes)
    name, chosen = _client(whose, file, len(loaded.train))
    noted = loaded.encoder
    if noted is not None and whose.encoder not in {None, noted["name"]}:
        raise InputError(f"{file} says that the encoder {noted['name']} made its features: leave --encoder out")
    stats, feature_map = _sums(loaded.train.X, loaded.train.y, chosen, loaded.n_classes, way)
    return Measured(name, stats, tuple(loaded.class_names), feature_map, noted or whose.encoder)


def _of_samples(source: SampleSource, way: Way, whose: Whose, lake: Lake) -> Measured:
    """Encode all samples to train on, and measure them."""
    import numpy as np

    if lake != Lake(label=lake.label, encode=lake.encode):
        raise InputError(f"--features, --workers, --cluster and --manifest are for tables, not {source.data}")
    if whose != Whose(client=whose.client):
        raise InputError(
            f"--split, --n-classes and --encoder are for features that are given; {source.data} is encoded here: name "
            "the encoder by --encode, or write features by 'fedmoments encode' first"
        )
    column = None if lake.label == Lake().label else lake.label
    parts, _, note = encoded_source(replace(source, label=column), Encoding(lake.encode))
    train = parts["train"]
    stats, feature_map = _sums(train.features, train.labels, np.arange(len(train)), len(train.class_names), way)
    name = whose.client or Path(source.data.partition(":")[2] or source.data).stem
    return Measured(name, stats, train.class_names, feature_map, note, problems=train.problems)


def _sums(X: Any, y: Any, chosen: Any, n_classes: int, way: Way, *, table: Any = None) -> tuple[Any, Any]:
    """Return statistics of the chosen samples, a block at a time (all of them mapped may be large), and the map."""
    from fedmoments.core.linalg import blocks
    from fedmoments.core.statistics import Accumulator
    from fedmoments.samples.feature_maps import chosen_map

    first = chosen_map(way.asked.feature_map, (), "identity", X[chosen], y[chosen], table=table)
    feature_map = way.behind(X.shape[1], first)
    dim = feature_map.output_dim(X.shape[1]) if feature_map else X.shape[1]
    accumulator = Accumulator(way.spec, n_classes=n_classes, dim=dim, seed=way.mapping.seed)
    for block in blocks(len(chosen)):
        rows = X[chosen[block]]
        accumulator.update(feature_map(rows) if feature_map else rows, y[chosen[block]])
    stats = accumulator.statistics()
    return (stats.quantized(way.form) if way.form else stats), feature_map


def _client(whose: Whose, features: Path, n_samples: int) -> tuple[str, Any]:
    """Return the client's name and the numbers of its samples."""
    import numpy as np

    from fedmoments.samples import Split

    if whose.split is None:
        return whose.client or features.stem, np.arange(n_samples)
    split, client = Path(whose.split), whose.client
    division = Split.load(existing_file(split))
    if len(division.clients) != n_samples:
        raise InputError(f"{split} splits {len(division.clients)} samples, but {features} has {n_samples}")
    names = division.names or tuple(str(number) for number in range(division.n_clients))
    if client not in names:
        raise InputError(
            f"--client must be one of the {len(names)} clients of {split} ({names[0]} … {names[-1]}), not {client}"
        )
    return client, division.indices(names.index(client))
