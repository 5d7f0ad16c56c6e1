"""What a client lets out: its own rules, applied to its samples before anything is measured.

The server asks; the client decides. Samples that a rule withholds are never measured, so the rule holds exactly for
every moment, whatever is later derived from it. Unless its own rules say otherwise, a client withholds every class of
which it has fewer than 5 samples: the mean of one sample is that sample.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.core.statistics.checks import running_positions
from fedmoments.errors import InputError, PolicyError, PrivacyError
from fedmoments.federation.terms import Terms
from fedmoments.privacy.map_leaks import MapOutline, fewest_samples, largest_matrix
from fedmoments.privacy.obfuscation import Obfuscation, parse_obfuscation
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.small_classes import check_limits, limit_sketch, spare_samples
from fedmoments.settings.policy import MAPS, TUNING, PolicyRules
from fedmoments.wire import Withheld

__all__ = ["ClientPolicy", "require_clear"]

#: Rounds whose sums of losses a client tells that allows tuning and says nothing of rounds.
USUAL_ROUNDS = 1000


@dataclass(frozen=True)
class ClientPolicy(PolicyRules):
    """The rules of one client, and what they do: see :class:`~fedmoments.settings.policy.PolicyRules` for each.

    Examples
    --------
    >>> policy = ClientPolicy(min_count=2, max_per_class=3)
    >>> policy.select([0, 1, 1, 1, 1])
    (array([False,  True,  True,  True, False]), Withheld(classes=1, samples=2))
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_limits(self.sketch_share, self.sketch_spare)
        except InputError as error:
            raise InputError(f"sketch_share and sketch_spare of a client's policy: {error}") from error
        if self.obfuscate is not None:
            parse_obfuscation(self.obfuscate)
        if self.moments is not None:
            object.__setattr__(self, "moments", _checked_moments(self.moments))

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
        >>> from fedmoments.samples.fingerprint import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec.of("class_grams"))
        >>> ClientPolicy().require(terms)
        >>> ClientPolicy(moments=("gram",)).require(terms)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: the federation 'pets' asks for what this client's policy forbids: moments: the
        server asks for class_grams, class_norms, class_squares, allowed are gram, sums; ...
        """
        broken = []
        if self.moments is not None:
            allowed = StatisticsSpec.of(*self.moments).moments
            excess = terms.spec.moments - allowed
            if excess:
                broken.append(f"moments: the server asks for {_listed(excess)}, allowed are {_listed(allowed)}")
        asked = terms.spec.means_per_client
        if self.max_means is not None and asked > self.max_means:
            broken.append(f"max_means: the server asks for {asked} means of a class, allowed are {self.max_means}")
        broken += [*self._oversized(terms), *self._unmapped(terms), *self._exposed(terms), *self._unfit(terms)]
        if broken:
            raise PolicyError(
                f"the federation '{terms.name}' asks for what this client's policy forbids: {'; '.join(broken)}; "
                "nothing was measured: widen the policy, or stay out"
            )

    def _oversized(self, terms: Terms) -> list[str]:
        """Return what a short text of terms would make this machine hold beyond its rule."""
        sizes = {
            "numbers of the feature map": largest_matrix(terms.map_or_none),
            "numbers of the moments": terms.spec.numbers(len(terms.classes), terms.dim),
            "pairs of classes": len(terms.classes) ** 2,
        }
        return [
            f"max_numbers: the server asks for {size:,} {what}, allowed are {self.max_numbers:,}"
            for what, size in sizes.items()
            if size > self.max_numbers
        ]

    def _unmapped(self, terms: Terms) -> list[str]:
        """Return why samples may not be measured behind the terms' feature map."""
        behind, allowed = terms.map_outline, MAPS.index(self.maps)
        if self.maps == "linear" and not behind.is_linear:
            return [f"maps: the server asks for {behind.text}, allowed are linear maps that do not expand"]
        if allowed <= MAPS.index("narrow") and behind.expands:
            why = (
                "sums of few samples behind one that does can be solved for the samples (maps = scaled withholds those)"
            )
            return [f"maps: the server asks for {behind.text}, allowed are maps that do not expand: {why}"]
        if self.maps != "any" and behind.chosen:
            why = (
                "'server create' makes no such map, and a sum may be the one sample that comes through (any allows it)"
            )
            return [f"maps: the server asks for {behind.text}: {why}"]
        return []

    def least_of_class(self, behind: MapOutline | None, moments: Collection[str]) -> int:
        """Return how many samples a class needs to be measured behind a map.

        Examples
        --------
        >>> fourier = MapOutline("random_fourier", 384, 5000, is_linear=False)
        >>> ClientPolicy().least_of_class(fourier, ("sums",)), ClientPolicy(maps="scaled").least_of_class(fourier, ())
        (5, 14)
        """
        if behind is None or self.maps != "scaled":
            return self.min_count
        return max(self.min_count, fewest_samples(behind, moments))

    def _unfit(self, terms: Terms) -> list[str]:
        """Return what the terms ask for that this policy's rules, or the terms' own promises, cannot be applied to."""
        broken = []
        try:
            terms.privacy.mode.check_sketch(terms.spec)
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
        agreed, mode = terms.privacy, terms.privacy.mode
        broken = self._too_open(agreed) if self.require_secure else []
        if agreed.parties < self.min_parties:
            broken.append(f"min_parties: a head may be of {agreed.parties} parties, allowed are {self.min_parties}")
        if self.helper is not None and agreed.helper != self.helper:
            asked = f"a helper with the key {agreed.helper[:16]}…" if agreed.helper else "no helper at all"
            broken.append(f"helper: the terms name {asked}, allowed is the one with {self.helper[:16]}…")
        if self.max_epsilon is not None:
            broken += self._too_little_noise(agreed, self.max_epsilon)
        try:
            mode.noise.check_rules(
                min_count=self.min_count,
                max_per_class=self.max_per_class,
                obfuscation=self.obfuscate,
                small_classes=self.small_classes,
            )
        except PrivacyError as error:
            broken.append(f"noise: {error}")
        return broken

    def _too_open(self, agreed: Agreed) -> list[str]:
        """Return in which ways the server can read more than sums over enough clients."""
        broken, few = [], {"batch": "a sum"}
        if not agreed.mode.has_helper:
            broken.append("require_secure: the terms let the server read every contribution, allowed are secure sums")
        if agreed.mode.opens_classes:
            few["contributors"] = "an opened class"
        return broken + [
            f"min_batch: {what} may be over {getattr(agreed, name)} clients ({name}), allowed are {self.min_batch}"
            for name, what in few.items()
            if getattr(agreed, name) < self.min_batch
        ]

    def _too_little_noise(self, agreed: Agreed, most: float) -> list[str]:
        """Return in which ways the promise of the noise is weaker than ε and δ that this policy allows."""
        broken, noise = [], agreed.mode.noise
        if promised := noise.weaker_than(most):
            broken.append(f"max_epsilon: the terms promise {promised}, allowed is {most:g}")
        if noise.is_on and agreed.delta > self.max_delta:
            broken.append(
                f"max_delta: the promise of the terms may fail with probability {agreed.delta:g}, allowed is "
                f"{self.max_delta:g}"
            )
        return broken

    def require_evaluation(self, terms: Terms) -> None:
        """Raise PolicyError unless this policy allows that classifiers are tested on the client's held-out samples.

        Examples
        --------
        >>> from fedmoments.privacy.protection import Agreed
        >>> from fedmoments.samples.fingerprint import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> secure = Agreed(secure="sums", helper="ab" * 32)
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec(), privacy=secure)
        >>> ClientPolicy(allow_evaluation=True).require_evaluation(terms)
        >>> ClientPolicy().require_evaluation(terms)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: the terms of the federation 'pets' promise secure sums, and this client's policy
        lets no classifier be tested then (allow_evaluation): ...
        """
        promise = terms.privacy.mode.promise
        if promise and not self.allow_evaluation:
            raise PolicyError(
                f"the terms of the federation '{terms.name}' promise {promise}, and this client's policy lets no "
                "classifier be tested then (allow_evaluation): nothing was tested"
            )
        if terms.privacy.mode.noise.is_on and not terms.privacy.mode.noise.hides_samples:
            raise PolicyError(
                f"the terms of the federation '{terms.name}' hide whole clients, and results of tests have noise for "
                "one sample: nothing was tested"
            )

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
        >>> from fedmoments.samples.fingerprint import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
        >>> ClientPolicy(tuning="ft").require_tuning(terms, "lp")
        >>> ClientPolicy().require_tuning(terms, "lp")
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: the federation 'pets' asks for what this client's policy forbids: tuning: the
        server asks for lp, allowed is none; ...
        """
        require_clear(terms)
        broken = []
        if TUNING.index(stage) > TUNING.index(self.tuning):
            broken.append(
                f"tuning: the server asks for {stage}, allowed is {self.tuning}; updates reveal more than moments, "
                f"so they need your consent: fedmoments client … --allow-tuning {stage}, or tuning = "
                f'"{stage}" under [policy]'
            )
        if self.max_rounds is not None and rounds > self.max_rounds:
            broken.append(f"max_rounds: it would be round {rounds}, allowed are {self.max_rounds}")
        if self.obfuscate is not None:
            broken.append("obfuscate: counts are to be blurred, but tuning reveals the exact number of samples")
        if broken:
            raise PolicyError(
                f"the federation '{terms.name}' asks for what this client's policy forbids: {'; '.join(broken)}; "
                "nothing was trained"
            )

    def require_sums(self, terms: Terms, sums: int) -> None:
        """Raise PolicyError when a node would have sent more sums of losses than so many rounds need.

        Parameters
        ----------
        terms
            Of the federation that asks.
        sums
            Different sums in all that the node would have sent: of tests, validation shares and temperatures.

        Examples
        --------
        >>> from fedmoments.samples.fingerprint import Fingerprint
        >>> pets = Fingerprint("none", "none", None, ("cat", "dog"))
        >>> terms = Terms("pets", {"name": "identity", "options": {}}, pets, 8, StatisticsSpec())
        >>> ClientPolicy(tuning="lp", max_rounds=3).require_sums(terms, 9)
        >>> ClientPolicy(tuning="lp").require_sums(terms, 2003)
        """
        rounds = USUAL_ROUNDS if self.max_rounds is None else self.max_rounds
        if sums > 2 * rounds + 3:
            raise PolicyError(
                f"the federation '{terms.name}' asks for more sums of losses than {rounds} rounds need "
                f"({2 * rounds + 3}), and this client's policy allows no more rounds (max_rounds): nothing was sent"
            )

    def require_size(self, n_bytes: int) -> None:
        """Raise PolicyError when a contribution has more bytes than may leave; how many, the server is not told.

        Examples
        --------
        >>> ClientPolicy(max_bytes=1000).require_size(1001)
        Traceback (most recent call last):
        fedmoments.errors.PolicyError: this client's policy forbids it: max_bytes: the contribution has more
        bytes than the 1000 allowed; ...
        """
        if self.max_bytes is not None and n_bytes > self.max_bytes:
            raise PolicyError(
                f"this client's policy forbids it: max_bytes: the contribution has more bytes than the "
                f"{self.max_bytes} allowed; nothing was sent: widen the policy, or stay out",
                f"it has {n_bytes} bytes",
            )

    def select(
        self,
        labels: ArrayLike,
        means_per_client: int = 1,
        *,
        behind: MapOutline | None = None,
        moments: Collection[str] = (),
    ) -> tuple[NDArray[np.bool_], Withheld]:
        """Say which samples may be measured.

        Parameters
        ----------
        labels
            (n,) whole numbers: the class of every sample, in the client's order.
        means_per_client
            Into how many means s the terms split a class: one of at least 2s samples has s rows, each over n // s or
            one more, and each must be over `min_count` or more. A policy that merges allows a class whose rows would
            be thinner, for it is sent as one mean (:func:`fedmoments.privacy.small_classes.merge_rows`).
        behind, moments
            The feature map and the names of the moments, where a policy scales `min_count` to the map.

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
        allowed = smallest_row >= self.least_of_class(behind, moments)
        positions = running_positions(cells.astype(np.int64), np.zeros(len(classes), np.int64))
        mask = (positions < kept[cells]) & allowed[cells]
        if self.maps == "scaled" and behind is not None and behind.determines(int(mask.sum()), moments, "gram"):
            mask[:], allowed[:] = False, False
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
        fedmoments.errors.PolicyError: this client's policy forbids it: sketch_spare: a scatter sketch was requested of
        fewer than the 20 spare samples allowed; ...
        """
        spare = spare_samples(stats)
        if stats.spec.has_sketch and self.small_sketches == "refuse" and spare < self.sketch_spare:
            raise PolicyError(
                f"this client's policy forbids it: sketch_spare: a scatter sketch was requested of fewer than the "
                f"{self.sketch_spare} spare samples allowed; nothing was sent: lower sketch_spare, send the trace "
                "alone (small_sketches = trace), or stay out",
                f"{stats.n_samples} samples of {len(stats.classes)} classes have {spare} to spare",
            )
        return limit_sketch(stats, self.sketch_share, self.sketch_spare)


def require_clear(terms: Terms) -> None:
    """Refuse to tune where the terms promise that nobody sees what a single client sends.

    Raises
    ------
    PolicyError
        Under secure sums, or under an epsilon.
    """
    promise = terms.privacy.mode.promise
    if promise:
        raise PolicyError(
            f"the terms of the federation '{terms.name}' promise {promise}, but a client's part of tuning is sent in "
            "the clear and without noise: tune in a federation whose terms promise neither, or keep the head as it is"
        )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _checked_moments(names: object) -> tuple[str, ...]:
    """Return the names, sorted and unique, once each is known to be that of a moment.

    Examples
    --------
    >>> _checked_moments(["gram", "client_means", "gram"])
    ('client_means', 'gram')
    """
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"moments of a client's policy must be a list of names, not {names!r}")
    StatisticsSpec.of(*names)
    return tuple(sorted(set(names)))
