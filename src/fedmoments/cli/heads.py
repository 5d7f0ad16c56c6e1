"""``fedmoments heads``: which heads there are, what each needs, and what that costs a client."""

from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table, readable_bytes
from fedmoments.errors import UnknownNameError

__all__ = ["heads"]

EXAMPLE = example("fedmoments heads --dim 384 --classes 77", "fedmoments heads fishermix")


@command("heads", EXAMPLE)
def heads(
    name: Annotated[str | None, positional(help="Head or baseline to explain; nothing lists all.")] = None,
    *,
    dim: Annotated[int, typed(help="Feature dimensions d of the client that is priced.")] = 512,
    classes: Annotated[int, typed(help="Classes C that it holds.")] = 100,
    json: Json = False,
) -> None:
    """List all heads: what a client sends for each, what that costs, and where it comes from; and all baselines.

    With a name, explain that head or baseline and its hyper-parameters.
    """
    if name is None:
        _list(dim, classes, json=json)
    else:
        _explain(name, dim, classes, json=json)


def _list(dim: int, classes: int, *, json: bool) -> None:
    from fedmoments.core.heads import head_names

    rows = [_describe(name, dim, classes) for name in head_names()]
    baselines = _baselines()
    if json:
        print_json({"dim": dim, "classes": classes, "heads": rows, "baselines": baselines})
        return
    print_line(f"One client, d = {dim}, C = {classes} classes held, 4 bytes a number, symmetric matrices packed.")
    print_line()
    columns = ["head", "up", "sends", "floats", "what it is", "paper"]
    table = [
        [r["name"], readable_bytes(r["bytes"]), ", ".join(r["moments"]), r["formula"], r["summary"], r["paper"]]
        for r in rows
    ]
    print_table(columns, table, right=["up"])
    print_line()
    print_line("Counts, one whole number a class, go with everything and are not priced.")
    print_line("fed3r-rf measures behind a random Fourier map: its d is the number of random features.")
    print_line()
    print_line("Baselines, for comparison, in simulations only: what their clients send does not add up.")
    print_line()
    others = [[b["name"], b["sends"], b["summary"], b["paper"]] for b in baselines]
    print_table(["baseline", "sends", "what it is", "paper"], others)
    print_line()
    print_line("fedmoments heads NAME explains one and its hyper-parameters")


def _explain(name: str, dim: int, classes: int, *, json: bool) -> None:
    from fedmoments.cli.head_details import example_options, hyper_example, hyper_table, print_hyper
    from fedmoments.core.heads import presets
    from fedmoments.study.baselines import baselines

    known = {**presets(), **baselines()}
    if name not in known:
        raise UnknownNameError("head or baseline", name, known)
    baseline = name not in presets()
    description = next(b for b in _baselines() if b["name"] == name) if baseline else _describe(name, dim, classes)
    rows = hyper_table(known[name])
    options = example_options(name, hyper_example(known[name]), baseline=baseline)
    if json:
        priced = {} if baseline else {"classes": classes}
        print_json({"baseline": baseline, **description, **priced, "parameters": rows, "examples": options})
        return
    print_line(f"{name}{' (baseline)' if baseline else ''}: {description['summary']}")
    print_line(f"from: {description['paper']}")
    print_line(f"a client sends: {description['sends'] if baseline else _priced(description, classes)}")
    print_line()
    print_hyper(rows, options)


def _priced(description: dict[str, Any], classes: int) -> str:
    """Return what a client sends for a head, and how much that is."""
    floats, size = f"{description['formula']} floats", readable_bytes(description["bytes"])
    apart = "; clients are kept apart" if description["keeps_clients_apart"] else ""
    return f"{description['sends']} ({floats}, {size} for d = {description['dim']}, C = {classes}{apart})"


def _baselines() -> list[dict[str, Any]]:
    from fedmoments.study.baselines import baselines

    return [
        {
            "name": name,
            "summary": preset.summary,
            "paper": preset.paper,
            "sends": preset.make().sends,
            "hyper": preset.make().settings(),
        }
        for name, preset in baselines().items()
    ]


def _describe(name: str, dim: int, classes: int) -> dict[str, Any]:
    from fedmoments.core.costs import floats_of
    from fedmoments.core.heads import presets

    preset = presets()[name]
    head = preset.make()
    width = getattr(head, "n_features", dim) if head.has_own_map else dim
    size = floats_of(head.needs.sent, width, classes)
    return {
        "name": name,
        "summary": preset.summary,
        "paper": preset.paper,
        "sends": str(head.needs),
        "moments": list(head.needs.sent),
        "formula": _formula(head.needs.sent),
        "keeps_clients_apart": head.needs.keeps_clients_apart,
        "dim": width,
        "floats": size.floats,
        "counts": size.counts,
        "bytes": size.bytes(4),
        "hyper": head.settings(),
    }


def _formula(moments: tuple[str, ...]) -> str:
    """Return how many floats the moments have, as a formula in d and C."""
    from fedmoments.core.statistics import MOMENTS, Layout

    if any(MOMENTS[name].layout is Layout.SKETCH for name in moments):
        return "≤ C·d coded"
    # A width is recognised by its values in two dimensions.
    shapes = {(1, 1): "", (6, 10): "d", (21, 55): "d(d+1)/2"}
    terms = []
    for name in moments:
        moment = MOMENTS[name]
        width = shapes.get((moment.width(6), moment.width(10)), f"|{name}|")
        shared = moment.layout is Layout.GLOBAL
        terms.append(width or "1" if shared else "·".join(part for part in ("C", width) if part))
    return " + ".join(terms)
