"""What a client lets out: its own rules, applied to its samples before anything is measured.

The server asks; the client decides. Samples that a rule keeps back are never measured, so the rule holds exactly for
every moment, whatever is later derived from it. Unless its own rules say otherwise, a client withholds every class of
which it has fewer than 5 samples: the mean of one sample is that sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError, PolicyError, PrivacyError, UnknownNameError
from fedmoments.federation.policy_values import SMALL_CLASSES, SMALL_SKETCHES, TUNING, check_values, checked_moments
from fedmoments.federation.terms import Terms
from fedmoments.privacy.dp import check_rules
from fedmoments.privacy.obfuscation import Obfuscation, parse_obfuscation
from fedmoments.privacy.sketch_limits import SHARE, SPARE, limit_sketch, require_open, spare_samples
from fedmoments.statistics import Statistics, StatisticsSpec
from fedmoments.statistics.accumulator import running_positions
from fedmoments.wire import Withheld

__all__ = ["SMALL_CLASSES", "SMALL_SKETCHES", "TUNING", "ClientPolicy", "require_clear"]


@dataclass(frozen=True)
class ClientPolicy:
    """The rules of one client.

    Parameters
    ----------
    min_count
        A class with fewer samples is withheld whole, and so is one whose several means would be over fewer. To send
        small classes, say 1.
    max_per_class
        Only the first so many samples of a class, in the client's order, are measured; None: all.
    max_bytes
        Cap on one contribution; None: what the terms allow.
    moments
        Only these moments, and those that follow from them, may leave; None: any. Counts and sums are part of all.
    max_means
        Into at most so many means a class may be split; None: any number.
    report_withheld
        Whether the server is told how many classes and samples were kept back.
    small_classes
        ``withhold``, or ``merge``: a class whose several means would be over fewer than `min_count` samples is sent as
        one mean; and where one node serves several clients, a class that is too small at a client is measured by the
        client of the node that has most of it, if there are enough together. See
        :mod:`fedmoments.privacy.small_classes`.
    sketch_share
        A scatter sketch spans at most this share of the client's n − |C| spare samples, however much the terms ask for;
        0 sends the trace of the scatter alone. See :mod:`fedmoments.privacy.sketch_leaks` for what a share tells.
    sketch_spare
        With fewer spare samples, no row of a sketch leaves.
    small_sketches
        What then happens: ``trace`` (the trace of the scatter is sent alone), or ``refuse`` (nothing is sent).
    obfuscate
        How counts are blurred, such as ``laplace:0.5``; None: not at all. No differential privacy, see
        :mod:`fedmoments.privacy.obfuscation`.
    require_secure
        Whether to take part only where contributions are added up behind masks (secure sums).
    helper
        Public key (64 hexadecimal digits) of the helper that its operator knows: take part only in secure sums through
        that one. None: through whichever the terms name.
    max_epsilon
        Take part only under differential privacy with an epsilon of at most this; None: any, or none.
    tuning
        The most that may be trained on this client's samples: ``none``, ``lp`` (a head), ``feat`` (an encoder) or
        ``ft`` (both). Trained parameters, less those that were sent, are gradients of the samples, and reveal more
        than moments: nothing is trained unless this says so.
    max_rounds
        In at most so many rounds of a federation's tuning, of all its runs together; None: any number. It bounds sums
        of losses, too: two for each round (a test and a check), two for the start, and one for temperatures.

    Examples
    --------
    >>> policy = ClientPolicy(min_count=2, max_per_class=3)
    >>> policy.select([0, 1, 1, 1, 1])
    (array([False,  True,  True,  True, False]), Withheld(classes=1, samples=2))
    """

    min_count: int = 5
    max_per_class: int | None = None
    max_bytes: int | None = None
    moments: tuple[str, ...] | None = None
    max_means: int | None = None
    report_withheld: bool = True
    small_classes: str = "withhold"
    sketch_share: float = SHARE
    sketch_spare: int = SPARE
    small_sketches: str = "trace"
    obfuscate: str | None = None
    require_secure: bool = False
    max_epsilon: float | None = None
    helper: str | None = None
    # Not in the repr, which stands for what a contribution is made by: consent to tuning changes no contribution.
    tuning: str = field(default="none", repr=False)
    max_rounds: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_values({rule.name: getattr(self, rule.name) for rule in fields(self)})
        if self.moments is not None:
            object.__setattr__(self, "moments", checked_moments(self.moments))

    @property
    def merges(self) -> bool:
        """Whether small classes are merged where they can be."""
        return self.small_classes == "merge"

    @property
    def obfuscation(self) -> Obfuscation | None:
        """How counts are blurred."""
        return None if self.obfuscate is None else parse_obfuscation(self.obfuscate)

    # ---------------------------------------------------------------------------------------------- applying it

    def require(self, terms: Terms) -> None:
        """Raise PolicyError unless the terms ask for nothing that this policy forbids.

        Examples
        --------
        >>> from fedmoments.federation import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec.of("class_grams"))
        >>> ClientPolicy().require(terms)
        >>> ClientPolicy(moments=("gram",)).require(terms)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: the federation 'pets' asks for what this client's policy forbids: moments: asked
        are class_grams, class_norms, class_squares, allowed are gram, sums; ...
        """
        broken = []
        if self.moments is not None:
            allowed = StatisticsSpec.of(*self.moments).moments
            excess = terms.spec.moments - allowed
            if excess:
                broken.append(f"moments: asked are {_listed(excess)}, allowed are {_listed(allowed)}")
        asked = terms.spec.means_per_client
        if self.max_means is not None and asked > self.max_means:
            broken.append(f"max_means: asked are {asked} means of a class, allowed are {self.max_means}")
        broken += self._exposed(terms)
        broken += self._unfit(terms)
        if broken:
            raise PolicyError(
                f"the federation '{terms.name}' asks for what this client's policy forbids: {'; '.join(broken)}; "
                "nothing was measured: widen the policy, or stay out"
            )

    def _unfit(self, terms: Terms) -> list[str]:
        """Return what the terms ask for that this policy's rules, or the terms' own promises, cannot be applied to."""
        broken = []
        try:
            require_open(terms.spec, terms.privacy)
        except PrivacyError as error:
            broken.append(f"moments: {error}")
        if self.obfuscation is not None:
            try:
                self.obfuscation.require(terms.spec)
            except InputError as error:
                broken.append(f"obfuscate: {error}")
        return broken

    def _exposed(self, terms: Terms) -> list[str]:
        """Return in which ways the terms protect less than this policy asks for."""
        agreed, broken = terms.privacy, []
        if self.require_secure and agreed.secure is None:
            broken.append("require_secure: the terms let the server read every contribution, allowed are secure sums")
        if self.helper is not None and agreed.helper != self.helper:
            asked = f"a helper with the key {agreed.helper[:16]}…" if agreed.helper else "no helper at all"
            broken.append(f"helper: the terms name {asked}, allowed is the one with {self.helper[:16]}…")
        if self.max_epsilon is not None and (agreed.epsilon is None or agreed.epsilon > self.max_epsilon):
            asked = "no noise at all" if agreed.epsilon is None else f"an epsilon of {agreed.epsilon:g}"
            broken.append(f"max_epsilon: the terms promise {asked}, allowed is {self.max_epsilon:g}")
        try:
            check_rules(
                agreed,
                min_count=self.min_count,
                max_per_class=self.max_per_class,
                obfuscation=self.obfuscate,
                small_classes=self.small_classes,
            )
        except PrivacyError as error:
            broken.append(f"noise: {error}")
        return broken

    def require_tuning(self, terms: Terms, stage: str, rounds: int = 1) -> None:
        """Raise PolicyError unless this policy allows that something is trained on the client's samples.

        Parameters
        ----------
        terms
            Of the federation that asks; under secure sums or an epsilon nothing is trained, whatever the policy says.
        stage
            ``lp``, ``feat`` or ``ft``.
        rounds
            Rounds in all that this client would have taken part in.

        Examples
        --------
        >>> from fedmoments.federation import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
        >>> ClientPolicy(tuning="ft").require_tuning(terms, "lp")
        >>> ClientPolicy().require_tuning(terms, "lp")
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: the federation 'pets' asks for what this client's policy forbids: tuning: asked
        is lp, allowed is none; ...
        """
        require_clear(terms)
        broken = []
        if TUNING.index(stage) > TUNING.index(self.tuning):
            broken.append(
                f"tuning: asked is {stage}, allowed is {self.tuning}; updates reveal more than moments, so whoever "
                f'wants it says so: fedmoments client … --allow-tuning {stage}, or tuning = "{stage}" under [policy]'
            )
        if self.max_rounds is not None and rounds > self.max_rounds:
            broken.append(f"max_rounds: it would be round {rounds}, allowed are {self.max_rounds}")
        if self.obfuscate is not None:
            broken.append("obfuscate: counts are to be blurred, but tuning tells the exact number of samples")
        if broken:
            raise PolicyError(
                f"the federation '{terms.name}' asks for what this client's policy forbids: {'; '.join(broken)}; "
                "nothing was trained"
            )

    def require_sums(self, terms: Terms, sums: int) -> None:
        """Raise PolicyError when a node would have told more sums of losses than so many rounds need.

        Parameters
        ----------
        terms
            Of the federation that asks.
        sums
            Different sums in all that the node would have told: of tests, validation shares and temperatures.

        Examples
        --------
        >>> from fedmoments.federation import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
        >>> ClientPolicy(tuning="lp", max_rounds=3).require_sums(terms, 9)
        >>> ClientPolicy(tuning="lp").require_sums(terms, 10_000)
        """
        if self.max_rounds is not None and sums > 2 * self.max_rounds + 3:
            raise PolicyError(
                f"the federation '{terms.name}' asks for more sums of losses than {self.max_rounds} rounds need "
                f"({2 * self.max_rounds + 3}), and this client's policy allows no more rounds (max_rounds): nothing "
                "was told"
            )

    def require_size(self, n_bytes: int) -> None:
        """Raise PolicyError when a contribution has more bytes than may leave.

        Examples
        --------
        >>> ClientPolicy(max_bytes=1000).require_size(1001)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: this client's policy forbids it: max_bytes: the contribution has 1001 bytes,
        allowed are 1000; ...
        """
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise PolicyError(
                f"this client's policy forbids it: max_bytes: the contribution has {n_bytes} bytes, allowed are "
                f"{self.max_bytes}; nothing was sent: widen the policy, or stay out"
            )

    def select(self, labels: ArrayLike, means_per_client: int = 1) -> tuple[NDArray[np.bool_], Withheld]:
        """Say which samples may be measured.

        Parameters
        ----------
        labels
            (n,) whole numbers: the class of every sample, in the client's order.
        means_per_client
            Into how many means s the terms split a class: one of at least 2s samples has s rows, each over n // s or
            one more, and each must be over `min_count` or more. A policy that merges allows a class whose rows would
            be thinner, for it is sent as one mean (:func:`fedmoments.privacy.small_classes.merge_rows`).

        Returns
        -------
        tuple
            (n,) mask of the samples that may be measured, and what the server is told of the others.

        Examples
        --------
        >>> mask, withheld = ClientPolicy(min_count=3, report_withheld=False).select([7, 7, 8, 7])
        >>> mask, withheld
        (array([ True,  True, False,  True]), Withheld(classes=0, samples=0))
        """
        array = np.asarray(labels)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InputError(
                f"labels must be one whole number a sample, (n,); an array of shape {array.shape} and type "
                f"{array.dtype} arrived"
            )
        if means_per_client < 1:
            raise InputError(f"means_per_client must be 1 or more, not {means_per_client}")
        classes, cells, counts = np.unique(array, return_inverse=True, return_counts=True)
        kept = counts if self.max_per_class is None else np.minimum(counts, self.max_per_class)
        split = (kept >= 2 * means_per_client) & (not self.merges)
        smallest_row = np.where(split, kept // means_per_client, kept)
        allowed = smallest_row >= self.min_count
        positions = running_positions(cells.astype(np.int64), np.zeros(len(classes), np.int64))
        mask = (positions < kept[cells]) & allowed[cells]
        if not self.report_withheld:
            return mask, Withheld()
        return mask, Withheld(classes=int((~allowed).sum()), samples=int((~mask).sum()))

    def limited(self, stats: Statistics) -> Statistics:
        """Return what a client measured with no more sketch rows than may leave; see :func:`limit_sketch`.

        Raises
        ------
        PolicyError
            Where there are too few samples for any row, and `small_sketches` says ``refuse``.

        Examples
        --------
        >>> stats = Statistics.of(np.eye(6), [0] * 6, StatisticsSpec.of("scatter_sketch"), n_classes=1)
        >>> ClientPolicy().limited(stats).sketches.sizes
        array([0])
        >>> ClientPolicy(small_sketches="refuse").limited(stats)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: this client's policy forbids it: sketch_spare: a scatter sketch of 6 samples of 1
        classes, 5 to spare, was asked for, allowed are 20 or more; ...
        """
        spare = spare_samples(stats)
        if stats.spec.has_sketch and self.small_sketches == "refuse" and spare < self.sketch_spare:
            raise PolicyError(
                f"this client's policy forbids it: sketch_spare: a scatter sketch of {stats.n_samples} samples of "
                f"{len(stats.classes)} classes, {spare} to spare, was asked for, allowed are {self.sketch_spare} or "
                "more; nothing was sent: lower sketch_spare, send the trace alone (small_sketches = trace), or stay out"
            )
        return limit_sketch(stats, self.sketch_share, self.sketch_spare)

    # ---------------------------------------------------------------------------------------------- as a TOML table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "ClientPolicy":
        """Read a policy from a TOML table; every rule that is not in it has its default.

        Raises
        ------
        UnknownNameError
            When the table holds a rule that there is not: a mistyped rule must not be a rule that is not applied.
        InputError
            When a value is of the wrong type or out of range.

        Examples
        --------
        >>> ClientPolicy.from_dict({"min_count": 5, "moments": ["gram"]}).moments
        ('gram',)
        """
        if not isinstance(table, Mapping):
            raise InputError(f"a client's policy must be a table of rules, not {table!r}")
        known = [rule.name for rule in fields(cls)]
        for name in table:
            if name not in known:
                raise UnknownNameError("rule of a client's policy", str(name), known)
        return cls(**table)

    def to_dict(self) -> dict[str, Any]:
        """Return the table that :meth:`from_dict` reads, ready for TOML and JSON: rules that are None are left out.

        Examples
        --------
        >>> ClientPolicy(max_means=2).to_dict()
        {'min_count': 5, 'max_means': 2, 'report_withheld': True, 'small_classes': 'withhold', 'sketch_share': 0.25,
        'sketch_spare': 20, 'small_sketches': 'trace', 'require_secure': False, 'tuning': 'none'}
        """
        table = {rule.name: getattr(self, rule.name) for rule in fields(self)}
        if self.moments is not None:
            table["moments"] = list(self.moments)
        return {name: value for name, value in table.items() if value is not None}


def require_clear(terms: Terms) -> None:
    """Refuse to tune where the terms promise that nobody sees what a single client sends.

    Raises
    ------
    PolicyError
        Under secure sums, or under an epsilon.
    """
    agreed = terms.privacy
    promise = f"secure {agreed.secure}" if agreed.secure else f"an epsilon of {agreed.epsilon}"
    if agreed.secure or agreed.epsilon is not None:
        raise PolicyError(
            f"the terms of the federation '{terms.name}' promise {promise}, but a client's part of tuning is sent in "
            "the clear and without noise: tune in a federation whose terms promise neither, or keep the head as it is"
        )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
