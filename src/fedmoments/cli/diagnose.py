"""``fedmoments diagnose``: whether the assumptions of Gaussian heads hold, for data or for statistics files."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import OF_CREWS, Json, example, typed_command
from fedmoments.cli.output import plural, print_files, print_json, progress_bar
from fedmoments.cli.places import existing_file, results_folder
from fedmoments.errors import InputError
from fedmoments.settings.study import StudySettings

__all__ = ["diagnose"]

#: Settings of a study that have nothing to do with what is diagnosed.
OF_HEADS = (
    "data", "heads", "hyper", "shrinkages", "budgets", "budget_curve", "participation", "privacy", "seeds",
    "memory_limit", *OF_CREWS,
)  # fmt: skip
EXAMPLE = example("fedmoments diagnose runs/demo/digits.npz --clients 20 --split dirichlet:0.1 --out runs/diagnosis")


@command("diagnose", EXAMPLE)
def diagnose(
    sources: Annotated[
        list[str] | None,
        positional(
            help="Data, as in 'fedmoments simulate' (digits, folder:PATH, csv:PATH, npz:PATH …), or statistics files "
            "that 'fedmoments measure' or 'merge' wrote."
        ),
    ] = None,
    *,
    study: Annotated[
        Given[StudySettings],
        Taken(
            without=OF_HEADS,
            help={
                "test": "A second file, to test on. With statistics files: features (.npz) with x_test and y_test, to "
                "measure the accuracy of LDA.",
                "clients": "Number of clients.",
                "splits": "dirichlet:0.1, iid, … (see 'fedmoments split --help').",
                "means_per_client": "Means that a client sends per class.",
                "projections": "Apply a public random projection to K dimensions before measuring.",
            },
            file=True,
        ),
    ],
    config: Annotated[
        Path | None, typed(help="TOML file of 'fedmoments simulate'; options on the command line win.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None, typed("--out", "-o", help="Folder for report.html and diagnostics.json.", common=6)
    ] = None,
    json: Json = False,
) -> None:
    """Check the assumptions of Gaussian heads: shapes, covariances, Fisher directions, who holds what."""
    named = sources or []
    results_folder(out)
    if named and _are_statistics(named):
        _require_none([name for name in study.names if name != "--test"] + (["--config"] if config else []), named)
        test = study.values.get("test")
        diagnosis = _of_statistics([Path(source) for source in named], Path(test) if test else None, out)
    else:
        diagnosis = _of_data(named, study, out)
    if json:
        print_json(diagnosis.document)
        return
    from fedmoments.cli.diagnosis_tables import show_diagnosis

    show_diagnosis(diagnosis.report)
    print_files(diagnosis.files)


# ---------------------------------------------------------------------------------------------- data


def _of_data(sources: list[str], given: Given[StudySettings], out: Path | None) -> Any:
    from fedmoments.study.jobs.diagnostics import diagnose_data

    if len(sources) > 1:
        raise InputError(f"one source of data is diagnosed at a time, or many statistics files; {len(sources)} arrived")
    if not sources and given.base is None:
        raise InputError("nothing to diagnose: give data (digits, folder:PATH, npz:PATH …) or statistics files")
    study = given.build(**({"data": sources[0]} if sources else {}))
    with progress_bar("diagnosing") as progress:
        return diagnose_data(study, out, command=typed_command(), cache_dir=study.cache, progress=progress)


# ---------------------------------------------------------------------------------------------- statistics files


def _are_statistics(sources: list[str]) -> bool:
    """Return whether these are statistics files; the header decides, not the name."""
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


def _require_none(names: list[str], sources: list[str]) -> None:
    """Refuse options of data beside statistics files."""
    if names:
        raise InputError(
            f"{', '.join(names)}: only for data that are yet to be measured, but {sources[0]} was measured already"
        )


def _of_statistics(paths: list[Path], test: Path | None, out: Path | None) -> Any:
    from fedmoments.cli.notes import contributions, map_of
    from fedmoments.core.diagnostics import diagnose
    from fedmoments.core.observations import Report
    from fedmoments.core.observations.parts import Diagnosis
    from fedmoments.core.statistics import Statistics
    from fedmoments.study.jobs.diagnostics import DiagnosisResult, write_diagnosis

    parts = list(contributions(paths, whole=True))
    first = parts[0]
    stats = Statistics.merge(part.stats for part in parts)
    held_out = _held_out(test, first, map_of(first)) if test else None
    diagnostics = diagnose(stats, test=held_out)
    senders = sum(len(part.clients) for part in parts)
    measure = _measure_command(stats, diagnostics.missing, first) if diagnostics.missing else None
    report = Report(
        data=replace(_about(stats, first), name=_several(paths), test=None if held_out is None else len(held_out[1])),
        diagnosis=Diagnosis(senders, measure=measure, diagnostics=diagnostics),
        bias=diagnostics.bias,
        command=typed_command(),
    )
    return DiagnosisResult(report, write_diagnosis(out, report) if out else [])


def _several(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {plural(len(paths) - 1, 'other file')}"


def _about(stats: Any, first: Any) -> Any:
    """Return what a report says of the data behind statistics; ``first`` is a file of them with its notes."""
    from fedmoments.core.observations.parts import Data

    return Data(
        train=stats.n_samples,
        dim=stats.dim,
        classes=stats.n_classes,
        class_names=tuple(first.class_names or (f"class {label}" for label in range(stats.n_classes))),
        encoder={"name": first.encoder} if first.encoder else {},
    )


def _held_out(path: Path, first: Any, feature_map: Any) -> Any:
    """Return test samples of a features file, in the space that the statistics were measured in."""
    from fedmoments.samples.features import load_features

    held_out = load_features(existing_file(path), ["test"], n_classes=first.stats.n_classes)
    if first.class_names and held_out.class_names and list(held_out.class_names) != first.class_names:
        raise InputError(f"{path} and {first.path} have different class names, or the same in another order")
    return (feature_map(held_out.test.X) if feature_map else held_out.test.X), held_out.test.y


def _measure_command(stats: Any, missing: tuple[str, ...], first: Any) -> str:
    """Return the command that would measure what is missing as well."""
    from fedmoments.core.statistics import StatisticsSpec

    spec = stats.spec | StatisticsSpec.of(*missing)
    moments = [name for name in spec.sent if name != "sums"]
    arguments = ["fedmoments", "measure", "FEATURES.npz", "--moments", ",".join(moments)]
    arguments += ["--means-per-client", str(spec.means_per_client)] if spec.means_per_client > 1 else []
    arguments += ["--client", "NAME", "--out", "FILE"]
    return " ".join(arguments) + (" and the same maps and seed as before" if first.feature_map else "")
