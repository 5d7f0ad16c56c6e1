"""What rounds of tuning add to a head: the question, the answer, and curves against rounds, bytes and compute."""

from collections.abc import Callable

from fedmoments.report.answer import noise_words
from fedmoments.report.axes import both
from fedmoments.report.formats import bytes_, count, list_of, percent, points, split_words
from fedmoments.report.markup import Html, Node, join, tag
from fedmoments.report.plain import as_number, mapping
from fedmoments.report.reading import Results
from fedmoments.report.tuning_axes import AXES, Against, optimiser_name
from fedmoments.report.tuning_charts import accuracy_range, curve_chart
from fedmoments.report.tuning_reading import RANDOM, Figure, Reached, Run, Tuning

__all__ = ["curves_section", "is_tuning", "tuning_answer", "tuning_question"]

#: What a stage is called in a sentence.
STAGES = {"lp": "linear probing", "ft": "fine-tuning", "feat": "training the encoder"}
#: Heights of a chart of its own row, and of one beside another.
TALL, BESIDE = 350.0, 310.0
#: Width of a chart beside another.
SIDE = 420.0


def is_tuning(results: Results) -> bool:
    """Return whether these are runs of tuning alone, and not the heads of a simulation."""
    return not results.rows and bool(mapping(results.raw.get("tuning")))


def tuning_question(results: Results) -> Html:
    """Return the question that a page of tuning answers."""
    about = results.tuning.about
    clients = as_number(about.get("clients"))
    who = f"With {count(clients, 'client')}" if clients else "With these clients"
    who += f" ({split_words(about['split'])})" if clients and about.get("split") else ""
    stage = STAGES.get(str(about.get("stage")), "federated optimisation")
    return join([who, f", what is a one‑shot head worth as a start of {stage}?"])


def tuning_answer(results: Results) -> Html:
    """Return the answer: how much sooner and how much higher than from a random start, and what tuning adds."""
    tuning = results.tuning
    ended = [run for run in tuning.runs if run.end]
    if not ended:
        return join(["No accuracy was measured: there were no test samples, or no round was finished."])
    leader = _leader(tuning, ended)
    random = tuning.random(leader.optimiser)
    if leader.start == RANDOM or random is None or random.end is None:
        how = f", {optimiser_name(leader.optimiser)} reaches "
        said: list[Node] = ["From ", _name(leader.start), how, _share(leader.end), _after(leader.rounds)]
    else:
        said = [*_target(random), " From ", _name(leader.start), ", ", *_sooner(leader), ", and "]
        said += _higher(results, leader, random)
    top = max(ended, key=_height)
    more: list[Node] = []
    if top is not leader and _height(top) - _height(leader) > 5e-4:
        more = [" The highest of all runs is ", _name(top.start), f" with {optimiser_name(top.optimiser)}, at "]
        more += [_share(top.end), "."]
    return join([*said, _gain(results, leader), ".", *more])


def _height(run: Run) -> float:
    return run.end.mean if run.end else 0.0


def _leader(tuning: Tuning, ended: list[Run]) -> Run:
    """Return the run to speak of: of the first optimiser with a random start, the one that ends highest."""
    for optimiser in tuning.optimisers:
        mine = [run for run in ended if run.optimiser == optimiser and run.start != RANDOM]
        if mine and tuning.random(optimiser):
            return max(mine, key=_height)
    return max([run for run in ended if run.start != RANDOM] or ended, key=_height)


def _target(random: Run) -> list[Node]:
    """Return where the random start ends."""
    spent = random.spent("bytes")
    rounds = f" after {count(random.rounds.mean, 'round')} of " if random.rounds else " with "
    cost = f" ({bytes_(spent)})" if spent else ""
    return ["A random start reaches ", _share(random.end), rounds, optimiser_name(random.optimiser), f"{cost}."]


def _sooner(run: Run) -> list[Node]:
    """Return when a run was where the random start ends."""
    reached = run.reached
    if reached is None or reached.target is None:
        return [f"{optimiser_name(run.optimiser)} begins at ", _share(run.first)]
    if not reached.hit or reached.rounds is None:
        return ["it ", tag("strong", "never"), " gets there"]
    some = "" if reached.hit == reached.seeds else f", on {reached.hit} of {count(reached.seeds, 'seed')}"
    spent = f" ({bytes_(reached.bytes)})" if reached.bytes is not None else ""
    when = "before its first round" if reached.rounds == 0 else f"after {_rounds(reached)}"
    return ["it is there ", tag("strong", when), f"{spent}{some}"]


def _rounds(reached: Reached) -> str:
    number = reached.rounds or 0.0
    return count(number, "round") if number == int(number) else f"{number:.1f} rounds"


def _higher(results: Results, run: Run, random: Run) -> list[Node]:
    """Return how much higher a run ends than the random start, if that can be told."""
    gain = _height(run) - _height(random)
    if noise := _noise(results, run.end, random.end):
        return ["ends at ", _share(run.end), f", {noise}"]
    way = "higher" if gain >= 0 else "lower"
    return ["ends ", tag("strong", f"{points(gain)} {way}"), ", at ", _share(run.end)]


def _gain(results: Results, run: Run) -> str | None:
    """Return what tuning added to the head that a run started from."""
    if run.start == RANDOM or run.first is None or run.end is None:
        return None
    gain = run.end.mean - run.first.mean
    if noise := _noise(results, run.end, run.first):
        return f": {'up' if gain >= 0 else 'down'} from the head’s own {percent(run.first.mean)}, {noise}"
    return f": {points(gain)} {'above' if gain >= 0 else 'below'} the head itself"


def _noise(results: Results, one: Figure | None, other: Figure | None) -> str:
    if one is None or other is None:
        return ""
    deviation = max(one.deviation or 0.0, other.deviation or 0.0)
    return noise_words(results, (one.mean, other.mean), deviation, min(one.seeds, other.seeds))


def _name(start: str) -> Html:
    return tag("span", start, class_="head")


def _share(figure: Figure | None) -> Html:
    return tag("strong", percent(figure.mean if figure else None), class_="nowrap")


def _after(rounds: Figure | None) -> str:
    return f" after {count(rounds.mean, 'round')}" if rounds else ""


# ---------------------------------------------------------------------------------------------- curves


def curves_section(results: Results) -> Html | None:
    """Return the curves of every optimiser, or None when no accuracy is known."""
    tuning = results.tuning
    bounds = accuracy_range(tuning)
    if bounds is None or not tuning.runs:
        return None
    shown = [chart for optimiser in tuning.optimisers if (chart := _figures(tuning, optimiser, bounds))]
    return join([tag("p", _lead(tuning), class_="lead"), *shown, tag("p", _notes(tuning, bounds), class_="note")])


def _lead(tuning: Tuning) -> str:
    words = "Every line is a start: accuracy on test samples against rounds, and against what the rounds cost."
    if tuning.heads:
        words += " Rings are one-shot heads, without any tuning."
    return words


def _figures(tuning: Tuning, optimiser: str, bounds: tuple[float, float]) -> Html | None:
    """Return an optimiser's charts: rounds over the whole width, costs below it side by side."""

    def drawer(against: Against, *, alone: bool) -> Callable[[float], Html]:
        def draw(width: float) -> Html:
            size = (width, TALL) if alone else (min(width, SIDE), BESIDE)
            return curve_chart(tuning, optimiser, against, size=size, bounds=bounds) or Html("")

        return draw

    known = [against for against in AXES.values() if _has(tuning, optimiser, against)]
    if not known:
        return None
    first, *costs = known
    beside = [tag("div", tag("figure", both(drawer(against, alone=False))), class_="facet") for against in costs]
    if len(costs) == 1:
        beside = [tag("figure", both(drawer(costs[0], alone=True)))]
    return tag(
        "div",
        tag("h3", optimiser_name(optimiser)),
        tag("figure", both(drawer(first, alone=True))),
        tag("div", *beside, class_="facets" if len(costs) > 1 else None) if beside else None,
        class_="below",
    )


def _has(tuning: Tuning, optimiser: str, against: Against) -> bool:
    spots = [spot for run in tuning.under(optimiser) for spot, figure in run.trail if figure]
    return any(against.spot(spot) is not None for spot in spots)


def _notes(tuning: Tuning, bounds: tuple[float, float]) -> str:
    compute = any(_has(tuning, optimiser, AXES["flops"]) for optimiser in tuning.optimisers)
    priced = any(_has(tuning, optimiser, AXES["bytes"]) for optimiser in tuning.optimisers)
    costs = " and ".join(word for word, known in (("Bytes", priced), ("FLOPs", compute)) if known)
    found = [f"{costs} are those of all clients together, from the head’s own upload on."] if costs else []
    if tuning.seeds > 1:
        found.append(f"Lines: mean over {count(tuning.seeds, 'seed')}; bands: lowest and highest seed.")
    randoms = [run for run in tuning.runs if run.start == RANDOM]
    if any(tuning.target(run.optimiser) is not None for run in randoms):
        found.append("Dashed: where the random start ends.")
    below = [run.first.mean for run in randoms if run.first and run.first.mean < bounds[0]]
    if below:
        found.append(f"The random start begins at {percent(min(below))}, below the axis.")
    known = [spot for run in randoms for spot, _ in run.trail]
    if any(spot.round == 0 and spot.bytes == 0 for spot in known):
        found.append("Before its first round it has sent nothing: its line of bytes begins after that.")
    if any(curve.stopped for run in tuning.runs for curve in run.curves):
        found.append("A seed that stopped early keeps its last point.")
    missing = [run.start for run in tuning.runs if run.end is None]
    if missing:
        found.append(f"No accuracy is known of {list_of(list(dict.fromkeys(missing)))}.")
    return " ".join(found)
