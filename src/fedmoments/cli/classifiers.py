"""``fedmoments fit`` (statistics files → classifier file) and ``fedmoments evaluate`` (classifier + samples)."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.hyper import hyper_parameters
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import (
    plural,
    print_json,
    print_line,
    print_table,
    progress_bar,
    readable_bytes,
    readable_seconds,
)
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.errors import InputError
from fedmoments.settings.samples import Running, SampleSource
from fedmoments.settings.study import DEFAULT_HEAD

__all__ = ["MEASURE", "TESTED_ASK", "TESTED_HELP", "TESTED_ON", "encoding", "evaluate", "fit", "loading"]

#: Which settings of samples a test takes, and what the help says of them there.
TESTED_ON = ("data", "text", "image", "label", "domains", "test_share", "seed")
TESTED_HELP = {
    "data": "What to test on: folder:PATH, csv:PATH, npz:PATH …; its test part if it has one, or else all of it.",
    "test_share": "Test on the share that 'simulate' holds out of data in one part, with the same --seed.",
    "seed": "Seed that chooses this share.",
}
TESTED_ASK = "no data to test on: give folder:PATH, csv:PATH, npz:PATH or another source"

MEASURE = "fedmoments measure runs/demo/digits.npz --head gh-lda --client clinic --out clinic.stats"
FIT = "fedmoments fit clinic.stats --head gh-lda --set shrinkage=relative:0.1 --out clinic.classifier"
FIT_EXAMPLE = example(MEASURE, FIT)
EVALUATE_EXAMPLE = example(MEASURE, FIT, "fedmoments evaluate clinic.classifier runs/demo/digits.npz --per-class")


@command("fit", FIT_EXAMPLE)
def fit(
    files: Annotated[list[Path], positional(help="Statistics files, each of one client or of many merged.")],
    *,
    out: Annotated[Path, typed("--out", "-o", help="Classifier file to write.")],
    head: Annotated[str, typed(help="Which head to fit; 'fedmoments heads' lists them.")] = DEFAULT_HEAD,
    settings: Annotated[
        list[str] | None, typed("--set", metavar="NAME=VALUE", help="A hyper-parameter; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Solve for a classifier from the statistics of one or many clients."""
    import time

    from fedmoments.cli.notes import contributions, map_of
    from fedmoments.core.api import fit
    from fedmoments.core.heads import make_head
    from fedmoments.study.simulation.fit import choice_of
    from fedmoments.study.simulation.methods import require_head

    place = writable_place(out)
    require_head(head)
    hyper = hyper_parameters(head, settings or [])
    instance = make_head(head, **hyper)
    ledger, first, clients = _gather(contributions(files, whole=False), instance)
    if first.targets:
        hyper["targets"] = len(first.targets)
    feature_map = map_of(first)
    _require_own_map(head, instance, feature_map)
    start = time.perf_counter()
    names = first.targets or first.class_names
    classifier = fit(head, ledger, class_names=names, feature_map=feature_map, **hyper)
    seconds = time.perf_counter() - start
    samples = ledger.statistics().n_samples
    version = _version(place, classifier.digest())
    if first.targets:
        classifier = classifier.noting(columns=first.columns)
    classifier = classifier.noting(clients=len(clients), samples=samples, encoder=first.encoder, version=version)
    classifier.save(place)
    size = place.stat().st_size
    absent = [name for name, there in zip(classifier.class_names, classifier.present, strict=True) if not there]
    if json:
        print_json(
            {
                "out": str(place),
                "bytes": size,
                "head": head,
                "settings": instance.settings(),
                "clients": clients,
                "samples": samples,
                "dim": classifier.dim,
                "classes": classifier.n_classes,
                "never_predicted": absent,
                "seconds": seconds,
                "choice": choice_of(classifier),
                "digest": classifier.digest(),
                "version": version,
            }
        )
        return
    _show_fit(head, classifier, first, (len(clients), samples, seconds))
    if absent:
        print_line(f"note: {len(absent)} classes have no sample and are never predicted: {', '.join(absent[:5])}")
    print_line(f"wrote {place} ({readable_bytes(size)})")


def _show_fit(head: str, classifier: Any, first: Any, work: tuple[int, int, float]) -> None:
    """Print what was fitted from what."""
    from fedmoments.study.simulation.fit import choice_of

    (clients, samples, seconds), kind = work, "targets" if first.targets else "classes"
    print_line(
        f"{head} from {samples:,} samples of {plural(clients, 'client')}: {classifier.n_classes} {kind}, "
        f"d = {classifier.dim}, solved in {readable_seconds(seconds)}"
    )
    if first.targets:
        shares = zip(classifier.class_names, classifier.info["r_squared"], strict=True)
        print_line("R² of these samples: " + ", ".join(f"{name} {share:.3f}" for name, share in shares))
    if choice := choice_of(classifier):
        print_line(f"{head} {choice}")


def _version(place: Path, digest: str) -> dict[str, Any]:
    """Return which version a classifier is: that after the one whose place it takes, or the first."""
    from fedmoments.core.classifier import load
    from fedmoments.core.classifier.version import Version, version_of
    from fedmoments.errors import FedMomentsError

    first = Version(place.name.partition(".")[0])
    if not place.is_file():
        return first.to_dict()
    try:
        former = load(place)
    except FedMomentsError:  # something else stood there
        return first.to_dict()
    return (version_of(former) or first).following(former.digest(), digest).to_dict()


def _gather(parts: Iterable[Any], head: Any) -> tuple[Any, Any, list[str]]:
    """Return the ledger of all files, read one at a time, the first of them, and the names of all clients."""
    from fedmoments.core.statistics import Ledger

    ledger: Any = None
    first: Any = None
    clients: list[str] = []
    for part in parts:
        _require_targets(part, head)
        if ledger is None:
            stats, first = part.stats, part
            form, head = stats.fixed_point, head.suited(stats.spec)
            fold = head.needs == head.apart_needs
            ledger = Ledger(head.needs, n_classes=stats.n_classes, dim=stats.dim, fixed_point=form, fold=fold)
        _require_moments(part, head)
        ledger.join(str(part.path), part.stats)
        clients.extend(part.clients)
    if ledger is None:
        raise InputError("there is nothing to fit from: give at least one statistics file")
    return ledger, first, clients


def _require_moments(part: Any, head: Any) -> None:
    from fedmoments.core.gaussian import require
    from fedmoments.errors import FedMomentsError, MissingMomentError

    try:
        require(part.stats, head.needs, type(head).__name__)
    except FedMomentsError as error:
        raise MissingMomentError(f"{part.path}: {error}") from error


def _require_targets(part: Any, head: Any) -> None:
    """Refuse a head for classes on targets, and a head for targets without."""
    from fedmoments.core.heads.registry import TARGET_HEADS
    from fedmoments.core.targets import TargetHead

    if isinstance(head, TargetHead) != bool(part.targets):
        raise InputError(
            f"{part.path} holds targets ({', '.join(part.targets)}), and the head is one for classes: give --head "
            f"{' or --head '.join(TARGET_HEADS)}"
            if part.targets
            else f"the head predicts targets, but {part.path} holds classes: measure with --targets"
        )


def _require_own_map(name: str, head: Any, feature_map: Any) -> None:
    """Refuse statistics that were measured without the map that a head stands behind."""
    from fedmoments.core.maps import Chain, RandomFourier

    last = feature_map.maps[-1] if isinstance(feature_map, Chain) else feature_map
    if head.has_own_map and not isinstance(last, RandomFourier):
        raise InputError(
            f"head '{name}' is fitted behind random Fourier features, but these statistics were measured without: "
            "measure with --fourier D --bandwidth SIGMA"
        )


def loading(running: Running) -> dict[str, Any]:
    """Return how a model's encoder is loaded."""
    return {"trusted": running.trust, **{key: getattr(running, key) for key in ("runtime", "device", "threads")}}


def encoding(running: Running) -> dict[str, Any]:
    """Return how samples are encoded."""
    return {"cache_dir": running.cache, "batch_size": running.batch_size, "readers": running.readers}


@command("evaluate", EVALUATE_EXAMPLE)
def evaluate(
    classifier: Annotated[Path, positional(help="Classifier file.")],
    source: Annotated[SampleSource, Taken(argument="data", only=TESTED_ON, help=TESTED_HELP, ask=TESTED_ASK)],
    *,
    running: Annotated[Running, Taken()],
    per_class: Annotated[bool, typed("--per-class", help="List the figures of every class.")] = False,
    pairs: Annotated[int, typed(help="How many confused pairs of classes to list.")] = 5,
    json: Json = False,
) -> None:
    """Test a classifier on held-out samples or features: accuracy, and which classes are taken for which."""
    from fedmoments.core.classifier import TargetModel, load
    from fedmoments.core.observations.interval import wilson
    from fedmoments.federation.evaluation import LocalEvaluation
    from fedmoments.handover.labelled import labelled_features, read_labelled
    from fedmoments.handover.model import Model

    file = existing_file(classifier)
    if isinstance(fitted := load(file), TargetModel):
        _evaluate_targets(classifier, fitted, source, json=json)
        return
    tested = read_labelled(source, fitted)
    model = Model.read(file, encode=tested.modality != "features", **loading(running))
    with progress_bar("encoding") as move:
        samples, problems = labelled_features(
            model, tested, source.data, lambda done, total: move(done, total, ""), **encoding(running)
        )
    scored = model.classifier
    counted = LocalEvaluation.of(scored, samples.X, samples.y, scored.temperature)
    result, calibration = counted.evaluation(scored.class_names), counted.calibration(scored.temperature)
    sure = float(calibration.confidences.sum() / max(result.n_samples, 1))
    low, high = wilson(round(result.accuracy * result.n_samples), result.n_samples)
    if json:
        document = result.to_dict(per_class=per_class, most=pairs)
        document["accuracy_interval"] = [low, high]
        document |= {"mean_confidence": sure, "expected_calibration_error": calibration.expected_error}
        print_json({"classifier": str(classifier), "data": source.data, "unread": len(problems), **document})
        return
    print_line(
        f"{result.n_samples:,} samples: accuracy {result.accuracy:.2%} ({low:.1%} to {high:.1%}, 95 % interval), "
        f"balanced accuracy {result.balanced_accuracy:.2%} (mean over classes)"
    )
    print_line(
        f"mean confidence {sure:.1%} at temperature {scored.temperature:.3g}, expected calibration error "
        f"{100 * calibration.expected_error:.1f} points"
    )
    if math.isfinite(result.macro_f1) and math.isfinite(result.macro_area):
        print_line(f"macro-F1 {result.macro_f1:.3f}, macro-AUC {result.macro_area:.3f}")
    confused = result.confusions(pairs)
    if confused:
        print_line()
        errors = result.n_samples - round(result.accuracy * result.n_samples)
        rows = [[p.true, p.predicted, str(p.count), f"{p.count / errors:.1%}"] for p in confused]
        print_table(["class", "taken for", "samples", "of all errors"], rows, right=["samples", "of all errors"])
    if per_class:
        _show_each_class(result)


def _show_each_class(result: Any) -> None:
    """Print the figures of every class."""
    print_line()
    figures = {"accuracy": "{:.1%}", "specificity": "{:.1%}", "auc": "{:.3f}"}
    rows = [
        [row["class"], str(row["samples"])]
        + ["–" if row[key] is None else form.format(row[key]) for key, form in figures.items()]
        for row in result.to_dict(per_class=True, most=0)["per_class"]
    ]
    columns = ["samples", "sensitivity", "specificity", "AUC"]
    print_table(["class", *columns], rows, right=columns)


def _evaluate_targets(file: Path, model: Any, source: SampleSource, *, json: bool) -> None:
    """Test a model of targets on a table or on arrays whose columns of targets have the model's names."""
    from dataclasses import asdict

    from fedmoments.handover.targets import figures_of, read_targets

    X, targets = read_targets(source.data, model, tuple(model.info.get("columns") or ()))
    figures = figures_of(model, X, targets)
    if json:
        found = [asdict(figure) for figure in figures]
        print_json({"classifier": str(file), "data": source.data, "samples": len(X), "targets": found})
        return
    print_line(f"{len(X):,} samples, {plural(len(figures), 'target')}: score {model.score(X, targets):.3f}")
    columns = {"target": "name", "R²": "r_squared", "error": "error", "F1": "f1", "wrong": "wrong"}
    shown = [name for name, key in columns.items() if key == "r_squared" or getattr(figures[0], key) is not None]
    rows = [[_cell(getattr(figure, columns[name])) for name in shown] for figure in figures]
    print_table(shown, rows, right=shown[1:])


def _cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
