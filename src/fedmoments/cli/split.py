"""``fedmoments split``: who holds what."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Everybody, Json, example
from fedmoments.cli.output import print_clients, print_json, print_line
from fedmoments.cli.places import writable_place
from fedmoments.settings.samples import SampleSource

__all__ = ["split"]

EXAMPLE = example("fedmoments split runs/demo/digits.npz --split dirichlet:0.1 --clients 10 --out ten.split")


HELP = {
    "data": "What to divide: a features file (.npz), digits, folder:PATH, csv:PATH …",
    "test_share": "Share that is held out of data in one part first, as 'simulate' does with the same --seed; "
    "by default all are divided.",
    "seed": "Seed of the split, and of this share.",
}
ASK = "nothing to divide: give a features file, folder:PATH, csv:PATH or another source"


@command("split", EXAMPLE)
def split(
    source: Annotated[SampleSource, Taken(argument="data", help=HELP, ask=ASK, without=("table",))],
    *,
    split: Annotated[
        str,
        typed(
            help="dirichlet:ALPHA (each class divided), dirichlet-client:ALPHA, classes:N, iid, quantity:ALPHA[:MIN], "
            "domain[:N] (needs domain_train), id (needs client_train), flower:CLASS(…) or file:PATH."
        ),
    ] = "dirichlet:0.1",
    clients: Annotated[int | None, typed(help="Number of clients; domain and id take it from the data.")] = None,
    out: Annotated[Path | None, typed("--out", "-o", help="Split file to write.")] = None,
    everybody: Everybody = False,
    json: Json = False,
) -> None:
    """Split training samples over clients and show who holds what."""
    from fedmoments.samples import parse_split
    from fedmoments.samples.reading import read_data

    place = writable_place(out) if out else None
    recipe = parse_split(split)
    data = read_data(replace(source, test_share=source.test_share or 0.0))
    train, seed = data.train, source.seed
    division = recipe.apply(
        train.labels, n_clients=clients, seed=seed, domains=train.domains, ids=train.clients, groups=train.groups
    )
    rows = _holdings(division, train.labels, data.class_names)
    if place:
        division.save(place)
    if json:
        print_json(
            vars(division.report(seed)) | {"digest": division.digest(), "out": place and str(place), "holds": rows}
        )
        return
    report, held = division.report(), sum(row["classes"] for row in rows)
    n_classes = len(data.class_names)
    print_line(
        f"{report.samples:,} samples over {report.clients:,} clients by {split}, seed {seed}: "
        f"{report.smallest:,} to {report.largest:,} each, {held / len(rows):.1f} of {n_classes} classes "
        f"on average ({held:,} in all), {report.empty_clients} empty"
    )
    for sentence in filter(None, [division.why, *division.notes]):
        print_line(f"note: {sentence}")
    print_line()
    texts = [[row["client"], f"{row['samples']:,}", str(row["classes"]), row["most_text"]] for row in rows]
    print_clients(["client", "samples", "classes", "most of"], texts, right=["samples", "classes"], everybody=everybody)
    if place:
        print_line(f"wrote {place}")


def _holdings(split: Any, labels: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return for every client how many samples and classes it holds, and its three largest classes."""
    cells = split.cells(labels, len(names))
    rows = []
    for client in range(split.n_clients):
        mine = slice(cells.indptr[client], cells.indptr[client + 1])
        held, counts = cells.indices[mine], cells.data[mine]
        largest = counts.argsort(kind="stable")[::-1][:3]
        most = {names[held[place]]: int(counts[place]) for place in largest}
        rows.append(
            {
                "client": split.names[client] if split.names else str(client),
                "samples": int(counts.sum()),
                "classes": len(held),
                "most": most,
                "most_text": ", ".join(f"{name} {count}" for name, count in most.items()),
            }
        )
    return rows
