"""``fedmoments probe``: how good a tuned encoder's features are, and heads that are fitted anew on them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import OF_CREWS, OF_SIMULATIONS, Json, example, typed_command
from fedmoments.cli.output import plural, print_files, print_json, print_line, print_table, progress_bar
from fedmoments.cli.places import existing_file, results_folder
from fedmoments.errors import InputError
from fedmoments.settings.study import StudySettings

if TYPE_CHECKING:
    from fedmoments.study.jobs.probe import ProbeJob
    from fedmoments.study.probing import ProbeResult

__all__ = ["probe"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedncm --client everybody --out all.stats",
    "fedmoments fit all.stats --head fedncm --out fedncm.classifier",
    "fedmoments probe runs/demo/digits.npz --head fedncm.classifier --heads fed3r,gh-lda --out runs/refit",
)


@command("probe", EXAMPLE)
def probe(
    study: Annotated[
        Given[StudySettings],
        Taken(
            "data",
            without=(*OF_SIMULATIONS, *OF_CREWS, "encoder", "seeds", "memory_limit"),
            help={
                "heads": "Heads to fit in closed form, separated by commas; fed3r by default.",
                "clients": "Number of clients; only heads on client means depend on it.",
                "splits": "dirichlet:0.1, iid, … (see 'fedmoments split --help').",
            },
            ask="give the data: digits, folder:PATH, csv:PATH, npz:PATH …",
        ),
    ],
    model: Annotated[
        Path | None,
        positional(help="Folder of a tuned model (RUN/tuned/NAME of 'fedmoments tune'), or its encoder file."),
    ] = None,
    *,
    encoder: Annotated[
        str | None, typed(help="The encoder to measure: tuned:FILE, or any other (see 'fedmoments encoders').")
    ] = None,
    base: Annotated[str | None, typed(help="The encoder to compare with; by default the one before tuning.")] = None,
    head: Annotated[
        Path | None, typed(help="The trained classifier; by default head.safetensors in the folder.")
    ] = None,
    out: Annotated[Path | None, typed("--out", "-o", help="Folder for the refitted heads.")] = None,
    json: Json = False,
) -> None:
    """Measure a tuned encoder by ridge regression on its features, before and after, and keep the refitted heads.

    Ridge regression has one solution, however clients hold the samples and whatever head was trained: its accuracy
    shows how good the features are. If it is better than the trained head, use it instead.
    """
    from fedmoments.study.jobs.probe import run_probe

    results_folder(out)
    tuned = _tuned(model, encoder, head, base)
    own = study.over(StudySettings(heads=("fed3r",))).build()
    dealt = not {"clients", "splits"}.isdisjoint(study.values)
    with progress_bar("probing") as progress:
        job = run_probe(
            own, tuned, dealt=dealt, base=base, out=out, command=typed_command(), cache_dir=own.cache, progress=progress
        )
    if json:
        print_json(job.document)
    else:
        _show(job)


def _tuned(model: Path | None, encoder: str | None, head: Path | None, base: str | None) -> Any:
    """Return what was tuned, from the folder of a model and from what is named beside it."""
    from fedmoments.study.jobs.probe import Tuned, find_tuned

    if model is None and encoder is None and head is None:
        raise InputError("nothing to probe: give the folder of a tuned model, --encoder tuned:FILE, or --head FILE")
    tuned = find_tuned(model) if model is not None else Tuned()
    if encoder is not None:
        if tuned.encoder is not None:
            raise InputError(f"{model} holds the tuned encoder already: leave --encoder out, or the folder")
        tuned = replace(tuned, encoder=encoder)
    if base is not None and tuned.encoder is None:
        raise InputError("--base is what another encoder is compared with, but only a head was tuned: add --encoder")
    return tuned if head is None else replace(tuned, head=existing_file(head))


def _show(job: "ProbeJob") -> None:
    data, encoder, base = job.data, job.data.encoder, job.base
    if base is not None:
        print_line(f"before: {base['name']}, d = {base['dim']}; after: {encoder['name']}, d = {encoder['dim']}")
        _show_accuracies(job.result, {"before": "before", "after": "after", "gain": "gain"})
    else:
        print_line(f"the encoder was not tuned: the trained head and refits share the features of {encoder['name']}")
        _show_accuracies(job.result, {"after": "accuracy"})
    for row in job.result.rows:
        if row.reason:
            print_line(f"note: {row.head}: {row.reason}")
    split, held = job.split, "any split gives the same"
    if split is not None:
        held = f"{split.scheme} over {plural(split.n_clients, 'client')}"
    print_line(f"{data.train:,} samples to fit from ({held}), {data.test:,} to test on")
    print_files([str(path) for path in job.files])


def _show_accuracies(result: "ProbeResult", columns: dict[str, str]) -> None:
    """Print the table of heads; ``columns`` are the figures to show, and what they are called."""
    rows = [
        [row.head, *(_percent(getattr(row, name), signed=name == "gain") for name in columns)] for row in result.rows
    ]
    if result.softmax is not None:
        trained = {"after": _percent(result.softmax)}
        rows.append(["trained head", *(trained.get(name, "–") for name in columns)])
    print_table(["head", *columns.values()], rows, right=[*columns.values()])


def _percent(share: float | None, *, signed: bool = False) -> str:
    return "–" if share is None else f"{100 * share:{'+' if signed else ''}.2f}"
