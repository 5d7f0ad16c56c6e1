"""``fedmoments costs``: what methods send, both ways, and how many rounds they take."""

from dataclasses import dataclass
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line, print_table, readable_bytes
from fedmoments.errors import InputError, UnknownNameError

__all__ = ["costs"]

EXAMPLE = example(
    "fedmoments costs fedcof fed3r fedavg --dim 512 --classes 100 --clients 100 --present 2870 "
    "--encoder-parameters 735424 --sampled 30 --rounds 200"
)


@command("costs", EXAMPLE)
def costs(
    methods: Annotated[
        list[str] | None, positional(help="Heads, baselines, fedavg, scaffold, fedavg-lp, …; all heads by default.")
    ] = None,
    *,
    dim: Annotated[int, typed(help="Feature dimensions d.")] = 512,
    classes: Annotated[int, typed(help="Number of classes C.")] = 100,
    clients: Annotated[int, typed(help="Number of clients K.")] = 100,
    present: Annotated[
        int | None, typed(help="Classes held, summed over clients; clients × classes by default.")
    ] = None,
    means_per_client: Annotated[int, typed(help="Means sent per class, for heads on client means.")] = 1,
    map_dimension: Annotated[
        int | None, typed(help="Dimension after a feature map (fed3r-rf: 5000 by default).")
    ] = None,
    packed: Annotated[
        bool, typed("--packed/--square", help="Symmetric matrices as d(d+1)/2 numbers, or as d².")
    ] = True,
    encoder_parameters: Annotated[
        int | None, typed(help="Parameters b of the encoder, for methods that train or send it.")
    ] = None,
    ship_encoder: Annotated[
        bool, typed("--ship-encoder", help="One-shot: the server sends the encoder to every client first.")
    ] = False,
    sampled: Annotated[int | None, typed(help="Clients sampled per round; all by default.")] = None,
    rounds: Annotated[int, typed(help="Rounds of iterative methods.")] = 100,
    bytes_per_number: Annotated[float, typed(help="4 for FP32, 2 for half precision.")] = 4,
    budget: Annotated[
        str, typed(help="Payload of heads on scatter sketches: means, means/2, gram, 50KB …; scales included.")
    ] = "means",
    json: Json = False,
) -> None:
    """Compute costs of methods by formula: bytes up and down over all clients and rounds, and rounds to see all."""
    from fedmoments.core.costs import known_methods

    if clients < 1 or classes < 1:
        raise InputError(f"there must be at least one client and one class, not {clients} and {classes}")
    held = clients * classes if present is None else present
    each_round = clients if sampled is None else sampled
    sampling = _sampling(clients, each_round)
    asked = _Asked(
        dim, classes, clients, held, means_per_client, map_dimension, packed, encoder_parameters, ship_encoder,
        each_round, rounds, bytes_per_number, budget,
    )  # fmt: skip
    rows = [asked.price(method, sampling) for method in methods or known_methods("one-shot")]
    if json:
        print_json({"dim": dim, "classes": classes, "methods": rows, "sampling": sampling})
        return
    _show(rows, sampling)


@dataclass(frozen=True)
class _Asked:
    """The federation whose methods are priced, as it was typed."""

    dim: int
    classes: int
    clients: int
    present: int
    means_per_client: int
    map_dimension: int | None
    packed: bool
    encoder_parameters: int | None
    ship_encoder: bool
    sampled: int
    rounds: int
    bytes_per_number: float
    budget: str

    def price(self, method: str, sampling: dict[str, Any]) -> dict[str, Any]:
        from fedmoments.core.costs import known_methods
        from fedmoments.study.baselines import baseline_names

        if method in known_methods("iterative"):
            return _row(self._iterative(method), self.rounds)
        if method in known_methods("one-shot"):
            return _row(self._one_shot(method), sampling["rounds_without_replacement"])
        if method in baseline_names():
            return _row(self._baseline(method), sampling["rounds_without_replacement"]) | {"at_most": True}
        raise UnknownNameError("method", method, [*known_methods(), *baseline_names()])

    def _iterative(self, method: str) -> Any:
        from fedmoments.core.costs import iterative_cost

        return iterative_cost(
            method,
            d=self.dim,
            classes=self.classes,
            encoder_parameters=0 if method.endswith("-lp") else _encoder(self.encoder_parameters, method),
            sampled=self.sampled,
            rounds=self.rounds,
            bytes_per_number=self.bytes_per_number,
        )

    def _baseline(self, method: str) -> Any:
        """Return what a one-shot baseline sends at most, its classes spread evenly over the clients."""
        from fedmoments.core.costs import Cost
        from fedmoments.core.costs.sketches import evenly
        from fedmoments.study.baselines import make_baseline

        baseline = make_baseline(method)
        held = evenly(self.present, self.clients)
        dim = self.map_dimension or self.dim
        shipped = _encoder(self.encoder_parameters, "--ship-encoder") if self.ship_encoder else 0
        return Cost(
            method,
            self.clients,
            up_floats=sum(baseline.most_floats(dim, int(classes)) for classes in held if classes),
            down_floats=self.clients * shipped,
            counts=self.present,
            bytes_per_number=self.bytes_per_number,
        )

    def _one_shot(self, method: str) -> Any:
        from fedmoments.core.costs import one_shot_cost
        from fedmoments.core.statistics import SketchPlan

        behind = _map_dimension(method, self.map_dimension, self.dim, min(self.dim, self.classes - 1) or 1)
        plain = behind if self.map_dimension is None else None
        return one_shot_cost(
            method,
            d=self.dim,
            clients=self.clients,
            present_classes=self.present,
            classes=self.classes,
            map_dimension=behind,
            means_per_client=self.means_per_client if _sends_means(method) else 1,
            packed=self.packed,
            encoder_parameters=_encoder(self.encoder_parameters, "--ship-encoder") if self.ship_encoder else 0,
            bytes_per_number=self.bytes_per_number,
            sketch=SketchPlan(self.budget).at(plain or self.dim).settled(self.classes or 0),
        )


def _sampling(clients: int, sampled: int) -> dict[str, Any]:
    """Return how many rounds pass until every client was sampled."""
    from fedmoments.core.costs import expected_rounds, rounds_without_replacement

    seen = expected_rounds(clients, sampled)
    return {
        "clients": clients,
        "sampled": sampled,
        "rounds_without_replacement": rounds_without_replacement(clients, sampled),
        "rounds_with_replacement": seen.mean,
        "rounds_with_replacement_std": seen.standard_deviation,
    }


def _encoder(parameters: int | None, what: str) -> int:
    if parameters is None:
        raise InputError(f"{what} sends the encoder: give --encoder-parameters")
    return parameters


def _row(cost: Any, rounds: int) -> dict[str, Any]:
    return {
        "method": cost.method,
        "rounds": rounds,
        "up_bytes": cost.up_bytes,
        "down_bytes": cost.down_bytes,
        "up_bytes_per_upload": cost.up_bytes_per_client,
        "down_bytes_per_upload": cost.down_bytes_per_client,
        "uploads": cost.uploads,
        "up_floats": cost.up_floats,
        "down_floats": cost.down_floats,
        "counts": cost.counts,
    }


def _show(rows: list[dict[str, Any]], sampling: dict[str, Any]) -> None:
    columns = ["method", "up, total", "down, total", "one upload", "uploads", "rounds"]
    table = [
        [
            row["method"] + (" (at most)" if row.get("at_most") else ""),
            readable_bytes(row["up_bytes"]),
            readable_bytes(row["down_bytes"]),
            readable_bytes(row["up_bytes_per_upload"]),
            f"{row['uploads']:,}",
            f"{row['rounds']:,}",
        ]
        for row in rows
    ]
    print_table(columns, table, right=columns[1:])
    print_line()
    print_line(
        f"{sampling['sampled']:,} of {sampling['clients']:,} clients a round: all have been seen after "
        f"{plural(sampling['rounds_without_replacement'], 'round')} without replacement, "
        f"{sampling['rounds_with_replacement']:,.0f} ± {sampling['rounds_with_replacement_std']:,.0f} with."
    )
    if any(row.get("at_most") for row in rows):
        print_line(
            "What a baseline sends depends on its clients' samples: the most is told; 'fedmoments simulate' counts."
        )
    print_line("One-shot methods upload once a client; counts (one whole number a class) are not included.")


def _map_dimension(method: str, given: int | None, dim: int, directions: int) -> int | None:
    """Return the dimension behind a map: as given, that of the head's own map, or that in which classes differ."""
    from fedmoments.core.heads import presets

    if given is not None or method not in presets():
        return given
    head = presets()[method].make()
    return (head.mapped_dim(dim) or directions) if head.has_own_map else None


def _sends_means(method: str) -> bool:
    """Say whether a method sends client means, as many as there may be; beside a sketch within a budget it is one."""
    from fedmoments.core.heads import presets

    if method not in presets():
        return False
    needs = presets()[method].make().needs
    return needs.keeps_clients_apart and not needs.has_sketch
