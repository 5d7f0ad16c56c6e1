"""The leak report: what a contribution in the clear reveals to whoever reads it, worked out from its outline.

========  =======================================================================================================
severity  what can be done with the contribution alone
========  =======================================================================================================
exposed   something about a single sample is computed exactly: its features, or that it was there
weak      something about single samples can be guessed better than by chance
counts    which classes are held, and how many samples of each
========  =======================================================================================================

With n samples of a class (or of a row of means), in d dimensions:

- n = 1: the sum is the sample.
- class grams and n = 2: with mean m, S/2 − m mᵀ = δ δᵀ has rank one, and the samples are m ± δ. So it is for a gram, if
  one class has two samples and all others have one.
- power sums of g degrees and n ≤ g: Newton's identities give the n values of every coordinate, as a set (of few
  possible ones, where a degree between is missing).
- second moments over n ≤ d samples: a sample lies in the span of the matrix, another vector does not (almost surely),
  so membership of a known vector is certain. Above d the test becomes a guess by leverage xᵀB⁻¹x. If features are
  isotropic and of one length, that of a non-member is d/n·(1 ± √(2/n)) and that of a member d/n·(1 − d/n) as much
  around, so that a member is ranked above a non-member with probability Φ(d/(2√n)). ``weak`` ends where that is 0.6.
  Other features spread more and give away less: on sentence embeddings (d = 384) it was 1.00 up to n = d, 0.91 at 2d,
  0.70 at 4d and 0.59 at 9d.
- a scatter sketch of r rows: see :mod:`fedmoments.privacy.sketch_leaks`. At r = n − |C| it tells what a gram tells;
  below that, membership is guessed from how much of a sample's difference from its mean lies in the directions told.
- a feature map that is neither linear nor narrower than its input: sums behind it may determine samples, see
  :mod:`fedmoments.privacy.map_leaks`.
- counts of categories behind the map of a raw table: they are exact, and a small one says that somebody of a class has
  a rare category. Whoever knows all but one of a class knows the last one's categories.
- second moments, where one sample of a class alone has a column that is not what the others share (a feature behind a
  ReLU that is 0 for all others): its row of the matrix is that sample. See :mod:`fedmoments.privacy.rare_values`.
- a mean over few samples: each has the weight 1/n. On the same data, a sample is told from another of its class with
  probability 0.95, 0.87, 0.74, 0.63, 0.56 for n = 2, 3, 5, 10, 20 by its distance to the mean.

Features are what is revealed, not images or sentences; how much of those features give away depends on the encoder.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedmoments.core.observations.parts import Revealed
from fedmoments.core.statistics import MOMENTS, Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import DERIVED
from fedmoments.errors import InputError
from fedmoments.privacy.outline import Outline
from fedmoments.privacy.rare_values import SECOND_MOMENTS
from fedmoments.privacy.sketch_findings import sketch_sayings

__all__ = ["COUNTS", "EXPOSED", "TITLES", "WEAK", "Finding", "LeakReport", "guessing", "revealed_by"]

EXPOSED, WEAK, COUNTS = "exposed", "weak", "counts"
#: The gravest first.
SEVERITIES = (EXPOSED, WEAK, COUNTS)
#: Kind of a finding -> what it is about, where those of many contributions stand together.
TITLES = {
    "sample": "the feature vector of the only sample of a class",
    "pair": "the feature vectors of both samples of a class",
    "alone": "feature vectors, from columns that one sample alone has",
    "values": "every coordinate's values, from power sums over few samples",
    "inversion": "feature vectors, from behind a map that expands",
    "categories": "how many samples of each class have each category or gap",
    "rare": "that somebody of a class has a rare category",
    "membership": "whether a known sample was there, from second moments",
    "span": "whether a known sample was there, from the rows of a sketch",
    "outlier": "how a single sample differs from its mean, from a row of a sketch",
    "few": "roughly the samples, from a mean over few",
    "unknown": "unknown: moments of your own",
    "counts": "which classes are held, and how many samples of each",
}
#: A guess at membership that is right with less probability than this is not reported; a coin has 0.5.
GUESSED = 0.6
#: So many classes are named in a sentence.
NAMED = 5


@dataclass(frozen=True)
class Finding:
    """One thing that a contribution reveals.

    Parameters
    ----------
    kind
        ``sample``, ``pair``, ``alone``, ``values``, ``inversion``, ``membership``, ``span``, ``outlier``, ``few``,
        ``rare``, ``unknown``, ``categories`` or ``counts``.
    severity
        ``exposed``, ``weak`` or ``counts``.
    sentence
        What is revealed, and from what.
    labels
        Classes that it is about.
    samples
        How many samples it is about.
    """

    kind: str
    severity: str
    sentence: str
    labels: tuple[int, ...]
    samples: int


@dataclass(frozen=True)
class LeakReport:
    """What a contribution reveals.

    Parameters
    ----------
    outline
        Of the contribution.
    min_count
        Fewest samples that a mean should be over.
    class_names
        Of all classes; their numbers by default.
    findings
        The gravest first.

    Examples
    --------
    >>> labels, names = [0, 1, 1, 1, 2, 2, 2, 2, 2], ("a", "b", "c")
    >>> report = LeakReport.of_labels(labels, StatisticsSpec(), dim=64, class_names=names)
    >>> [(each.kind, each.severity, each.labels) for each in report.findings]
    [('sample', 'exposed', (0,)), ('few', 'weak', (1,)), ('counts', 'counts', (0, 1, 2))]
    >>> report.findings[0].sentence
    "the feature vector of the only sample, exactly, as its mean: class 'a'"
    >>> report.exposes
    True
    """

    outline: Outline
    min_count: int
    class_names: tuple[str, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls, contents: Statistics | Outline, *, min_count: int = 5, class_names: Sequence[str] | None = None
    ) -> "LeakReport":
        """Report on statistics, measured or outlined.

        Parameters
        ----------
        contents
            What is about to leave.
        min_count
            Fewest samples that a mean should be over.
        class_names
            Of all classes, for the sentences.

        Examples
        --------
        >>> stats = Statistics.of([[1.0, 2.0]] * 6, [0] * 6, StatisticsSpec.of("gram"), n_classes=2)
        >>> [each.kind for each in LeakReport.of(stats).findings]
        ['membership', 'counts']
        """
        if min_count < 1:
            raise InputError(f"min_count must be 1 or more, not {min_count}")
        outline = Outline.of(contents) if isinstance(contents, Statistics) else contents
        names = tuple(class_names or ())
        if names and outline.counts and max(outline.counts) >= len(names):
            raise InputError(f"there are {len(names)} class names, but a class has the number {max(outline.counts)}")
        finder = _Finder(outline, min_count, names)
        return cls(outline, min_count, names, finder.findings())

    @classmethod
    def of_labels(
        cls,
        labels: Any,
        spec: StatisticsSpec,
        dim: int,
        *,
        min_count: int = 5,
        class_names: Sequence[str] | None = None,
    ) -> "LeakReport":
        """Report on what would be measured of one client's samples, with labels (n,), in d dimensions."""
        return cls.of(Outline.of_labels(labels, spec, dim), min_count=min_count, class_names=class_names)

    @property
    def exposes(self) -> bool:
        """Whether something about a single sample can be computed exactly."""
        return any(finding.severity == EXPOSED for finding in self.findings)

    def about(self, *kinds: str) -> int:
        """Return how many samples the findings of these kinds are about.

        Examples
        --------
        >>> LeakReport.of_labels([0, 1, 1], StatisticsSpec(), dim=2).about("sample", "few")
        3
        """
        return sum(finding.samples for finding in self.findings if finding.kind in kinds)

    def rows(self) -> list[list[str]]:
        """Return the lines of a table: severity, what is revealed, how many classes and samples it is about.

        Examples
        --------
        >>> LeakReport.of_labels([0, 0], StatisticsSpec(), dim=2, min_count=1).rows()
        [['counts', 'which classes are held, and how many samples of each', '1', '2']]
        """
        return [[f.severity, f.sentence, f"{len(f.labels):,}", f"{f.samples:,}"] for f in self.findings]

    def summary(self) -> dict[str, Any]:
        """Return how many samples each kind of finding is about, by severity: small enough for a line of a record.

        Examples
        --------
        >>> LeakReport.of_labels([0, 1, 1], StatisticsSpec(), dim=2).summary()
        {'exposed': {'sample': 1}, 'weak': {'few': 2}, 'counts': {'counts': 3}}
        """
        severities: dict[str, Any] = {}
        for finding in self.findings:
            kinds = severities.setdefault(finding.severity, {})
            kinds[finding.kind] = kinds.get(finding.kind, 0) + finding.samples
        return severities

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
        return {
            "moments": list(self.outline.spec.sent),
            "dim": self.outline.dim,
            **({} if self.outline.behind is None else {"map": self.outline.behind.to_dict()}),
            "samples": self.outline.n_samples,
            "classes": len(self.outline.counts),
            "min_count": self.min_count,
            "exposes": self.exposes,
            **({"sketches": [sketch.to_dict() for sketch in self.outline.sketches]} if self.outline.sketches else {}),
            "findings": [
                {
                    "kind": finding.kind,
                    "severity": finding.severity,
                    "sentence": finding.sentence,
                    "classes": [_name(label, self.class_names) for label in finding.labels],
                    "samples": finding.samples,
                }
                for finding in self.findings
            ],
        }


class _Finder:
    """Works out the findings of one outline."""

    def __init__(self, outline: Outline, min_count: int, names: tuple[str, ...]) -> None:
        self.outline, self.min_count, self.names = outline, min_count, names
        self.moments = outline.spec.moments
        self.single = {label for label, rows in outline.rows.items() if min(rows) == 1}

    def findings(self) -> tuple[Finding, ...]:
        """Return all, the gravest first."""
        if not self.outline.counts:
            return ()
        findings = [*self._samples(), *self._pairs(), *self._alone(), *self._values(), *self._inverted()]
        findings += self._membership()
        findings += [*self._sketches(), *self._few(), *self._unknown(), self._counts(), *self._categories()]
        return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))

    def _finding(self, kind: str, severity: str, text: str, labels: Sequence[int], samples: int) -> Finding:
        return Finding(kind, severity, f"{text}: {self._listed(labels)}", tuple(labels), samples)

    def _listed(self, labels: Sequence[int]) -> str:
        shown = ", ".join(f"'{_name(label, self.names)}'" for label in labels[:NAMED])
        more = f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else ""
        return f"class{'es' if len(labels) > 1 else ''} {shown}{more}"

    def _samples(self) -> list[Finding]:
        labels = sorted(self.single)
        alone = sum(rows.count(1) for rows in self.outline.rows.values())
        text = "the feature vector of the only sample, exactly, as its mean"
        return [self._finding("sample", EXPOSED, text, labels, alone)] if labels else []

    def _unknown(self) -> list[Finding]:
        """Moments that are not built in: what they reveal is unknown."""
        names = [name for name in sorted(self.moments - DERIVED.keys()) if not MOMENTS.is_built_in(name)]
        if not names:
            return []
        text = f"what {', '.join(names)} tell, which are not a part of fedmoments, is not known here"
        return [self._finding("unknown", WEAK, text, sorted(self.outline.counts), self.outline.n_samples)]

    def _pairs(self) -> list[Finding]:
        """Classes of two samples whose second moment is known."""
        two = [label for label, count in self.outline.counts.items() if count == 2 and label not in self.single]
        alone = len(two) == 1 and self.outline.n_samples == len(self.outline.counts) + 1  # all others have one
        if not two or not ("class_grams" in self.moments or ("gram" in self.moments and alone)):
            return []
        text = "the feature vectors of both samples, exactly, as mean ± the root of their scatter"
        return [self._finding("pair", EXPOSED, text, two, 2 * len(two))]

    def _alone(self) -> list[Finding]:
        """Return samples of which a row of a second moment is made alone."""
        found = self.outline.alone if SECOND_MOMENTS & self.moments else {}
        text = "the feature vector of a sample that alone has some column, exactly, as that row of a second moment"
        return [self._finding("alone", EXPOSED, text, sorted(found), sum(found.values()))] if found else []

    def _values(self) -> list[Finding]:
        """Classes of so few samples that power sums determine every coordinate's values."""
        degrees = 1 + sum(name in self.moments for name in ("class_squares", "class_thirds", "class_fourths"))
        known = {2} if "class_grams" in self.moments else set()
        labels = [label for label, n in self.outline.counts.items() if 2 <= n <= degrees and n not in known]
        text = "every coordinate's values, exactly (not which belong together), from its power sums"
        return (
            [self._finding("values", EXPOSED, text, labels, sum(self.outline.counts[label] for label in labels))]
            if labels
            else []
        )

    def _inverted(self) -> list[Finding]:
        """Classes, or all samples together, of which a map that expands tells as many numbers as there are unknowns."""
        behind, moments = self.outline.behind, self.moments
        if behind is None:
            return []
        counts, total = self.outline.counts, self.outline.n_samples
        labels = [
            label
            for label, rows in self.outline.rows.items()
            if behind.determines(min(rows), (), "")
            or behind.determines(counts[label], moments, "class_grams")
            or behind.determines(total, moments, "gram")
        ]
        if not labels:
            return []
        text = (
            f"the feature vectors of all samples: behind {behind.text}, at least as many numbers are told of a class "
            "or of all classes as its samples have coordinates"
        )
        return [self._finding("inversion", EXPOSED, text, labels, sum(counts[label] for label in labels))]

    def _categories(self) -> list[Finding]:
        """Say that categories are counted, and that small counts point at somebody."""
        behind, outline = self.outline.behind, self.outline
        if behind is None or not behind.counted:
            return []
        pairs = ", and each pair of them" if {"gram", "class_grams"} & self.moments else ""
        text = f"how many samples of each class have each of {len(behind.counted)} categories and gaps{pairs}"
        findings = [self._finding("categories", COUNTS, text, sorted(outline.counts), outline.n_samples)]
        small = [(label, n) for label, told in outline.categories.items() for n in told if n < self.min_count]
        if small:
            text = (
                f"that somebody of a class has a rare category: {len(small):,} of these counts are of fewer than "
                f"{self.min_count} samples"
            )
            labels = sorted({label for label, _ in small})
            findings.append(self._finding("rare", WEAK, text, labels, sum(n for _, n in small)))
        return findings

    def _membership(self) -> list[Finding]:
        """Second moments over few samples."""
        dim = self.outline.dim
        groups, what = self._second_moments()
        certain = {labels: count for labels, count in groups.items() if count <= dim}
        guessed = {k: n for k, n in groups.items() if n > dim and guessing(dim, n) >= GUESSED}
        sure = f"whether a known sample was there, with certainty, for {what} is over d = {dim} samples or fewer"
        findings = [self._of_groups(EXPOSED, sure, certain)] if certain else []
        if guessed:
            right = guessing(dim, min(guessed.values()))
            how = f"right with probability {right:.2f} if features are isotropic, less as a rule"
            text = f"a guess whether a known sample was there, from {what} ({how})"
            findings.append(self._of_groups(WEAK, text, guessed))
        return findings

    def _second_moments(self) -> tuple[dict[tuple[int, ...], int], str]:
        """Return the classes that a second moment is over -> samples, and what it is called; nothing without one."""
        if "class_grams" in self.moments:
            return {(label,): count for label, count in self.outline.counts.items()}, "the second moment of a class"
        if "gram" in self.moments:
            return {tuple(self.outline.counts): self.outline.n_samples}, "one second moment of all classes"
        return {}, ""

    def _sketches(self) -> list[Finding]:
        """Return findings from sketches, without pairs and membership where second moments reveal these already."""
        done = {"pair", "membership"} if {"gram", "class_grams"} & self.moments else set()
        findings = []
        for saying in sketch_sayings(self.outline, guessing, GUESSED):
            if saying.kind not in done:
                severity = EXPOSED if saying.certain else WEAK
                findings.append(self._finding(saying.kind, severity, saying.text, saying.labels, saying.samples))
        return findings

    def _of_groups(self, severity: str, text: str, groups: dict[tuple[int, ...], int]) -> Finding:
        labels = [label for group in groups for label in group]
        return self._finding("membership", severity, text, labels, sum(groups.values()))

    def _few(self) -> list[Finding]:
        """Means over fewer samples than wanted, but more than one."""
        thin = {label: [n for n in rows if 1 < n < self.min_count] for label, rows in self.outline.rows.items()}
        labels = [label for label, rows in thin.items() if rows]
        text = f"a mean over fewer than {self.min_count} samples, each of which it resembles"
        return [self._finding("few", WEAK, text, labels, sum(map(sum, thin.values())))] if labels else []

    def _counts(self) -> Finding:
        text = "which classes are held, and how many samples of each"
        return Finding("counts", COUNTS, text, tuple(self.outline.counts), self.outline.n_samples)


def revealed_by(reports: Iterable[LeakReport]) -> tuple[Revealed, ...]:
    """Return what several clients' contributions reveal, a line a kind of finding and severity, the gravest first.

    Examples
    --------
    >>> reports = [LeakReport.of_labels(labels, StatisticsSpec(), dim=64) for labels in ([0], [0, 0, 1], [1] * 9)]
    >>> [(line.severity, line.clients, line.samples) for line in revealed_by(reports)]
    [('exposed', 2, 2), ('weak', 1, 2), ('counts', 3, 13)]
    """
    samples: dict[tuple[str, str], list[int]] = {}
    for report in reports:
        for finding in report.findings:
            samples.setdefault((finding.severity, finding.kind), []).append(finding.samples)
    lines = [Revealed(severity, TITLES[kind], len(of), sum(of)) for (severity, kind), of in samples.items()]
    return tuple(sorted(lines, key=lambda line: SEVERITIES.index(line.severity)))


def guessing(dim: int, count: int) -> float:
    """Return how probably a member is ranked above a non-member by a second moment over more than d samples.

    Parameters
    ----------
    dim
        d, of isotropic features of one length.
    count
        n > d, the samples that it is over.

    Examples
    --------
    >>> round(guessing(64, 640), 2), round(guessing(384, 7680), 2)
    (0.9, 0.99)
    """
    return 0.5 * (1 + math.erf(dim / (2 * math.sqrt(2 * count))))


def _name(label: int, names: tuple[str, ...]) -> str:
    return names[label] if names else str(label)
