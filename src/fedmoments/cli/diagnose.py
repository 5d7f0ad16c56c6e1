"""``fedmoments diagnose``: whether the assumptions of Gaussian heads hold, for data or for statistics files."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import (
    BatchSize,
    Cache,
    ClientColumn,
    Device,
    DomainColumn,
    Domains,
    Encoder,
    ImageColumn,
    Json,
    LabelColumn,
    Pooling,
    Runtime,
    Size,
    Strict,
    TestShare,
    TextColumn,
    Threads,
    example,
    existing_file,
    results_folder,
)
from fedmoments.cli.output import plural, print_json, print_line, progress_bar
from fedmoments.errors import InputError

__all__ = ["diagnose_command"]

EXAMPLE = example("fedmoments diagnose runs/demo/digits.npz --clients 20 --split dirichlet:0.1 --out runs/diagnosis")


def diagnose_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("diagnose", cls=PlainCommand, short_help="Say whether assumptions hold.", epilog=EXAMPLE)(_diagnose)


def _diagnose(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data, as in 'fedmoments simulate' (digits, folder:PATH, csv:PATH, npz:PATH …), or statistics files "
            "that 'fedmoments measure' or 'merge' wrote."
        ),
    ] = None,
    *,
    encoder: Encoder = None,
    size: Size = None,
    pooling: Pooling = None,
    runtime: Runtime = None,
    device: Device = None,
    threads: Threads = None,
    batch_size: BatchSize = None,
    text: TextColumn = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    client: ClientColumn = None,
    domain: DomainColumn = None,
    domains: Domains = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="A second file, to test on. With statistics files: features (.npz) with x_test and y_test, for the "
            "accuracy of LDA."
        ),
    ] = None,
    test_share: TestShare = None,
    strict: Strict = None,
    clients: Annotated[
        int | None, typer.Option(help="Number of clients. By default 100, or what domain and id say.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="dirichlet:0.1, iid, … (see 'fedmoments split --help').")] = None,
    means_per_client: Annotated[int | None, typer.Option(help="Means that a client sends of each class.")] = None,
    project: Annotated[
        int | None, typer.Option(metavar="K", help="Measure behind a public random projection to K dimensions.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of 'fedmoments simulate'; options that are typed win.")
    ] = None,
    cache: Cache = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for report.html and diagnostics.json.")
    ] = None,
    json: Json = False,
) -> None:
    """Say whether the assumptions of Gaussian heads hold: shapes, covariances, Fisher directions, who holds what."""
    of_data: dict[str, Any] = {
        "encoder": encoder,
        "size": size,
        "pooling": pooling,
        "runtime": runtime,
        "device": device,
        "threads": threads,
        "batch_size": batch_size,
        "text": text,
        "image": image,
        "label": label,
        "client": client,
        "domain": domain,
        "domains": domains,
        "test_share": test_share,
        "strict": strict,
        "clients": None if clients is None else [clients],
        "splits": None if split is None else [split],
        "means_per_client": None if means_per_client is None else [means_per_client],
        "projections": None if project is None else [str(project)],
        "seed": seed,
    }
    given = {name: value for name, value in of_data.items() if value is not None}
    named = sources or []
    if out is not None:
        results_folder(out)
    if named and _are_statistics(named):
        _require_none({**given, **({"config": config} if config else {})}, named)
        found = _of_statistics([Path(source) for source in named], Path(test) if test else None, out)
    else:
        found = _of_data(named, {**given, **({"test": test} if test else {})}, config, out, cache)
    if json:
        print_json(found.document)
        return
    from fedmoments.cli.diagnosis_tables import show_diagnosis

    show_diagnosis(found)
    if found.files:
        print_line(f"wrote {', '.join(str(path) for path in found.files)}")


# ---------------------------------------------------------------------------------------------- data


def _of_data(
    sources: list[str], given: dict[str, Any], config: Path | None, out: Path | None, cache: Path | None
) -> Any:
    from fedmoments.jobs import JobConfig
    from fedmoments.jobs.diagnostics import diagnose_data

    if len(sources) > 1:
        raise InputError(f"one source of data is diagnosed at a time, or many statistics files; {len(sources)} arrived")
    if not sources and config is None:
        raise InputError("say what to diagnose: data (digits, folder:PATH, npz:PATH …) or statistics files")
    base = JobConfig.load(config) if config else JobConfig()
    job = base.changed({**given, **({"data": sources[0]} if sources else {})}, "the command line")
    with progress_bar("diagnosing") as progress:
        return diagnose_data(job, out, command=_typed(), cache_dir=cache, progress=progress)


def _typed() -> str:
    return shlex.join(["fedmoments", *sys.argv[1:]])


# ---------------------------------------------------------------------------------------------- statistics files


def _are_statistics(sources: list[str]) -> bool:
    """Return whether these are files of ours; one file among data sources is told apart by its header, not its name."""
    ours = [_is_ours(Path(source)) for source in sources]
    if any(ours) and not all(ours):
        other = sources[ours.index(False)]
        raise InputError(
            f"statistics files are diagnosed together, but {other} is none: give data alone, or files alone"
        )
    return all(ours)


def _is_ours(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return "fedmoments" in (file.metadata() or {})
    except SafetensorError:
        return False


def _require_none(given: dict[str, Any], sources: list[str]) -> None:
    """Refuse options of data beside statistics files."""
    if not given:
        return
    typed = {"splits": "split", "projections": "project"}
    options = ", ".join(f"--{typed.get(name, name)}".replace("_", "-") for name in given)
    raise InputError(f"{options}: only for data that are yet to be measured, but {sources[0]} was measured already")


def _of_statistics(paths: list[Path], test: Path | None, out: Path | None) -> Any:
    from fedmoments.cli.notes import contributions, map_of
    from fedmoments.diagnostics import diagnose
    from fedmoments.jobs.diagnostics import Diagnosis, diagnosis_document, write_diagnosis
    from fedmoments.statistics import Statistics

    parts = list(contributions(paths, whole=True))
    first = parts[0]
    stats = Statistics.merge(part.stats for part in parts)
    held_out = _held_out(test, first, map_of(first)) if test else None
    found = diagnose(stats, test=held_out)
    senders = sum(len(part.clients) for part in parts)
    name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {plural(len(paths) - 1, 'other file')}"
    data = {
        "name": name,
        "train": stats.n_samples,
        **({} if held_out is None else {"test": len(held_out[1])}),
        "dim": stats.dim,
        "classes": stats.n_classes,
        "class_names": first.class_names or [f"class {label}" for label in range(stats.n_classes)],
        "encoder": {"name": first.encoder} if first.encoder else {},
    }
    document = diagnosis_document(found, data, {"clients": senders}, command=_typed())
    if found.missing:
        document["diagnostics"]["measure"] = _measure_command(stats, found.missing, first)
    return Diagnosis(found, document, write_diagnosis(out, document) if out else [])


def _held_out(path: Path, first: Any, feature_map: Any) -> Any:
    """Return test samples of a features file, in the space that the statistics were measured in."""
    from fedmoments.simulation import load_features

    held_out = load_features(existing_file(path), ["test"], n_classes=first.stats.n_classes)
    if first.class_names and held_out.class_names and list(held_out.class_names) != first.class_names:
        raise InputError(f"{path} and {first.path} have different class names, or the same in another order")
    return (feature_map(held_out.test.X) if feature_map else held_out.test.X), held_out.test.y


def _measure_command(stats: Any, missing: tuple[str, ...], first: Any) -> str:
    """Return the command that would measure what is missing as well."""
    from fedmoments.statistics import StatisticsSpec

    spec = stats.spec | StatisticsSpec.of(*missing)
    moments = [name for name in spec.sent if name != "sums"]
    words = ["fedmoments", "measure", "FEATURES.npz", "--moments", ",".join(moments)]
    words += ["--means-per-client", str(spec.means_per_client)] if spec.means_per_client > 1 else []
    words += ["--client", "NAME", "--out", "FILE"]
    return " ".join(words) + (" and the same maps and seed as before" if first.feature_map else "")
