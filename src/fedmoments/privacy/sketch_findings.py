"""What scatter sketches reveal, in sentences: the part of the leak report that is about them."""

from collections.abc import Callable
from dataclasses import dataclass

from fedmoments.core.statistics.sketches import ALL_CLASSES
from fedmoments.privacy.outline import Outline
from fedmoments.privacy.sketch_leaks import SketchOutline

__all__ = ["ALIKE", "TELLING", "Saying", "sketch_sayings"]

#: A row with this cos² or more to a sample's difference from its mean is that difference.
ALIKE = 0.99
#: From this on, one row is like one sample, and is reported.
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


def sketch_sayings(outline: Outline, guessing: Callable[[int, int], float], least: float) -> list[Saying]:
    """Return what the sketches of an outline reveal, one saying a kind.

    Parameters
    ----------
    outline
        Of one contribution, or of several merged ones.
    guessing
        (d, n) -> how probably membership is guessed from a whole second moment.
    least
        Guesses that are right with less probability are not reported.

    Examples
    --------
    >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=9, share=1.0))
    >>> outline = Outline.of_labels([0, 0, 1, 2], spec, dim=64)
    >>> [(saying.kind, saying.certain, saying.samples) for saying in sketch_sayings(outline, lambda d, n: 0.5, 0.6)]
    [('pair', True, 2), ('membership', True, 4)]
    """
    sketches = [sketch for sketch in outline.sketches if sketch.rank]
    whole = [sketch for sketch in sketches if sketch.spans(outline.dim)]
    part = [sketch for sketch in sketches if not sketch.spans(outline.dim) and sketch.share >= TELLING]
    return [
        *_pairs(outline, whole),
        *_whole(outline, whole, guessing, least),
        *_part(outline, part),
        *_outlier(outline, sketches),
    ]


def _saying(outline: Outline, kind: str, text: str, of: list[SketchOutline], *, certain: bool) -> Saying:
    """Say something of all classes; of one contribution it is about all samples, of several about those with spare."""
    own = tuple(sorted({sketch.label for sketch in of if sketch.label != ALL_CLASSES}))
    one = len(outline.sketches) == 1
    samples = outline.n_samples if one else sum(sketch.spare + (1 if own else 0) for sketch in of)
    return Saying(kind, certain, text, own or tuple(outline.counts), samples)


def _pairs(outline: Outline, whole: list[SketchOutline]) -> list[Saying]:
    """One class of two samples, and all others of one, or rows of that class: a row is what the two differ by."""
    pairs = [sketch for sketch in whole if sketch.spare == 1]
    if not pairs:
        return []
    own = tuple(sorted({sketch.label for sketch in pairs if sketch.label != ALL_CLASSES}))
    two = own or tuple(label for label, count in outline.counts.items() if count == 2 or len(outline.sketches) > 1)
    text = "the feature vectors of both samples, exactly, as mean ± the only row of the sketch/√2"
    return [Saying("pair", certain=True, text=text, labels=two, samples=2 * len(pairs))]


def _whole(
    outline: Outline, whole: list[SketchOutline], guessing: Callable[[int, int], float], least: float
) -> list[Saying]:
    """Sketches of full rank: what a second moment tells."""
    dim, sayings = outline.dim, []
    certain = [sketch for sketch in whole if sketch.spare < dim]
    guessed = [sketch for sketch in whole if sketch.spare >= dim and guessing(dim, sketch.spare) >= least]
    if certain:
        text = (
            "whether a known sample was there, with certainty, for the sketch tells the whole scatter of n − |C| = "
            f"{max(sketch.spare for sketch in certain)} samples, fewer than d = {dim}"
        )
        sayings.append(_saying(outline, "membership", text, certain, certain=True))
    if guessed:
        right = guessing(dim, min(sketch.spare for sketch in guessed))
        text = (
            f"a guess whether a known sample was there, from a sketch of the whole scatter in d = {dim} (right with "
            f"probability {right:.2f} if features are isotropic, less as a rule)"
        )
        sayings.append(_saying(outline, "membership", text, guessed, certain=False))
    return sayings


def _part(outline: Outline, part: list[SketchOutline]) -> list[Saying]:
    """Sketches of some of the directions."""
    if not part:
        return []
    most = max(part, key=lambda sketch: sketch.share)
    whole = f"n − |C| = {most.spare}" if most.label == ALL_CLASSES else f"n − 1 = {most.spare} of a class's"
    rank = f"{most.rank} of the {whole} directions in which samples differ from their means"
    if most.exposure is not None:
        mean, worst = most.exposure.mean, most.exposure.worst
        how = f", which hold {mean:.0%} of a sample's difference on average and {worst:.0%} at worst"
    elif most.energy is not None:
        how = f", which hold {most.energy:.0%} of all differences"
    else:
        how = f", which hold {most.share:.0%} of all differences or more"
    text = f"a guess whether a known sample was there, from {rank}{how}"
    return [_saying(outline, "span", text, part, certain=False)]


def _outlier(outline: Outline, sketches: list[SketchOutline]) -> list[Saying]:
    """Rows that are nearly what one sample differs from its mean by."""
    exposed = [(sketch.label, sketch.exposure.nearest) for sketch in sketches if sketch.exposure is not None]
    near = [(label, cos2) for label, cos2 in exposed if cos2 >= LIKE]
    if not near:
        return []
    most = max(cos2 for _, cos2 in near)
    text = f"what one sample differs from its mean by: {most:.1%} of it is in a single row of the sketch"
    own = tuple(sorted({label for label, _ in near} - {ALL_CLASSES}))
    return [Saying("outlier", most >= ALIKE, text, own or tuple(outline.counts), len(near))]
