"""``fedmoments measure``: features, tables or samples → statistics file. Runs at the client."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.measure_lake import Lake
from fedmoments.cli.measure_ways import Way, Whose, form_of, measure_any
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_problems, readable_bytes
from fedmoments.cli.places import writable_place
from fedmoments.errors import InputError
from fedmoments.settings.measuring import MapSettings, MeasureSettings, RoundingSettings
from fedmoments.settings.samples import SampleSource

__all__ = ["measure", "spec_of"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedcof --head gh-lda --client clinic --out clinic.stats"
)


@command("measure", EXAMPLE)
def measure(
    data: Annotated[
        str,
        positional(
            help="Features file (.npz) with x_train and y_train; tables: parquet:FOLDER/, a folder, a file; or samples "
            "to encode: folder:PATH, hf:NAME …",
        ),
    ],
    *,
    asked: Annotated[MeasureSettings, Taken()],
    mapping: Annotated[MapSettings, Taken()],
    whose: Annotated[Whose, Taken()],
    lake: Annotated[Lake, Taken()],
    columns: Annotated[SampleSource, Taken(only=("text", "image", "domains", "table"))],
    out: Annotated[Path, typed("--out", "-o", help="Statistics file to write.")],
    rounding: Annotated[RoundingSettings, Taken()],
    json: Json = False,
) -> None:
    """Measure a client's training samples: the client sends the statistics file, never a sample."""
    from fedmoments.core.floats import precision
    from fedmoments.core.statistics import save_statistics

    place = writable_place(out)
    _require_targets(asked, lake)
    way = Way(spec_of(asked, mapping.fourier), asked, mapping, form_of(rounding))
    with precision(asked.precision):
        measured = measure_any(data, way, whose, lake, columns)
    stats, feature_map = measured.stats, measured.feature_map
    if set(stats.spec.sent) == {"client_means", "scatter_sketch"}:
        stats = stats.as_sent()
    notes = {
        "clients": [measured.client],
        "class_names": list(measured.class_names) or None,
        "feature_map": feature_map.describe() if feature_map else None,
        "encoder": measured.encoder,
        "targets": list(measured.targets),
        "columns": list(lake.features) if measured.targets else [],
    }
    save_statistics(place, stats, notes)
    if json:
        problems = [str(problem) for problem in measured.problems]
        document = {"client": measured.client, **_document(stats, notes), "problems": problems}
        print_json({"out": str(place), "bytes": place.stat().st_size, **document})
        return
    what = f"{len(stats.classes)} of {stats.n_classes} classes, d = {stats.dim}"
    if measured.targets:
        what = f"targets {', '.join(measured.targets)}, d = {stats.dim - len(measured.targets)}"
    print_line(f"client {measured.client}: {stats.n_samples:,} samples of {what}: {stats.spec}")
    if feature_map is not None:
        print_line(f"measured behind {feature_map}")
    print_problems(measured.problems, "all with --json")
    print_line(f"wrote {place} ({readable_bytes(place.stat().st_size)})")


def _require_targets(asked: MeasureSettings, lake: Lake) -> None:
    """Refuse heads for targets without targets, and heads for classes with them."""
    from fedmoments.core.heads.registry import TARGET_HEADS

    for name in asked.head:
        if (name in TARGET_HEADS) != bool(lake.targets):
            raise InputError(
                f"head '{name}' predicts targets: name their columns by --targets"
                if name in TARGET_HEADS
                else f"--targets are for {' and '.join(TARGET_HEADS)}, but '{name}' is a head for classes"
            )


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
        raise InputError("no moments to measure: give --head NAME (may be repeated), or --moments gram,client_means,…")
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
