"""``fedmoments personalise``: a client's own classifier without training, or what it would bring all clients."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import OF_CREWS, OF_SIMULATIONS, Json, example, typed_command
from fedmoments.cli.output import plural, print_json, print_line, print_table, progress_bar, readable_bytes
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.cli.texts import listed
from fedmoments.errors import InputError
from fedmoments.settings.study import StudySettings

if TYPE_CHECKING:
    from fedmoments.core.observations.personal import PersonalRow

__all__ = ["personalise"]

EXAMPLE = example(
    "fedmoments measure runs/demo/digits.npz --head fedncm --client everybody --out all.stats",
    "fedmoments personalise runs/demo/digits.npz --model all.stats --beta auto --shares --out mine.classifier",
    "fedmoments personalise runs/demo/digits.npz --clients 20 --split dirichlet:0.1 --heads fedncm,gh-lda --seeds 1",
)
#: Heads that a simulation compares by default.
HEADS = ("fedncm", "fed3r", "gh-lda")
Model = Annotated[
    Path | None,
    typed(
        help="What the server broadcast: a classifier, or merged statistics ('fedmoments merge'), which allow "
        "blending of class means."
    ),
]
Beta = Annotated[
    str | None,
    typed(
        help="Weight of the client's own class means: 'auto' or 0 to 1; a list in simulations, 'auto' by default. "
        "With --model, nothing is blended unless this is given."
    ),
]
HeldOut = Annotated[
    float | None,
    typed(
        metavar="SHARE",
        help="Test every client on this share of its own samples instead of test samples dealt out to it: for "
        "the splits domain and id.",
    ),
]


@command("personalise", EXAMPLE)
def personalise(
    study: Annotated[
        Given[StudySettings],
        Taken(
            "data",
            without=(*OF_SIMULATIONS, *OF_CREWS, "memory_limit"),
            help={
                "data": "With --model: this client's own samples, features (.npz), folder:PATH, csv:PATH … Without: "
                "data of all simulated clients, as in 'fedmoments simulate'.",
                "heads": "Heads to simulate; with statistics, the one head to fit ('fedncm' by default).",
            },
            ask="give the data: digits, folder:PATH, csv:PATH, npz:PATH …",
        ),
    ],
    *,
    model: Model = None,
    out: Annotated[Path | None, typed("--out", "-o", help="Classifier file to write, with --model.")] = None,
    beta: Beta = None,
    all_labels: Annotated[
        bool, typed("--all-labels", help="With --model: also predict labels that this client does not have.")
    ] = False,
    shares: Annotated[
        bool, typed("--shares", help="With --model: use this client's label frequencies as priors.")
    ] = False,
    newcomer: Annotated[
        bool, typed("--newcomer", help="With --model: this client's samples are not among the statistics.")
    ] = False,
    held_out: HeldOut = None,
    json: Json = False,
) -> None:
    """Make a client's own classifier without training, or simulate its effect.

    A client can do two things by itself: predict only labels that it has, as often as it has them (--shares), and blend
    the federation's class means with its own (--beta). Nothing leaves the client.
    """
    if model is not None:
        simulated = [name for name in study.names if name in ("--clients", "--split", "--seeds")]
        _refuse([*simulated, *(["--held-out"] if held_out is not None else [])], "for simulations, without --model")
        options = {"beta": beta, "own_labels": not all_labels, "shares": shares, "newcomer": newcomer}
        _one(study.over(StudySettings(heads=())).build(), model, out, options, json=json)
        return
    own = {"--out": out, "--all-labels": all_labels, "--shares": shares, "--newcomer": newcomer}
    _refuse([name for name, value in own.items() if value], "for one client, with --model")
    betas = listed(beta, str, "--beta") if beta else ["auto"]
    _all(study.over(StudySettings(heads=HEADS, seeds=3)).build(), betas, held_out or 0.0, json=json)


def _refuse(names: list[str], why: str) -> None:
    """Refuse options of the other way to use the command."""
    if names:
        raise InputError(f"{', '.join(names)}: only {why}")


# ---------------------------------------------------------------------------------------------- one client


def _one(config: StudySettings, model: Path, out: Path | None, options: dict[str, Any], *, json: bool) -> None:
    from fedmoments.study.jobs import personal

    if out is None:
        raise InputError("no file to write this client's classifier to: give --out FILE")
    if len(config.heads) > 1:
        raise InputError(f"one client's classifier has one head, but --heads names {len(config.heads)}")
    place = writable_place(out)
    head = config.heads[0] if config.heads else None
    other = sorted(set(config.hyper) - {head or "fedncm"})
    if other:
        raise InputError(
            f"--set speaks of {', '.join(other)}, but the head here is {head or 'fedncm'}: name it by --heads"
        )
    hyper = config.hyper.get(head or "fedncm", {})
    with progress_bar("personalising") as progress:
        outcome = personal.personalise(
            config, existing_file(model), head=head, hyper=hyper, cache_dir=config.cache, progress=progress, **options
        )
    outcome.classifier.save(place)
    document = {"out": str(place), "bytes": place.stat().st_size, **outcome.document}
    (print_json if json else _show_one)(document)


def _show_one(document: dict[str, Any]) -> None:
    print_line(
        f"{plural(document['samples'], 'sample')} of {document['labels']} of {document['classes']} classes; predicts "
        f"{plural(len(document['predicts']), 'label')}{', as often as they occur' if document['shares'] else ''}"
    )
    if document["blend"] is not None:
        print_line(_blend_line(document["blend"]))
    if document["unknown"]:
        names = ", ".join(document["unknown"][:5])
        print_line(f"note: the federation has no sample of {names}: never predicted")
    if document["tests"]:
        print_line(
            f"accuracy on {plural(document['tests'], 'test sample')}: {document['before']:.2%} before, "
            f"{document['after']:.2%} after"
        )
    print_line(f"wrote {document['out']} ({readable_bytes(document['bytes'])})")


def _blend_line(blend: dict[str, Any]) -> str:
    if blend["tau"] is None:
        return f"own class means have the weight {blend['mean_beta']:.2f}"
    if blend["tau"] == "inf":
        return "leave-one-out keeps the federation's class means: one's own would not be nearer"
    return (
        f"leave-one-out takes the federation's class means for {blend['tau']:g} samples each: own means have the "
        f"weight {blend['mean_beta']:.2f} on average"
    )


# ---------------------------------------------------------------------------------------------- all clients


def _all(config: StudySettings, betas: list[str], held_out: float, *, json: bool) -> None:
    from fedmoments.study.jobs.personal_simulation import simulate_personalisation

    with progress_bar("simulating") as progress:
        report = simulate_personalisation(
            config, betas=betas, held_out=held_out, command=typed_command(), cache_dir=config.cache, progress=progress
        )
    if json:
        print_json(report.to_dict())
        return
    rows = report.personal.rows if report.personal else ()
    several = len({(row.clients, row.split) for row in rows}) > 1
    columns = ["head", "variant", *(["clients", "split"] if several else []), "accuracy", "±", "mean of clients"]
    columns += ["gain", "lose"]
    print_table(columns, [_cells(row, several=several) for row in rows], right=columns[-5:])
    for reason in dict.fromkeys(f"{row.head}, {row.variant}: {row.reason}" for row in rows if row.reason):
        print_line(f"note: {reason}")
    first = rows[0].outcomes[0]
    dealt = f"{held_out:g} of their own samples" if held_out else "test samples in proportion to their own"
    print_line(
        f"{plural(first.tested_clients, 'client')} tested on {dealt}, {plural(first.tests, 'sample')} in the "
        f"first federation; {plural(config.seeds, 'seed')}. 'gain' and 'lose' are shares of clients, against 'global'"
    )


def _cells(row: "PersonalRow", *, several: bool) -> list[str]:
    shares = (row.accuracy, row.spread, row.client_accuracy, row.gains, row.losses)
    texts = [
        "–" if share is None else f"{100 * share:.{digits}f}"
        for share, digits in zip(shares, (2, 2, 2, 0, 0), strict=True)
    ]
    where = [str(row.clients or "–"), row.split] if several else []
    return [row.head, row.variant, *where, *texts]
