"""``fedmoments split``: who holds what."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import Json, example, existing_file, writable_place
from fedmoments.cli.output import print_json, print_line, print_table

__all__ = ["split_command"]

EXAMPLE = example("fedmoments split runs/demo/digits.npz --split dirichlet:0.1 --clients 10 --out ten.split")
SHOWN = 20


def split_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("split", cls=PlainCommand, short_help="Split training samples over clients.", epilog=EXAMPLE)(_split)


def _split(
    features: Annotated[Path, typer.Argument(help="Features file (.npz) with x_train and y_train.")],
    *,
    split: Annotated[
        str,
        typer.Option(
            help="dirichlet:ALPHA (each class divided), dirichlet-client:ALPHA, classes:N, iid, quantity:ALPHA[:MIN], "
            "domain[:N] (needs domain_train) or id (needs client_train)."
        ),
    ] = "dirichlet:0.1",
    clients: Annotated[int | None, typer.Option(help="Number of clients; domain and id find it in the data.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Split file to write.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help=f"List all clients, not the first {SHOWN}.")] = False,
    json: Json = False,
) -> None:
    """Split training samples over clients and say who holds what."""
    from fedmoments.data import parse_split
    from fedmoments.simulation import load_features

    place = writable_place(out) if out else None
    recipe = parse_split(split)
    found = load_features(existing_file(features), ["train"])
    made = recipe.apply(found.train.y, n_clients=clients, seed=seed, domains=found.domains, ids=found.ids)
    rows = _holdings(made, found)
    if place:
        made.save(place)
    if json:
        print_json({**made.report(), "seed": seed, "digest": made.digest(), "out": place and str(place), "holds": rows})
        return
    report = made.report()
    held = sum(row["classes"] for row in rows)
    print_line(
        f"{report['samples']:,} samples over {report['clients']:,} clients by {split}, seed {seed}: "
        f"{report['smallest']:,} to {report['largest']:,} each, {held / len(rows):.1f} of {found.n_classes} classes on "
        f"average ({held:,} in all), {report['empty_clients']} empty"
    )
    for sentence in [made.why, *made.notes]:
        if sentence:
            print_line(f"note: {sentence}")
    print_line()
    shown = rows if everybody else rows[:SHOWN]
    print_table(
        ["client", "samples", "classes", "most of"],
        [[r["client"], f"{r['samples']:,}", str(r["classes"]), r["most_text"]] for r in shown],
        right=["samples", "classes"],
    )
    if len(shown) < len(rows):
        print_line(f"… and {len(rows) - len(shown):,} more clients; --all lists them")
    if place:
        print_line(f"wrote {place}")


def _holdings(split: Any, features: Any) -> list[dict[str, Any]]:
    """Return for every client how many samples and classes it holds, and its three largest classes."""
    cells = split.cells(features.train.y, features.n_classes)
    names = features.class_names or [str(label) for label in range(features.n_classes)]
    rows = []
    for client in range(split.n_clients):
        mine = slice(cells.indptr[client], cells.indptr[client + 1])
        labels, counts = cells.indices[mine], cells.data[mine]
        largest = counts.argsort(kind="stable")[::-1][:3]
        most = {names[labels[place]]: int(counts[place]) for place in largest}
        rows.append(
            {
                "client": split.names[client] if split.names else str(client),
                "samples": int(counts.sum()),
                "classes": len(labels),
                "most": most,
                "most_text": ", ".join(f"{name} {count}" for name, count in most.items()),
            }
        )
    return rows
