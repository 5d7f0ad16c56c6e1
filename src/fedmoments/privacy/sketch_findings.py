"""What scatter sketches reveal, in sentences: the part of the leak report that is about them."""

from collections.abc import Callable
from dataclasses import dataclass

from fedmoments.privacy.outline import Outline
from fedmoments.privacy.sketch_leaks import SketchOutline

__all__ = ["ALIKE", "TELLING", "Saying", "told_by_sketches"]

#: A row with this cos² or more to a sample's difference from its mean is that difference.
ALIKE = 0.99
#: From this on, one row is like one sample: it is told of.
LIKE = 0.9
#: A sketch of fewer rows, as a share of n − |C|, lets membership be guessed hardly better than by a coin.
TELLING = 0.05


@dataclass(frozen=True)
class Saying:
    """One thing that sketches reveal.

    Parameters
    ----------
    kind
        ``pair``, ``membership``, ``span`` or ``outlier``.
    certain
        Whether it is computed exactly.
    text
        What is revealed.
    labels, samples
        What it is about.
    """

    kind: str
    certain: bool
    text: str
    labels: tuple[int, ...]
    samples: int


def told_by_sketches(outline: Outline, guessing: Callable[[int, int], float], least: float) -> list[Saying]:
    """Return what the sketches of an outline reveal, one saying a kind.

    Parameters
    ----------
    outline
        Of one contribution, or of several merged ones.
    guessing
        (d, n) -> how probably membership is guessed from a whole second moment.
    least
        Guesses that are right with less probability are not told of.

    Examples
    --------
    >>> from fedmoments.statistics import SketchPlan, StatisticsSpec
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=9, share=1.0))
    >>> outline = Outline.of_labels([0, 0, 1, 2], spec, dim=64)
    >>> [(each.kind, each.certain, each.samples) for each in told_by_sketches(outline, lambda d, n: 0.5, 0.6)]
    [('pair', True, 2), ('membership', True, 4)]
    """
    rows = [each for each in outline.sketches if each.rank]
    whole = [each for each in rows if each.spans(outline.dim)]
    part = [each for each in rows if not each.spans(outline.dim) and each.share >= TELLING]
    near = [each for each in rows if each.told is not None and each.told.nearest >= LIKE]
    found = [*_pairs(outline, whole), *_whole(outline, whole, guessing, least)]
    return found + [each for each in (_part(outline, part), _outlier(outline, near)) if each is not None]


def _saying(outline: Outline, kind: str, text: str, of: list[SketchOutline], *, certain: bool) -> Saying:
    """Say something of all classes; of one contribution it is about all samples, of several about those with spare."""
    one = len(outline.sketches) == 1
    samples = outline.n_samples if one else sum(each.spare for each in of)
    return Saying(kind, certain, text, tuple(outline.counts), samples)


def _pairs(outline: Outline, whole: list[SketchOutline]) -> list[Saying]:
    """One class of two samples, and all others of one: the row is what the two differ by."""
    pairs = [each for each in whole if each.spare == 1]
    if not pairs:
        return []
    two = tuple(label for label, count in outline.counts.items() if count == 2 or len(outline.sketches) > 1)
    text = "the feature vectors of both samples, exactly, as mean ± the only row of the sketch/√2"
    return [Saying("pair", certain=True, text=text, labels=two, samples=2 * len(pairs))]


def _whole(
    outline: Outline, whole: list[SketchOutline], guessing: Callable[[int, int], float], least: float
) -> list[Saying]:
    """Sketches of full rank: what a second moment tells."""
    dim, found = outline.dim, []
    certain = [each for each in whole if each.spare < dim]
    guessed = [each for each in whole if each.spare >= dim and guessing(dim, each.spare) >= least]
    if certain:
        text = (
            "whether a known sample was there, with certainty, for the sketch tells the whole scatter of n − |C| = "
            f"{max(each.spare for each in certain)} samples, fewer than d = {dim}"
        )
        found.append(_saying(outline, "membership", text, certain, certain=True))
    if guessed:
        right = guessing(dim, min(each.spare for each in guessed))
        text = (
            f"a guess whether a known sample was there, from a sketch of the whole scatter in d = {dim} (right with "
            f"probability {right:.2f} if features are isotropic, less as a rule)"
        )
        found.append(_saying(outline, "membership", text, guessed, certain=False))
    return found


def _part(outline: Outline, part: list[SketchOutline]) -> Saying | None:
    """Sketches of some of the directions."""
    if not part:
        return None
    most = max(part, key=lambda each: each.share)
    rank = f"{most.rank} of the n − |C| = {most.spare} directions in which samples differ from their means"
    if most.told is not None:
        how = (
            f", which hold {most.told.mean:.0%} of a sample's difference on average and {most.told.worst:.0%} at worst"
        )
    elif most.energy is not None:
        how = f", which hold {most.energy:.0%} of all differences"
    else:
        how = f", which hold {most.share:.0%} of all differences or more"
    text = f"a guess whether a known sample was there, from {rank}{how}"
    return _saying(outline, "span", text, part, certain=False)


def _outlier(outline: Outline, near: list[SketchOutline]) -> Saying | None:
    """Rows that are nearly what one sample differs from its mean by."""
    if not near:
        return None
    cos2 = max(each.told.nearest for each in near if each.told)
    text = f"what one sample differs from its mean by: {cos2:.1%} of it is in a single row of the sketch"
    return Saying("outlier", cos2 >= ALIKE, text, tuple(outline.counts), len(near))
