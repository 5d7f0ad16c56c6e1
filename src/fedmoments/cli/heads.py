"""``fedmoments heads``: which heads there are, what each needs, and what that costs a client.

One head or baseline in detail: its hyper-parameters, what each means, and how one of them is set.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line, print_table, readable_bytes
from fedmoments.core.heads.parameters import meanings_of, raw_meaning
from fedmoments.errors import UnknownNameError

__all__ = ["example_options", "heads", "hyper_example", "hyper_table", "print_hyper"]


#: A value that a docstring names, such as ``balanced`` or ``blend:0.05``.
_VALUE = re.compile(r"``([a-z]+(?::[0-9.]+)?)``")


def hyper_table(preset: Any) -> list[dict[str, Any]]:
    """Return name, default and meaning of every hyper-parameter; the meaning is None where nobody wrote it down.

    Examples
    --------
    >>> from fedmoments.core.heads import presets
    >>> hyper_table(presets()["fedncm"])
    [{'name': 'metric', 'default': 'cosine', 'meaning': 'cosine (FedNCM) or euclidean.'}]
    """
    meanings = meanings_of(preset.head)
    return [
        {"name": name, "default": default, "meaning": meanings.get(name)}
        for name, default in preset.make().settings().items()
    ]


def hyper_example(preset: Any) -> str | None:
    """Return a hyper-parameter with another value than its default, as it is typed, or None where none is known.

    It is one that the head takes and that does not decide what clients send: the same upload serves.

    Examples
    --------
    >>> from fedmoments.core.heads import presets
    >>> [hyper_example(presets()[name]) for name in ("fishermix", "gh-lda", "fedncm")]
    ['tau=0.8', 'shrinkage=blend:0.05', 'metric=euclidean']
    """
    needs = _needs(preset)
    for name, values in _others(preset):
        allowed = {value: _needs(preset, **{name: value}) for value in values if _is_taken(preset, name, value)}
        if allowed and all(other == needs for other in allowed.values()):
            return f"{name}={_typed(next(iter(allowed)))}"
    return None


def example_options(name: str, setting: str | None, *, baseline: bool) -> dict[str, str]:
    """Return the option that sets it, by the command that takes it.

    Examples
    --------
    >>> example_options("fishermix", "tau=0.8", baseline=False)
    {'simulate': '--set fishermix.tau=0.8', 'fit': '--set tau=0.8'}
    """
    if setting is None:
        return {}
    simulate = {"simulate": f"--set {name}.{setting}"}
    return simulate if baseline else {**simulate, "fit": f"--set {setting}"}


def print_hyper(rows: Sequence[Mapping[str, Any]], options: Mapping[str, str]) -> None:
    """Print the table of hyper-parameters, and how to set one.

    Parameters
    ----------
    rows
        Of :func:`hyper_table`.
    options
        Of :func:`example_options`.
    """
    if not rows:
        print_line("It has no hyper-parameters.")
        return
    table = [[row["name"], _typed(row["default"]), row["meaning"] or "not documented"] for row in rows]
    print_table(["hyper-parameter", "default", "meaning"], table)
    if options:
        typed = [f"fedmoments {command} … {option}" for command, option in options.items()]
        print_line()
        print_line(f"To set one: {', or '.join(typed)}")


def _needs(preset: Any, **hyper: Any) -> Any:
    """Return what statistics a head needs; a baseline, which sends none, has no such thing."""
    return getattr(preset.make(**hyper), "needs", None)


def _is_taken(preset: Any, name: str, value: Any) -> bool:
    try:
        preset.make(**{name: value})
    except ValueError:
        return False
    return True


def _typed(value: Any) -> str:
    """Return a value as it is typed after ``--set``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _others(preset: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield hyper-parameters with other values: what makes the preset itself last, numbers that grade first."""
    ranks = {float: 0, bool: 1, str: 2, int: 3}
    settings = preset.make().settings()
    for name in sorted(settings, key=lambda name: (name in preset.defaults, ranks.get(type(settings[name]), 4))):
        value = settings[name]
        if isinstance(value, bool):
            yield name, [not value]
        elif isinstance(value, float) and value > 0:
            yield name, [_a_little_less(value)]
        elif isinstance(value, int) and value > 1:
            yield name, [value // 2]
        elif isinstance(value, str):
            named = _VALUE.findall(raw_meaning(preset.head, name))
            yield name, [other for other in named if other != value]


def _a_little_less(value: float) -> float:
    """Return a number one less in its first digit: 0.8 of 0.9, 2e-05 of 3e-05; and half of one that begins with 1."""
    exact = Decimal(repr(value))
    first = Decimal(1).scaleb(exact.adjusted())
    return float(exact - first if exact >= 2 * first else exact / 2)


EXAMPLE = example("fedmoments heads --dim 384 --classes 77", "fedmoments heads fishermix")


@command("heads", EXAMPLE)
def heads(
    name: Annotated[str | None, positional(help="Head or baseline to explain; leave it out to list all.")] = None,
    *,
    dim: Annotated[int, typed(help="Feature dimensions d of the example client.")] = 512,
    classes: Annotated[int, typed(help="Classes C that the example client holds.")] = 100,
    json: Json = False,
) -> None:
    """List all heads with what a client sends, its cost and the source of each; and all baselines.

    With a name, explain that head or baseline and its hyper-parameters.
    """
    if name is None:
        _list(dim, classes, json=json)
    else:
        _explain(name, dim, classes, json=json)


def _list(dim: int, classes: int, *, json: bool) -> None:
    from fedmoments.core.heads import head_names
    from fedmoments.core.heads.registry import TARGET_HEADS
    from fedmoments.core.observations import plain_moments

    rows = [_describe(name, dim, classes) for name in head_names()]
    others, baselines = [_describe(name, dim + 1, 1) for name in TARGET_HEADS], _baselines()
    if json:
        print_json({"dim": dim, "classes": classes, "heads": rows, "targets": others, "baselines": baselines})
        return
    print_line("Start with 'auto'. To compare with a paper, use the head of its name.")
    print_line(
        f"Bytes are those of one client with d = {dim} feature dimensions and {plural(classes, 'class')} (--dim, "
        "--classes)."
    )
    print_line()
    columns = ["head", "bytes per client", "each client sends", "what it is", "paper"]
    table = [[r["name"], readable_bytes(r["bytes"]), plain_moments(r["sends"]), r["summary"], r["paper"]] for r in rows]
    print_table(columns, table, right=columns[1:2])
    print_line()
    print_line(
        "Bytes leave out the counts, one whole number per class. fed3r-rf sends random features, 5,000 by default."
    )
    print_line()
    print_line("Heads that predict numbers or several labels; bytes for one target (measure --targets, fit, evaluate):")
    print_line()
    targets = [[r["name"], readable_bytes(r["bytes"]), "one matrix", r["summary"]] for r in others]
    print_table(columns[:4], targets, right=columns[1:2])
    print_line()
    print_line("Baselines, for comparison in simulations; what their clients send cannot be added up:")
    print_line()
    compared = [[b["name"], b["sends"], b["summary"], b["paper"]] for b in baselines]
    print_table(["baseline", "each client sends", "what it is", "paper"], compared)
    print_line()
    print_line("'fedmoments heads NAME' explains one and its hyper-parameters")


def _describe_baseline(name: str) -> dict[str, Any]:
    return next(described for described in _baselines() if described["name"] == name)


def _explain(name: str, dim: int, classes: int, *, json: bool) -> None:
    from fedmoments.core.heads import presets
    from fedmoments.core.heads.registry import TARGET_HEADS
    from fedmoments.study.baselines import baselines

    known = {**presets(), **TARGET_HEADS, **baselines()}
    if name not in known:
        raise UnknownNameError("head or baseline", name, known)
    baseline = name in baselines() and name not in presets()
    rows = hyper_table(known[name])
    options = example_options(name, hyper_example(known[name]), baseline=baseline)
    if name in TARGET_HEADS:
        dim, classes, options = dim + 1, 1, {"fit": options["fit"]}
    description = _describe_baseline(name) if baseline else _describe(name, dim, classes)
    if json:
        priced = {} if baseline else {"classes": classes}
        print_json({"baseline": baseline, **description, **priced, "parameters": rows, "examples": options})
        return
    print_line(f"{name}{' (baseline)' if baseline else ''}: {description['summary']}")
    print_line(f"from: {description['paper']}")
    print_line(f"each client sends: {description['sends'] if baseline else _priced(description, classes)}")
    print_line()
    print_hyper(rows, options)


def _priced(description: dict[str, Any], classes: int) -> str:
    """Return what a client sends for a head, and how much that is."""
    from fedmoments.core.observations import plain_moments

    floats, size = f"{description['formula']} floats", readable_bytes(description["bytes"])
    apart = "; the server keeps clients apart" if description["keeps_clients_apart"] else ""
    sends, price = description["sends"], f"{size} for d = {description['dim']}, C = {classes}"
    return f"{plain_moments(sends)} ({sends}: {floats}, {price}{apart})"


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
    from fedmoments.core.heads.registry import TARGET_HEADS

    preset = {**presets(), **TARGET_HEADS}[name]
    head = preset.make()
    width = head.mapped_dim(dim) or dim
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
