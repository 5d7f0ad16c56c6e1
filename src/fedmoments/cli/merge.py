"""``fedmoments merge``: statistics files → one."""

from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line, readable_bytes
from fedmoments.cli.places import writable_place
from fedmoments.errors import InputError

__all__ = ["merge"]

EXAMPLE = example(
    "fedmoments split runs/demo/digits.npz --clients 2 --split iid --out two.split",
    "fedmoments measure runs/demo/digits.npz --split two.split --client 0 --head fedcof --out 0.stats",
    "fedmoments measure runs/demo/digits.npz --split two.split --client 1 --head fedcof --out 1.stats",
    "fedmoments merge 0.stats 1.stats --out both.stats",
)


@command("merge", EXAMPLE)
def merge(
    files: Annotated[list[Path], positional(help="Statistics files of different clients.")],
    *,
    out: Annotated[Path, typed("--out", "-o", help="Statistics file to write.")],
    pool: Annotated[
        bool,
        typed(
            "--pool",
            help="Drop client means: a smaller file without per-client values; heads on free covariances cannot be "
            "fitted.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Merge statistics of different clients; files measured in different ways are refused, and named."""
    from fedmoments.cli.notes import contributions
    from fedmoments.core.statistics import Statistics, save_statistics

    place = writable_place(out)
    parts = list(contributions(files, whole=True))
    if not parts:
        raise InputError("there is nothing to merge: give at least one statistics file")
    # Pooling first keeps memory small.
    merged = Statistics.merge(p.stats.restricted(p.stats.spec.additive) if pool else p.stats for p in parts)
    clients = [name for part in parts for name in part.clients]
    save_statistics(place, merged, parts[0].notes(clients))
    size = place.stat().st_size
    if json:
        print_json(
            {
                "out": str(place),
                "bytes": size,
                "files": len(parts),
                "clients": clients,
                "moments": list(merged.spec.sent),
                "samples": merged.n_samples,
                "rows": len(merged.row_labels),
            }
        )
        return
    print_line(
        f"{plural(len(parts), 'file')}, {plural(len(clients), 'client')}: {merged.n_samples:,} samples of "
        f"{len(merged.classes)} of {merged.n_classes} classes, {merged.spec}"
    )
    print_line(f"wrote {place} ({readable_bytes(size)})")
