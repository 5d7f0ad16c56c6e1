"""What was tuned, by whom and how, in words; and which curves stopped early."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedmoments.pages.blocks import bullets, fold, pairs
from fedmoments.pages.formats import THIN, count, list_of, split_words
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section
from fedmoments.pages.tuning_chart import optimiser_name
from fedmoments.pages.tuning_reading import Curve, Tuning

__all__ = ["run_section"]

#: Curves that stopped early and are listed.
MOST = 24
#: Fewer are not folded.
UNFOLDED = 6

STAGES = {
    "lp": "lp, linear probing: the head alone is trained, on features of a frozen encoder",
    "ft": "ft, fine-tuning: encoder and head are trained",
    "feat": "feat: the encoder is trained under a frozen head",
}
BATCHNORMS = {
    "frozen": "frozen: the encoder’s own running means and variances are used, and stay",
    "averaged": "averaged: clients normalise by their batches, and running values are averaged like parameters",
}
#: Numbers of an optimiser besides the clients' own: key of a plan, and how it is called.
SERVER = {
    "fedavg": (("server_lr", "server step"),),
    "fedavgm": (("server_lr", "server step"), ("server_momentum", "server momentum")),
    "fedadam": (("server_lr", "server step"), ("beta_1", "β₁"), ("beta_2", "β₂"), ("tau", "τ")),
    "fedprox": (("mu", "μ"), ("server_lr", "server step")),
    "scaffold": (("server_lr", "server step"),),
}
#: The server's step where a plan says null; 1 of the others.
STEPS = {"fedadam": 0.01}


@section("run", "What was run", place=100, short="What was run")
def run_section(results: Results) -> Html | None:
    """Return the section, or None when nothing was tuned."""
    tuning = results.tuning
    if not tuning.runs:
        return None
    known = [
        ("Stage", STAGES.get(str(tuning.about.get("stage")), _word(tuning.about.get("stage")))),
        ("Clients", _clients(tuning)),
        ("A round", _sampling(tuning)),
        ("Optimisers", _optimisers(tuning)),
        ("A client", _client(tuning)),
        ("Learning rate", _by_start(tuning, lambda curve: as_number(curve.plan.get("lr")))),
        ("Temperature", _by_start(tuning, lambda curve: curve.temperature)),
        ("Batch normalisation", _batchnorm(tuning)),
        ("Early stop", _validation(tuning)),
        ("Seeds", list_of([*_seeds(tuning)], 12)),
    ]
    return join([pairs(known), _stops(tuning)])


def _word(value: Any) -> str | None:
    return None if value is None else str(value)


def _curves(tuning: Tuning) -> list[Curve]:
    return [curve for run in tuning.runs for curve in run.curves]


def _seeds(tuning: Tuning) -> dict[str, None]:
    return dict.fromkeys(curve.seed for curve in _curves(tuning))


def _clients(tuning: Tuning) -> str | None:
    clients, split = as_number(tuning.about.get("clients")), tuning.about.get("split")
    words = [count(clients, "client") if clients else "", split_words(split) if split else ""]
    return ", ".join(word for word in words if word) or None


def _sampling(tuning: Tuning) -> str | None:
    rounds = as_number(tuning.about.get("rounds"))
    words = _taking_part(tuning.about)
    words += [f"at most {count(rounds, 'round')}"] if rounds is not None else []
    return "; ".join(words) or None


def _taking_part(about: Mapping[str, Any]) -> list[str]:
    """Return how many clients take part in a round, and how they are drawn."""
    drawn, clients = as_number(about.get("per_round")), as_number(about.get("clients"))
    if not drawn:
        return []
    if clients and drawn >= clients:
        return ["all clients take part"]
    words = [f"{count(drawn, 'client')} take part" if drawn != 1 else "1 client takes part"]
    if isinstance(again := about.get("replacement"), bool):
        words.append("drawn from all of them each time" if again else "each drawn once before any is drawn again")
    return words


def _optimisers(tuning: Tuning) -> str:
    return "; ".join(_optimiser(tuning, name) for name in tuning.optimisers)


def _optimiser(tuning: Tuning, name: str) -> str:
    """Return an optimiser with its numbers."""
    default = {"server_lr": STEPS.get(name, 1.0)}
    plans = [curve.plan for run in tuning.under(name) for curve in run.curves]
    plans = [{**plan, **default} if plan and plan.get("server_lr") is None else plan for plan in plans]
    numbers = [(word, _values(plans, key)) for key, word in SERVER.get(name, ())]
    told = ", ".join(f"{word} {value}" for word, value in numbers if value)
    return f"{optimiser_name(name)} ({told})" if told else optimiser_name(name)


def _client(tuning: Tuning) -> str | None:
    """Return the numbers of a client's SGD."""
    plans = [curve.plan for curve in _curves(tuning)]
    values = {key: value for key in MINE if (value := _values(plans, key))}
    words = [SPECIAL.get((key, value), MINE[key].format(value)) for key, value in values.items()]
    return f"SGD, {', '.join(words)}" if words else None


#: Of a client's SGD: key of a plan, and how one says it; and values that are said otherwise.
MINE = {
    "batch_size": "batches of {}",
    "epochs": "{} passes over its samples",
    "momentum": "momentum {}",
    "weight_decay": "weight decay {}",
}
SPECIAL = {("batch_size", "0"): "all samples in one batch", ("epochs", "1"): "1 pass over its samples"}


def _values(plans: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return a number of plans, or the different ones."""
    known = dict.fromkeys(number for plan in plans if (number := as_number(plan.get(key))) is not None)
    return " · ".join(f"{number:g}" for number in known)


def _by_start(tuning: Tuning, value: Callable[[Curve], float | None]) -> str | None:
    """Return a number of every start, once for all that share it; each optimiser with its own where they differ."""
    found: dict[str, dict[str, str]] = {}
    for run in tuning.runs:
        known = dict.fromkeys(number for curve in run.curves if (number := value(curve)) is not None)
        if known:
            found.setdefault(run.optimiser, {})[run.start] = " · ".join(f"{number:g}" for number in known)
    words = {optimiser: _grouped(numbers) for optimiser, numbers in found.items()}
    if not words:
        return None
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{optimiser_name(optimiser)}: {said}" for optimiser, said in words.items())


def _grouped(numbers: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for start, number in numbers.items():
        groups.setdefault(number, []).append(start)
    if len(groups) == 1:
        return next(iter(groups))
    return ", ".join(f"{number} from {list_of(starts)}" for number, starts in groups.items())


def _batchnorm(tuning: Tuning) -> str | None:
    given = tuning.about.get("batchnorm")
    if given is None:
        return "not concerned: the encoder is not trained" if tuning.about.get("stage") == "lp" else "not stated"
    return BATCHNORMS.get(str(given), str(given))


def _validation(tuning: Tuning) -> str | None:
    plans = [curve.plan for curve in _curves(tuning)]
    shares = {as_number(plan.get("validation")) for plan in plans} - {None}
    if not any(shares):
        return None if not shares else "none: every round is run, and clients train on all their samples"
    share = " · ".join(f"{100 * number:g}{THIN}%" for number in sorted(filter(None, shares)))
    every, patience = _values(plans, "check_every"), _values(plans, "patience")
    words = f"{share} of each client’s samples are not trained on, but tested"
    if every:
        words += " every round" if every == "1" else f" every {every} rounds"
    return f"{words}; {patience} tests without a better one end a run" if patience else words


def _stops(tuning: Tuning) -> Html | None:
    stopped = [curve for curve in _curves(tuning) if curve.stopped]
    if not stopped:
        return None
    where = [
        f"{optimiser_name(each.optimiser)}, seed {each.seed}, after round {each.spots[-1].round:,}" for each in stopped
    ]
    shown = [
        join([tag("b", curve.start), f" ({place}): {curve.stopped}"])
        for curve, place in zip(stopped, where, strict=True)
    ]
    title = f"{count(len(stopped), 'curve')} stopped early"
    return fold(title, bullets(shown, most=MOST, elsewhere="results.json"), unfolded=len(stopped) < UNFOLDED)
