"""What rounds of tuning add to a head: the question, the answer, and curves against rounds, bytes and compute."""

from fedmoments.core.observations import Observation, Report
from fedmoments.core.observations.tuning import Reached, Tuning, TuningRun
from fedmoments.pages.answer import noise_words
from fedmoments.pages.figure import facets, figure
from fedmoments.pages.formats import bytes_, clients_words, count, list_of, percent, points, sentences
from fedmoments.pages.markup import Html, Node, join, tag
from fedmoments.pages.shell import Opening, section
from fedmoments.pages.tuning_chart import AXES, Against, accuracy_range, optimiser_name, tuning_chart
from fedmoments.settings.plan import RANDOM

__all__ = ["curves_section", "tuning_answer", "tuning_question"]

#: What a stage is called in a sentence.
STAGES = {"lp": "linear probing", "ft": "fine-tuning", "feat": "training the encoder"}
#: Heights of the plot in a chart of its own row, and in one beside another.
TALL, BESIDE = 276.0, 236.0


def tuning_question(_: Report, tuning: Tuning) -> Html:
    """Return the question that a page of tuning answers."""
    who = f"With {clients_words(tuning.clients, tuning.split)}"
    stage = STAGES.get(tuning.stage, "federated optimisation")
    return join([who, f", what is a one‑shot head worth as a start of {stage}?"])


def tuning_answer(report: Report, tuning: Tuning) -> Html:
    """Return the answer: how much sooner and how much higher than from a random start, and what tuning adds."""
    ended = [run for run in tuning.runs if run.end.known]
    if not ended:
        return join(["No accuracy was measured: there were no test samples, or no round was finished."])
    leader = _leader(tuning, ended)
    random = tuning.random(leader.optimiser)
    if leader.start == RANDOM or random is None or not random.end.known:
        how = f", {optimiser_name(leader.optimiser)} reaches "
        said: list[Node] = ["From ", _name(leader.start), how, _share(leader.end), _after(leader.rounds)]
    else:
        said = [*_target(random), " From ", _name(leader.start), ", ", *_sooner(leader), ", and "]
        said += _higher(report, leader, random)
    highest = max(ended, key=_height)
    more: list[Node] = []
    if highest is not leader and _height(highest) - _height(leader) > 5e-4:
        more = [" The highest of all runs is ", _name(highest.start), f" with {optimiser_name(highest.optimiser)}, at "]
        more += [_share(highest.end), "."]
    return join([*said, _gain(report, leader), ".", *more])


def _height(run: TuningRun) -> float:
    return run.end.mean or 0.0


def _leader(tuning: Tuning, ended: list[TuningRun]) -> TuningRun:
    """Return the run to speak of: of the first optimiser with a random start, the one that ends highest."""
    for optimiser in tuning.optimisers:
        mine = [run for run in ended if run.optimiser == optimiser and run.start != RANDOM]
        if mine and tuning.random(optimiser):
            return max(mine, key=_height)
    return max([run for run in ended if run.start != RANDOM] or ended, key=_height)


def _target(random: TuningRun) -> list[Node]:
    """Return where the random start ends."""
    spent = random.spent("total_bytes").mean
    rounds = f" after {count(random.rounds.mean, 'round')} of "
    cost = f" ({bytes_(spent)})" if spent else ""
    return ["A random start reaches ", _share(random.end), rounds, optimiser_name(random.optimiser), f"{cost}."]


def _sooner(run: TuningRun) -> list[Node]:
    """Return when a run was where the random start ends."""
    reached = run.reached
    if reached is None:
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


def _higher(report: Report, run: TuningRun, random: TuningRun) -> list[Node]:
    """Return how much higher a run ends than the random start, if that can be told."""
    gain = _height(run) - _height(random)
    if noise := _noise(report, run.end, random.end):
        return ["ends at ", _share(run.end), f", {noise}"]
    way = "higher" if gain >= 0 else "lower"
    return ["ends ", tag("strong", f"{points(gain)} {way}"), ", at ", _share(run.end)]


def _gain(report: Report, run: TuningRun) -> str | None:
    """Return what tuning added to the head that a run started from."""
    if run.start == RANDOM or run.first.mean is None or run.end.mean is None:
        return None
    gain = run.end.mean - run.first.mean
    if noise := _noise(report, run.end, run.first):
        return f": {'up' if gain >= 0 else 'down'} from the head’s own {percent(run.first.mean)}, {noise}"
    return f": {points(gain)} {'above' if gain >= 0 else 'below'} the head itself"


def _noise(report: Report, one: Observation, other: Observation) -> str:
    if one.mean is None or other.mean is None:
        return ""
    deviation = max(one.spread or 0.0, other.spread or 0.0)
    return noise_words(report, (one.mean, other.mean), deviation, min(len(one.known), len(other.known)))


def _name(start: str) -> Html:
    return tag("span", start, class_="head")


def _share(accuracy: Observation) -> Html:
    return tag("strong", percent(accuracy.mean), class_="nowrap")


def _after(rounds: Observation) -> str:
    return f" after {count(rounds.mean, 'round')}"


# ---------------------------------------------------------------------------------------------- curves


#: What a page of this section alone says.
ALONE = Opening(tuning_question, tuning_answer, "what tuning adds to a head")


@section("curves", "What rounds add to a head", place=80, of="tuning", opens=ALONE)
def curves_section(_: Report, tuning: Tuning) -> Html | None:
    """Return the curves of every optimiser, or None when no accuracy is known."""
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
    known = [against for against in AXES.values() if _has(tuning, optimiser, against)]
    heights = [TALL, *([BESIDE] * (len(known) - 1) if len(known) > 2 else [TALL])]
    charts = [
        chart
        for against, height in zip(known, heights, strict=False)
        if (chart := tuning_chart(tuning, optimiser, against, bounds=bounds, height=height))
    ]
    if not charts:
        return None
    costs = [figure(chart, beside=len(charts) > 2) for chart in charts[1:]]
    return tag(
        "div",
        tag("h3", optimiser_name(optimiser)),
        figure(charts[0]),
        facets(costs) if costs else None,
        class_="below",
    )


def _has(tuning: Tuning, optimiser: str, against: Against) -> bool:
    tested = [waypoint for run in tuning.under(optimiser) for waypoint in run.trail if waypoint.accuracy.known]
    return any(against.waypoint(waypoint) is not None for waypoint in tested)


def _notes(tuning: Tuning, bounds: tuple[float, float]) -> str:
    stopped = [curve for run in tuning.runs for curve in run.curves if curve.stopped]
    missing = list(dict.fromkeys(run.start for run in tuning.runs if not run.end.known))
    return sentences(
        _priced(tuning),
        f"Lines: mean over {count(tuning.seeds, 'seed')}; bands: lowest and highest seed." if tuning.seeds > 1 else "",
        *_of_random(tuning, bounds[0]),
        "A seed that stopped early keeps its last point." if stopped else "",
        f"No accuracy is known of {list_of(missing)}." if missing else "",
    )


def _priced(tuning: Tuning) -> str:
    """Return whose costs are drawn."""
    words = {"bytes": "Bytes", "flops": "FLOPs"}
    known = [word for key, word in words.items() if any(_has(tuning, name, AXES[key]) for name in tuning.optimisers)]
    return f"{' and '.join(known)} are those of all clients together, from the head’s own upload on." if known else ""


def _of_random(tuning: Tuning, floor: float) -> list[str]:
    """Return what the charts show of random starts."""
    randoms = [run for run in map(tuning.random, tuning.optimisers) if run]
    target = {tuning.target(run.optimiser) for run in randoms} - {None}
    least = min((run.first.mean for run in randoms if run.first.mean is not None), default=floor)
    free = (0, 0) in [(run.trail[0].round, run.trail[0].bytes) for run in randoms]
    return [
        "Dashed: where the random start ends." if target else "",
        f"The random start begins at {percent(least)}, below the axis." if least < floor else "",
        "Before its first round it has sent nothing: its line of bytes begins after that." if free else "",
    ]
