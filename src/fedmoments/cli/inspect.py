"""``fedmoments inspect``: what is in a file."""

from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_table, readable_bytes
from fedmoments.cli.places import existing_file
from fedmoments.errors import FileFormatError

__all__ = ["inspect"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedcof --client clinic --out clinic.stats",
    "fedmoments inspect clinic.stats",
)

#: Letters of a note's part in the table: digests are shown whole, what an encoder makes of the probe is not.
LONGEST = 64


@command("inspect", EXAMPLE)
def inspect(
    file: Annotated[Path, positional(help="A file that fedmoments wrote: statistics, classifier or split.")],
    *,
    json: Json = False,
) -> None:
    """Show what a file holds, after checking that it is sound (checksum, shapes, ranges)."""
    kind = _kind(existing_file(file))
    readers = {"statistics": _statistics, "classifier": _classifier, "split": _split}
    if kind not in readers:
        raise FileFormatError(f"{file} holds {kind!r}, which this command does not know: {', '.join(readers)}")
    contents = {"file": str(file), "kind": kind, "bytes": file.stat().st_size, **readers[kind](file)}
    if json:
        print_json(contents)
        return
    shown = {**contents, "bytes": readable_bytes(contents["bytes"]), "checksum": "sound"}
    print_table(["what", "value"], [[name.replace("_", " "), _text(value)] for name, value in shown.items()])


def _kind(path: Path) -> str:
    """Return what kind of file it says it is; the reader of that kind then checks everything else."""
    import json as json_module

    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            envelope = json_module.loads((file.metadata() or {}).get("fedmoments", "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a valid fedmoments file ({error})") from error
    if not isinstance(envelope, dict):
        raise FileFormatError(f"{path} is a safetensors file, but fedmoments did not write it")
    return str(envelope.get("kind"))


def _statistics(path: Path) -> dict[str, Any]:
    from fedmoments.cli.notes import Contribution

    part = Contribution(path)
    stats = part.stats
    from fedmoments.core.heads.registry import TARGET_HEADS

    counts = stats.class_counts
    return {
        "moments": list(stats.spec.sent),
        "means_per_client": stats.spec.means_per_client,
        "clients": part.clients,
        "samples": stats.n_samples,
        "dim": stats.dim,
        "classes": stats.n_classes,
        "classes_present": len(stats.classes),
        "fewest_of_a_class": int(counts.min()) if len(counts) else 0,
        "most_of_a_class": int(counts.max()) if len(counts) else 0,
        "mean_rows": len(stats.row_labels),
        "class_names": part.class_names,
        "feature_map": part.feature_map,
        "encoder": part.encoder,
        "targets": part.targets or None,
        "fixed_point": vars(stats.fixed_point) if stats.fixed_point else None,
        "fits_heads": list(TARGET_HEADS) if part.targets else _fitting(stats),
        "digest": stats.digest(),
    }


def _fitting(stats: Any) -> list[str]:
    """Return the heads that these statistics suffice for."""
    from fedmoments.core.heads import presets

    heads = {name: preset.make() for name, preset in presets().items()}
    return [
        name for name, head in heads.items() if head.suited(stats.spec).needs <= stats.spec and not head.has_own_map
    ]


def _classifier(path: Path) -> dict[str, Any]:
    from fedmoments.core.classifier import load

    classifier = load(path)
    absent = [name for name, there in zip(classifier.class_names, classifier.present, strict=True) if not there]
    return {
        "classifier": classifier.kind,
        "dim": classifier.dim,
        "classes": classifier.n_classes,
        "class_names": list(classifier.class_names),
        "never_predicted": absent,
        "feature_map": classifier.feature_map.describe() if classifier.feature_map else None,
        **{str(name): value for name, value in classifier.info.items()},
        "parameters": {name: list(array.shape) for name, array in classifier.arrays()},
        "digest": classifier.digest(),
    }


def _split(path: Path) -> dict[str, Any]:
    from fedmoments.core.observations.codec import to_plain
    from fedmoments.samples import Split

    split = Split.load(path)
    sizes = {name: value for name, value in to_plain(split.report()).items() if name != "seed"}
    return {**sizes, "names": list(split.names), "digest": split.digest()}


def _text(value: Any, most: int = 8) -> str:
    """Return a value on one line, long lists shortened."""
    if value is None or value in ([], ""):
        return "–"
    if isinstance(value, dict):
        return ", ".join(f"{name} {shorten(_text(inner), LONGEST, placeholder='…')}" for name, inner in value.items())
    if isinstance(value, list):
        more = f", … ({len(value):,} in all)" if len(value) > most else ""
        return ", ".join(_text(item) for item in value[:most]) + more
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
