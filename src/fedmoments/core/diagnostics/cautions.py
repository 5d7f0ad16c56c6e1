"""What deserves a second look, in plain words, with what to do about it: one function a kind.

Each looks at what was found and returns one caution for all classes that it concerns, worst first, or None. A figure
that chance alone could show is not a caution.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, gammaincinv

from fedmoments.core.diagnostics.holdings import Holdings, Neighbours
from fedmoments.core.diagnostics.shapes import Gaussianity
from fedmoments.core.diagnostics.spectrum import Spectrum
from fedmoments.core.gaussian import CovarianceBias

__all__ = ["CLOSE", "HEAVY", "SHIFTED", "Caution", "Findings", "cautions_of"]

Floats = NDArray[np.float64]

#: Excess kurtosis of a Laplace distribution: tails are called heavy when half of a class's coordinates have more.
HEAVY = 3.0
#: Relative bias of the free covariance's trace that matters, of a class and over all classes.
SHIFTED, SHIFTED_OVERALL = 0.5, 0.25
#: Probability that chance alone gives a caution of bias, and directions that a class is taken to spread in: the fewer,
#: the more a trace varies. tr(Σ)²/tr(Σ²) of single classes is 6 to 25 on BANKING77, 15 to 35 on PACS and CIFAR-10.
CHANCE, DIRECTIONS = 1e-3, 5.0
#: Two classes are near-duplicates below this distance, in units of the spread inside: at best, 31 % are confused.
CLOSE = 1.0


@dataclass(frozen=True)
class Caution:
    """One kind of trouble, and the classes that have it.

    Parameters
    ----------
    kind
        A short name that does not change.
    what
        What was found, in one sentence.
    advice
        What to do about it.
    classes
        Labels of the classes that it concerns, worst first; none when it concerns all of them together.
    figures
        What was measured of each of these classes.
    partners
        With near-duplicates, the other class of each.
    """

    kind: str
    what: str
    advice: str
    classes: tuple[int, ...] = ()
    figures: tuple[float, ...] = ()
    partners: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that cautions are drawn from; None where it is not known."""

    dim: int
    holdings: Holdings
    gaussianity: Gaussianity | None = None
    spectra: tuple[Spectrum, ...] = ()
    bias: CovarianceBias | None = None
    neighbours: Neighbours | None = None


def cautions_of(findings: Findings) -> tuple[Caution, ...]:
    """Return all cautions, those that touch a sample's privacy or a class's existence first.

    Examples
    --------
    >>> [caution.kind for caution in cautions_of(Findings(2, Holdings(np.array([8, 1, 0]))))]
    ['empty-class', 'few-samples']
    """
    return tuple(caution for rule in RULES if (caution := rule(findings)) is not None)


def _empty(findings: Findings) -> Caution | None:
    classes = np.flatnonzero(findings.holdings.counts == 0)
    if not len(classes):
        return None
    return Caution(
        "empty-class",
        f"{_classes(len(classes))} no sample at all, and can never be predicted.",
        "Find a client that holds such samples, or leave the class out of the class list.",
        *_listed(classes, np.zeros(len(classes))),
    )


def _single(findings: Findings) -> Caution | None:
    singles, rows = findings.holdings.singles, findings.holdings.rows
    if singles is None or not rows or not singles.any():
        return None
    classes = np.flatnonzero(singles)
    total = int(singles.sum())
    return Caution(
        "single-sample",
        f"{total:,} of {rows:,} client means ({_percent(total / rows)}) are of one sample: its feature vector is sent "
        "as it is.",
        "Let clients withhold such classes (fedmoments client --min-count), or merge clients before they send.",
        *_listed(classes, singles[classes]),
    )


def _one_client(findings: Findings) -> Caution | None:
    held_by = findings.holdings.held_by
    if held_by is None or not (held_by == 1).any():
        return None
    classes = np.flatnonzero(held_by == 1)
    return Caution(
        "one-client",
        f"{_classes(len(classes))} one client mean only (K_c = 1): without a free covariance, such a class counts "
        "through shrinkage alone.",
        "Let clients send several means a class (--means-per-client 2), or squares or a gram as well.",
        *_listed(classes, findings.holdings.counts[classes]),
    )


def _few_samples(findings: Findings) -> Caution | None:
    counts = findings.holdings.counts
    classes = np.flatnonzero((counts > 0) & (counts <= findings.dim))
    if not len(classes):
        return None
    return Caution(
        "few-samples",
        f"{_classes(len(classes))} fewer samples than there are dimensions ({findings.dim:,}; the fewest: "
        f"{counts[classes].min():,}): a covariance of one such class is singular, and QDA depends on shrinkage.",
        "Prefer heads with one covariance for all classes (gh-lda, ridge) or that pool (gh-qda does), or fewer "
        "dimensions (a Fisher subspace, or measure --project).",
        *_listed(classes, counts[classes], least_first=True),
    )


def _singular(findings: Findings) -> Caution | None:
    singular = [spectrum for spectrum in findings.spectra if spectrum.before.condition is None]
    if not singular:
        return None
    first, *others = singular
    ranks = f"The {first.source} pooled covariance has rank {first.before.rank:,} in {findings.dim:,} dimensions"
    ranks += "".join(f", and the {other.source} one {other.before.rank:,}" for other in others)
    verb = "it is" if not others else "they are"
    sources = {spectrum.source for spectrum in singular}
    without = "; without it (fedcgs) expect poor accuracy" if "exact" in sources else ""
    means = "The rank of a free one is at most Σ(K_c − 1): several means a class (--means-per-client) raise it. "
    return Caution(
        "singular",
        f"{ranks}: {verb} singular, and everything beyond comes from shrinkage.",
        f"Keep the automatic shrinkage{without}. More clients or samples, or fewer dimensions, help. "
        f"{means if 'free' in sources else ''}Constant coordinates make a covariance singular, too.",
    )


def _heavy(findings: Findings) -> Caution | None:
    if findings.gaussianity is None:
        return None
    medians = findings.gaussianity.kurtosis.by_class[:, 1]
    classes = np.flatnonzero(medians > HEAVY)
    if not len(classes):
        return None
    return Caution(
        "heavy-tails",
        f"{_classes(len(classes))} heavy tails: half of the coordinates have an excess kurtosis beyond {HEAVY:g}, that "
        "of a Laplace distribution.",
        "Do not use QDA without pooling (gh-qda pools) or naive Bayes, nor trust their probabilities. Square roots of "
        "features that are never negative, taken before measuring, shorten tails.",
        *_listed(classes, medians[classes]),
    )


def _lost(findings: Findings) -> Caution | None:
    if findings.gaussianity is None or not findings.gaussianity.lost:
        return None
    lost = findings.gaussianity.lost
    return Caution(
        "lost-digits",
        f"Of {lost:,} pairs of a class and a dimension, skewness and kurtosis are not known: their sums of powers lost "
        "the digits, to an offset that is large against the spread, or to a coarse fixed point.",
        "Subtract a public offset before measuring (fedmoments.core.maps.Offset), or agree on a smaller norm bound.",
    )


def _biased(findings: Findings) -> Caution | None:
    if findings.bias is None:
        return None
    relative, overall = findings.bias.relative, findings.bias.overall
    dof = min(DIRECTIONS, float(findings.dim)) * np.maximum(findings.bias.held_by - 1.0, 0.0)
    known = np.isfinite(relative)
    classes = np.flatnonzero(known & _beyond_chance(relative, dof, CHANCE / max(int(known.sum()), 1), SHIFTED))
    moved = bool(_beyond_chance(np.array([overall]), np.array([dof[known].sum()]), CHANCE, SHIFTED_OVERALL)[0])
    if not len(classes) and not moved:
        return None
    where = f" (in {_number(len(classes))} by more than {_percent(SHIFTED)})" if len(classes) else ""
    size = f"{_off(overall)} over all classes" if moved else "off in some classes"
    return Caution(
        "feature-shift",
        f"The free covariance is {size}{where}: samples of a class differ from client to client by more than chance.",
        "Ask for the gram (gh-lda, fedcof-oracle, fed3r): exact covariances do not depend on who holds what. With "
        "client means alone, fedcof and lda-free stay usable: they do not weigh distances, which are on a wrong scale, "
        "against class shares. qda-free and nb-free lose most.",
        *_listed(classes, relative[classes]),
    )


def _beyond_chance(bias: Floats, dof: Floats, chance: float, least: float) -> NDArray[np.bool_]:
    """Return where a relative bias of a trace matters, and is outside what χ²/dof − 1 exceeds with that probability.

    A trace with ν degrees of freedom in p directions is distributed about as χ² with ν·p degrees of freedom.
    """
    half = 0.5 * np.maximum(dof, 1.0)
    low, high = (inverse(half, 0.5 * chance) / half - 1.0 for inverse in (gammaincinv, gammainccinv))
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(bias) > least) & ((bias < low) | (bias > high)))


def _off(bias: float) -> str:
    """Return a relative bias in words."""
    if bias >= 1.0:
        return f"{1.0 + bias:,.3g} times as large as the exact one"
    return f"{_percent(abs(bias))} too {'large' if bias > 0 else 'small'}"


def _duplicates(findings: Findings) -> Caution | None:
    if findings.neighbours is None:
        return None
    near = findings.neighbours
    with np.errstate(invalid="ignore"):
        close = np.flatnonzero(near.distance < CLOSE)
    pairs: dict[tuple[int, int], float] = {}
    for label in close.tolist():
        other = int(near.nearest[label])
        pairs[min(label, other), max(label, other)] = float(near.distance[label])
    if not pairs:
        return None
    order = sorted(pairs, key=lambda pair: (pairs[pair], pair))
    worst = float(near.error[list(order[0])].max())
    return Caution(
        "near-duplicates",
        f"{_number(len(order), 'pair')} of classes {'is' if len(order) == 1 else 'are'} closer to each other than the "
        f"spread inside: even the best rule confuses {_percent(worst)} of the closest two.",
        "Look whether both names mean the same or labels are mixed up; merge such classes, or use another encoder.",
        tuple(pair[0] for pair in order),
        tuple(pairs[pair] for pair in order),
        tuple(pair[1] for pair in order),
    )


#: In the order in which they are told.
RULES: tuple[Callable[[Findings], Caution | None], ...] = (
    _single,
    _empty,
    _duplicates,
    _biased,
    _one_client,
    _few_samples,
    _singular,
    _heavy,
    _lost,
)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(number: int, what: str = "class") -> str:
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def _classes(number: int) -> str:
    return f"{_number(number)} {'has' if number == 1 else 'have'}"


def _listed(
    classes: NDArray[np.integer], figures: Iterable[float] | NDArray[np.number[Any]], *, least_first: bool = False
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return labels and figures, the largest figures first (or the least)."""
    values = np.asarray(figures, dtype=np.float64)
    order = np.argsort(values if least_first else -np.abs(values), kind="stable")
    return tuple(int(label) for label in classes[order]), tuple(float(value) for value in values[order])
