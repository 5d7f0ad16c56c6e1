"""What was tuned, by whom and how, in words; and which curves stopped early."""

from collections.abc import Callable, Mapping, Sequence

from fedmoments.core.observations import Report
from fedmoments.core.observations.tuning import Tuning, TuningCurve
from fedmoments.pages.blocks import bullets, fold, pairs
from fedmoments.pages.formats import THIN, count, list_of
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section
from fedmoments.pages.tuning_chart import optimiser_name
from fedmoments.settings.plan import TuningPlan
from fedmoments.settings.setting import split_words

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
    "fedavg": (("server_step", "server step"),),
    "fedavgm": (("server_step", "server step"), ("server_momentum", "server momentum")),
    "fedadam": (("server_step", "server step"), ("beta_1", "β₁"), ("beta_2", "β₂"), ("tau", "τ")),
    "fedyogi": (("server_step", "server step"), ("beta_1", "β₁"), ("beta_2", "β₂"), ("tau", "τ")),
    "feddyn": (("alpha", "α"),),
    "mimelite": (("server_step", "server step"), ("server_momentum", "momentum")),
    "mime": (("server_step", "server step"), ("server_momentum", "momentum")),
    "fedprox": (("mu", "μ"), ("server_step", "server step")),
    "scaffold": (("server_step", "server step"),),
}


@section("run", "What was run", place=100, short="What was run", of="tuning")
def run_section(_: Report, tuning: Tuning) -> Html | None:
    """Return the section, or None when nothing was tuned."""
    if not tuning.runs:
        return None
    known = [
        ("Stage", STAGES.get(tuning.stage, tuning.stage)),
        ("Clients", _clients(tuning)),
        ("A round", _sampling(tuning)),
        ("Optimisers", _optimisers(tuning)),
        ("A client", _client(tuning)),
        ("Learning rate", _by_start(tuning, lambda curve: curve.plan.step)),
        ("Temperature", _by_start(tuning, lambda curve: curve.temperature)),
        ("Batch normalisation", _batchnorm(tuning)),
        ("Early stop", _validation(tuning)),
        ("Seeds", list_of([*_seeds(tuning)], 12)),
    ]
    return join([pairs(known), _stops(tuning)])


def _curves(tuning: Tuning) -> list[TuningCurve]:
    return [curve for run in tuning.runs for curve in run.curves]


def _seeds(tuning: Tuning) -> dict[str, None]:
    return dict.fromkeys(str(curve.seed) for curve in _curves(tuning))


def _clients(tuning: Tuning) -> str | None:
    clients, split = tuning.clients, tuning.split
    words = [count(clients, "client") if clients else "", split_words(split) if split else ""]
    return ", ".join(word for word in words if word) or None


def _sampling(tuning: Tuning) -> str | None:
    words = _taking_part(tuning)
    words += [f"at most {count(tuning.rounds, 'round')}"] if tuning.rounds is not None else []
    return "; ".join(words) or None


def _taking_part(tuning: Tuning) -> list[str]:
    """Return how many clients take part in a round, and how they are drawn."""
    drawn, clients, again = tuning.per_round, tuning.clients, tuning.replacement
    if not drawn:
        return []
    if clients and drawn >= clients:
        return ["all clients take part"]
    words = [f"{count(drawn, 'client')} take part" if drawn != 1 else "1 client takes part"]
    if again is not None:
        words.append("drawn from all of them each time" if again else "each drawn once before any is drawn again")
    return words


def _optimisers(tuning: Tuning) -> str:
    return "; ".join(_optimiser(tuning, name) for name in tuning.optimisers)


def _optimiser(tuning: Tuning, name: str) -> str:
    """Return an optimiser with its numbers."""
    plans = [curve.plan for run in tuning.under(name) for curve in run.curves]
    numbers = [(word, _values(plans, key)) for key, word in SERVER.get(name, ())]
    words = ", ".join(f"{word} {value}" for word, value in numbers)
    return f"{optimiser_name(name)} ({words})" if words else optimiser_name(name)


def _client(tuning: Tuning) -> str:
    """Return the numbers of a client's SGD."""
    plans = [curve.plan for curve in _curves(tuning)]
    values = {key: _values(plans, key) for key in MINE}
    words = [SPECIAL.get((key, value), MINE[key].format(value)) for key, value in values.items()]
    return f"SGD, {', '.join(words)}"


#: Of a client's SGD: key of a plan, and how one says it; and values that are said otherwise.
MINE = {
    "batch_size": "batches of {}",
    "epochs": "{} passes over its samples",
    "momentum": "momentum {}",
    "weight_decay": "weight decay {}",
}
SPECIAL = {("batch_size", "0"): "all samples in one batch", ("epochs", "1"): "1 pass over its samples"}


def _values(plans: Sequence[TuningPlan], key: str) -> str:
    """Return a number of plans, or the different ones."""
    known = dict.fromkeys(getattr(plan, key) for plan in plans)
    return " · ".join(f"{number:g}" for number in known)


def _by_start(tuning: Tuning, value: Callable[[TuningCurve], float | None]) -> str | None:
    """Return a number of every start, once for all that share it; each optimiser with its own where they differ."""
    numbers_by: dict[str, dict[str, str]] = {}
    for run in tuning.runs:
        known = dict.fromkeys(number for curve in run.curves if (number := value(curve)) is not None)
        if known:
            numbers_by.setdefault(run.optimiser, {})[run.start] = " · ".join(f"{number:g}" for number in known)
    words = {optimiser: _grouped(numbers) for optimiser, numbers in numbers_by.items()}
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


def _batchnorm(tuning: Tuning) -> str:
    if tuning.batchnorm is None:
        return "not used: the encoder is not trained" if tuning.stage == "lp" else "not stated"
    return BATCHNORMS.get(tuning.batchnorm, tuning.batchnorm)


def _validation(tuning: Tuning) -> str:
    plans = [curve.plan for curve in _curves(tuning)]
    shares = {plan.validation for plan in plans}
    if not any(shares):
        return "none: every round is run, and clients train on all their samples"
    share = " · ".join(f"{100 * number:g}{THIN}%" for number in sorted(filter(None, shares)))
    every, patience = _values(plans, "check_every"), _values(plans, "patience")
    words = f"{share} of each client’s samples are not trained on, but tested"
    words += " every round" if every == "1" else f" every {every} rounds"
    return f"{words}; {patience} tests without a better one end a run"


def _stops(tuning: Tuning) -> Html | None:
    stopped = [curve for curve in _curves(tuning) if curve.stopped]
    if not stopped:
        return None
    where = [
        f"{optimiser_name(curve.optimiser)}, seed {curve.seed}, after round {curve.last.round:,}" for curve in stopped
    ]
    shown = [
        join([tag("b", curve.start), f" ({place}): {curve.stopped}"])
        for curve, place in zip(stopped, where, strict=True)
    ]
    title = f"{count(len(stopped), 'curve')} stopped early"
    return fold(title, bullets(shown, most=MOST, elsewhere="results.json"), unfolded=len(stopped) < UNFOLDED)
