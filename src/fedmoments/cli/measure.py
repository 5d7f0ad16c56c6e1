"""``fedmoments measure``: features file → statistics file. Runs at the client."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.measure_lake import Lake, lake_dim, lake_of, measure_lake
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, readable_bytes
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.errors import InputError
from fedmoments.settings.measuring import MapSettings, MeasureSettings, RoundingSettings

if TYPE_CHECKING:
    from fedmoments.core.statistics import FixedPoint

__all__ = ["measure", "spec_of", "stacked_map"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedcof --head gh-lda --client clinic --out clinic.stats"
)


@command("measure", EXAMPLE)
def measure(
    features: Annotated[
        str,
        positional(
            help="Features file (.npz) with x_train and y_train; or tables: parquet:FOLDER/, a folder, a file.",
        ),
    ],
    asked: Annotated[MeasureSettings, Taken()],
    lake: Annotated[Lake, Taken()],
    mapping: Annotated[MapSettings, Taken()],
    rounding: Annotated[RoundingSettings, Taken()],
    *,
    out: Annotated[Path, typed("--out", "-o", help="Statistics file to write.")],
    client: Annotated[
        str | None, typed(help="Name of this client; the file's name by default. With --split: whose samples.")
    ] = None,
    split: Annotated[Path | None, typed(help="Split file: measure the samples of --client alone.")] = None,
    n_classes: Annotated[
        int | None, typed(help="Number of classes, the same at every client, if the file does not name them.")
    ] = None,
    encoder: Annotated[str | None, typed(help="Which encoder made the features; compared on merging.")] = None,
    json: Json = False,
) -> None:
    """Measure a client's training features: what leaves the client is the statistics file, never a sample."""
    from fedmoments.core.statistics import save_statistics

    place = writable_place(out)
    wanted = _Wanted(asked, mapping, _form_of(rounding), spec_of(asked, mapping.fourier), n_classes)
    table = lake_of(features)
    if table is None:
        found = _of_file(features, wanted, lake, client, split)
    else:
        found = _of_tables(table, wanted, lake, client, split)
    stats = found.stats.as_sent() if set(found.stats.spec.sent) == {"client_means", "scatter_sketch"} else found.stats
    notes = found.notes(encoder or (lake.encode if table is not None else None))
    save_statistics(place, stats, notes)
    if json:
        print_json(
            {"out": str(place), "bytes": place.stat().st_size, "client": found.client, **_document(stats, notes)}
        )
        return
    print_line(
        f"client {found.client}: {stats.n_samples:,} samples of {len(stats.classes)} of {stats.n_classes} classes, "
        f"d = {stats.dim}: {stats.spec}"
    )
    if found.feature_map is not None:
        print_line(f"measured behind {found.feature_map}")
    print_line(f"wrote {place} ({readable_bytes(place.stat().st_size)})")


@dataclass(frozen=True)
class _Wanted:
    """All that was typed of what to measure, whatever is read."""

    asked: MeasureSettings
    mapping: MapSettings
    form: "FixedPoint | None"
    spec: Any
    n_classes: int | None

    def map_of(self, dim: int, first: Any) -> Any:
        """Return the map of features of some dimension, behind a map that comes first."""
        return stacked_map(dim, first=first, project=self.asked.project, **vars(self.mapping))


@dataclass(frozen=True)
class _Found:
    """What was measured, of whom and behind which map."""

    client: str
    stats: Any
    class_names: tuple[str, ...]
    feature_map: Any

    def notes(self, encoder: str | None) -> dict[str, Any]:
        """Return what a statistics file says beside its sums."""
        return {
            "clients": [self.client],
            "class_names": list(self.class_names) or None,
            "feature_map": self.feature_map.describe() if self.feature_map else None,
            "encoder": encoder,
        }


def _of_tables(table: str, wanted: _Wanted, lake: Lake, client: str | None, split: Path | None) -> _Found:
    """Measure tables file by file."""
    from fedmoments.core.maps.power import named_map

    if split is not None or wanted.asked.feature_map == "auto":
        raise InputError("--split and --map auto look at one features file; tables are measured file by file")
    feature_map = wanted.map_of(lake_dim(table, lake), named_map(wanted.asked.feature_map))
    stats, class_names = measure_lake(
        table, lake, wanted.spec, n_classes=wanted.n_classes, feature_map=feature_map, seed=wanted.mapping.seed,
        fixed_point=wanted.form,
    )  # fmt: skip
    return _Found(client or Path(table).stem or "client", stats, class_names, feature_map)


def _of_file(features: str, wanted: _Wanted, lake: Lake, client: str | None, split: Path | None) -> _Found:
    """Measure the training samples of a features file, or one client's share of them."""
    from fedmoments.samples.feature_maps import chosen_map
    from fedmoments.samples.features import load_features

    if lake != Lake():
        raise InputError(
            f"--label, --features, --encode, --workers, --cluster and --manifest are for tables, not {features}"
        )
    file = existing_file(Path(features))
    loaded = load_features(file, ["train"], n_classes=wanted.n_classes)
    name, chosen = _whose(split, client, file, len(loaded.train))
    first = chosen_map(wanted.asked.feature_map, (), "identity", loaded.train.X[chosen], loaded.train.y[chosen])
    feature_map = wanted.map_of(loaded.dim, first)
    stats = _measured(loaded, chosen, wanted.spec, feature_map, wanted.mapping.seed)
    return _Found(name, stats.quantized(wanted.form) if wanted.form else stats, loaded.class_names, feature_map)


def _document(stats: Any, notes: dict[str, Any]) -> dict[str, Any]:
    return {
        "moments": list(stats.spec.sent),
        "samples": stats.n_samples,
        "dim": stats.dim,
        "classes": stats.n_classes,
        "classes_present": len(stats.classes),
        "rows": len(stats.row_labels),
        "feature_map": notes["feature_map"],
        "fixed_point": vars(stats.fixed_point) if stats.fixed_point else None,
    }


def spec_of(asked: MeasureSettings, mapped: int | None = None) -> Any:
    """Return what to measure: the least that serves some heads, and some moments; sketches within a budget.

    Parameters
    ----------
    asked
        As it was typed.
    mapped
        Dimensions behind a feature map that all clients agree on; None: there is none.
    """
    from fedmoments.core.statistics import SketchPlan, StatisticsSpec

    if not asked.head and not asked.moments:
        raise InputError("say what to measure: --head NAME (may be repeated), or --moments gram,client_means,…")
    spec = StatisticsSpec.of(*asked.moments)
    for name in asked.head:
        spec = spec | _needs_of(name, mapped)
    several, budget = asked.means_per_client, asked.budget
    if several != 1:
        if spec.has_sketch:
            raise InputError(
                f"--means-per-client {several}: a scatter sketch travels with one mean a class, which its budget "
                "counts: leave it out, or measure what needs several means on its own"
            )
        spec = StatisticsSpec(spec.moments, several)
    if budget is not None and not spec.has_sketch:
        raise InputError(
            f"a budget is spent on a scatter sketch, but {spec} is all that is measured: add --head sketch, or leave "
            "--budget out"
        )
    return spec.with_plan(SketchPlan(budget or "means", rows="automatic")) if spec.has_sketch else spec


def _needs_of(name: str, mapped: int | None) -> Any:
    """Return what a head needs; one with a map of its own needs that all clients have agreed on it."""
    from fedmoments.core.heads import make_head
    from fedmoments.study.simulation.methods import require_head

    require_head(name)
    head = make_head(name)
    if head.has_own_map and mapped is None:
        raise InputError(
            f"head '{name}' is fitted behind random Fourier features, on which all clients must agree: "
            "give --fourier D and --bandwidth SIGMA"
        )
    return head.needs


def _form_of(rounding: RoundingSettings) -> "FixedPoint | None":
    """Return the form of the sums; None: floats."""
    from fedmoments.core.statistics import FixedPoint

    given = {"norm_bound": rounding.norm_bound, "max_samples": rounding.max_samples}
    bounds: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if bounds and not rounding.fixed_point:
        raise InputError("--norm-bound and --max-samples belong to --fixed-point, which was not given")
    return FixedPoint(**bounds) if rounding.fixed_point else None


def stacked_map(
    dim: int,
    *,
    first: Any,
    normalize: bool,
    project: int | None,
    fourier: int | None,
    bandwidth: float | None,
    seed: int,
) -> Any:
    """Return the maps that were typed, one after the other; None where there is none.

    Parameters
    ----------
    dim
        Dimensions before all of them.
    first, normalize, project, fourier, bandwidth, seed
        A map that comes first, and as the options say.
    """
    from fedmoments.core.maps import FeatureMap, Normalize, RandomFourier, compose
    from fedmoments.study.simulation.methods import make_projection

    if (fourier is None) != (bandwidth is None):
        raise InputError("--fourier and --bandwidth belong together: give both or none")
    maps: list[FeatureMap] = ([first] if first else []) + ([Normalize()] if normalize else [])
    projection = make_projection(project, dim, seed, without="leave --project out")
    if projection is not None:
        maps.append(projection)
        dim = projection.n_components
    if fourier is not None and bandwidth is not None:
        maps.append(RandomFourier(dim, fourier, bandwidth, seed))
    return compose(*maps) if maps else None


def _whose(split: Path | None, client: str | None, features: Path, n_samples: int) -> tuple[str, Any]:
    """Return the client's name and the numbers of its samples."""
    import numpy as np

    from fedmoments.samples import Split

    if split is None:
        return client or features.stem, np.arange(n_samples)
    division = Split.load(existing_file(split))
    if len(division.clients) != n_samples:
        raise InputError(f"{split} splits {len(division.clients)} samples, but {features} has {n_samples}")
    names = division.names or tuple(str(number) for number in range(division.n_clients))
    if client not in names:
        raise InputError(
            f"--client must be one of the {len(names)} clients of {split} ({names[0]} … {names[-1]}), not {client}"
        )
    return client, division.indices(names.index(client))


def _measured(features: Any, chosen: Any, spec: Any, feature_map: Any, seed: int) -> Any:
    """Measure a block of samples at a time: all of them mapped may be large."""
    from fedmoments.core.linalg import blocks
    from fedmoments.core.statistics import Accumulator

    dim = feature_map.output_dim(features.dim) if feature_map else features.dim
    accumulator = Accumulator(spec, n_classes=features.n_classes, dim=dim, seed=seed)
    for block in blocks(len(chosen)):
        X = features.train.X[chosen[block]]
        accumulator.update(feature_map(X) if feature_map else X, features.train.y[chosen[block]])
    return accumulator.statistics()
