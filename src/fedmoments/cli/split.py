"""``fedmoments split``: who holds what."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Everybody, Json, example
from fedmoments.cli.output import print_clients, print_json, print_line
from fedmoments.cli.places import existing_file, writable_place

__all__ = ["split"]

EXAMPLE = example("fedmoments split runs/demo/digits.npz --split dirichlet:0.1 --clients 10 --out ten.split")


@command("split", EXAMPLE)
def split(
    features: Annotated[Path, positional(help="Features file (.npz) with x_train and y_train.")],
    *,
    split: Annotated[
        str,
        typed(
            help="dirichlet:ALPHA (each class divided), dirichlet-client:ALPHA, classes:N, iid, quantity:ALPHA[:MIN], "
            "domain[:N] (needs domain_train), id (needs client_train), flower:CLASS(…) or file:PATH."
        ),
    ] = "dirichlet:0.1",
    clients: Annotated[int | None, typed(help="Number of clients; domain and id take it from the data.")] = None,
    seed: Annotated[int, typed(help="Seed of the split.")] = 0,
    out: Annotated[Path | None, typed("--out", "-o", help="Split file to write.")] = None,
    everybody: Everybody = False,
    json: Json = False,
) -> None:
    """Split training samples over clients and show who holds what."""
    from fedmoments.samples import parse_split
    from fedmoments.samples.features import load_features

    place = writable_place(out) if out else None
    recipe = parse_split(split)
    loaded = load_features(existing_file(features), ["train"])
    division = recipe.apply(
        loaded.train.y, n_clients=clients, seed=seed, domains=loaded.domains, ids=loaded.ids, groups=loaded.groups
    )
    rows = _holdings(division, loaded)
    if place:
        division.save(place)
    if json:
        print_json(
            {**division.report(), "seed": seed, "digest": division.digest(), "out": place and str(place), "holds": rows}
        )
        return
    report, held = division.report(), sum(row["classes"] for row in rows)
    print_line(
        f"{report['samples']:,} samples over {report['clients']:,} clients by {split}, seed {seed}: "
        f"{report['smallest']:,} to {report['largest']:,} each, {held / len(rows):.1f} of {loaded.n_classes} classes "
        f"on average ({held:,} in all), {report['empty_clients']} empty"
    )
    for sentence in filter(None, [division.why, *division.notes]):
        print_line(f"note: {sentence}")
    print_line()
    texts = [[row["client"], f"{row['samples']:,}", str(row["classes"]), row["most_text"]] for row in rows]
    print_clients(["client", "samples", "classes", "most of"], texts, right=["samples", "classes"], everybody=everybody)
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
