"""Central noise: discrete Gaussian noise on sums, planned for an (ε, δ) of all releases together.

One trusted server adds it to clear sums; on secure sums both servers add it, each in full
(:mod:`fedmoments.privacy.dp.releases`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import Chain, Clip, FeatureMap, Normalize, compose
from fedmoments.core.observations.federated import FederationEvents, ServerRound
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.dp import (
    Accountant,
    MeansForm,
    SumsForm,
    check_rules,
    noise_vector,
    plan,
    release,
    release_client_means,
    repair,
    require_additive,
    require_client_means,
)
from fedmoments.privacy.modes.noise import Noise

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Ledger, TermsLike
    from fedmoments.privacy.protection import Agreed

__all__ = ["CentralNoise"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: Noise of so many standard deviations does not happen: what is larger is not a sum.
MOST_SIGMAS = 100.0


class CentralNoise(Noise):
    """Noise for a budget ε.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> noise = Agreed(epsilon=2.0).mode.noise
    >>> noise.bounded(None), noise.text, noise.weaker_than(1.0)
    (Normalize(), 'ε = 2', 'an epsilon of 2')
    """

    is_on = True
    title = ", noised"
    published = "the noised sums, and what can be computed from them"

    def __init__(self, agreed: "Agreed") -> None:
        super().__init__(agreed)
        self.epsilon = float(agreed.epsilon or 0.0)
        self.label = f"{self.epsilon:g}"
        self.text = f"ε = {self.label}"
        self.promise = f"an epsilon of {agreed.epsilon}"
        self.hides_samples = agreed.unit == "sample"
        self.bound = 1.0 if agreed.clip is None else float(agreed.clip)

    # ---------------------------------------------------------------------------------------------- check

    def forbid(self, error: Exception) -> None:
        raise error

    def check_rules(self, **rules: Any) -> None:
        check_rules(self.agreed, **rules)

    def check_spec(self, spec: StatisticsSpec) -> None:
        """Refuse moments of which one sample changes more than its own share."""
        if spec.keeps_clients_apart and not spec.has_sketch:
            require_client_means(spec, self.agreed)
        else:
            require_additive(spec)

    def check_terms(self, terms: "TermsLike") -> None:
        """Refuse moments that it cannot protect, means of fewer digits, and features that nothing bounds."""
        self.check_spec(terms.spec)
        if terms.spec.keeps_clients_apart and terms.rows != "int64":
            raise InputError(
                f"with an epsilon client means travel as int64, but the terms say {terms.rows}: rounding moves a mean "
                "by more than the noise is made for. Leave rows out"
            )
        given = terms.fingerprint.feature_map
        last = given.maps[-1] if isinstance(given, Chain) else given
        if last != self._last or terms.fixed_point.norm_bound != self.bound:
            clip = self.agreed.clip
            how = "scaled to length 1 (Normalize)" if clip is None else f"clipped to {self.bound:g} (Clip)"
            raise InputError(
                f"with an epsilon features must be {how} at the end of the feature map, and norm_bound must be "
                f"{self.bound:g}: the noise is made for that, but the map ends in {last!r} and norm_bound is "
                f"{terms.fixed_point.norm_bound:g}"
            )

    def check_grid(self, asked: "Asked") -> None:
        """Refuse what it cannot be made for, before anybody sends."""
        self.release_form(asked).check_grid()

    def check_fits(self, fits: int) -> None:
        if fits > self.agreed.releases:
            raise InputError(
                f"fitting after each of {fits} rounds makes as many releases, but the budget was planned for "
                f"{self.agreed.releases}: fit once, at the end, or agree on more releases"
            )

    def weaker_than(self, epsilon: float) -> str:
        return f"an epsilon of {self.epsilon:g}" if self.epsilon > epsilon else ""

    # ---------------------------------------------------------------------------------------------- measuring

    @property
    def _last(self) -> FeatureMap:
        return Normalize() if self.agreed.clip is None else Clip(self.agreed.clip)

    def bounded(self, feature_map: FeatureMap | None) -> FeatureMap:
        """Return the map with the public bound at its end: scaling to length 1, or clipping to the public norm."""
        return compose(feature_map, self._last) if feature_map else self._last

    def form(self, form: FixedPoint | None = None) -> FixedPoint:
        return replace(form or FixedPoint(), norm_bound=self.bound)

    # ---------------------------------------------------------------------------------------------- sum

    @property
    def _account(self) -> Accountant:
        """An account of its own: as if one release alone were published."""
        return Accountant(self.epsilon, self.agreed.delta)

    def release_form(self, asked: "Asked") -> SumsForm | MeansForm:
        """Return how what one trusted server holds is released: sums in one step, client means in two."""
        form = MeansForm if asked.spec.keeps_clients_apart else SumsForm
        return form(asked.layout, asked.fixed_point, self.agreed)

    def released(self, merged: Statistics) -> Statistics:
        """Return the release of sums, or of client means, that one trusted server holds."""
        if merged.spec.keeps_clients_apart:
            return release_client_means(merged, self.agreed, self._account)
        return release(merged, self.agreed, self._account).statistics

    def part_for(self, merged: Statistics, spec: StatisticsSpec) -> Statistics:
        """Return all of a release of client means: it holds their spread, not the means."""
        return merged if spec.keeps_clients_apart else super().part_for(merged, spec)

    def draws(self, asked: "Asked") -> Callable[[Ints], Ints]:
        return lambda coordinates: noise_vector(asked.layout, asked.fixed_point, self.agreed)[coordinates]

    def opened(self, total: Words, asked: "Asked") -> "Opened":
        """Return the sum with the noise of both servers on it; without this end's it exists in memory only.

        Raises
        ------
        InputError
            When what came out cannot be a noised sum: masks that do not cancel.
        """
        from fedmoments.privacy.modes.opened import Noised

        layout, form = asked.layout, asked.fixed_point
        sigma = plan(layout, form, self.agreed).sigmas["counts"]
        counts = layout.signed(total)[layout.classes_block].reshape(layout.n_classes, -1)[:, 0]
        most = form.max_samples + MOST_SIGMAS * sigma
        if counts.min() < -MOST_SIGMAS * sigma or counts.max() > most:
            raise InputError(f"a noised count must be below {most:.0f}, but counts from {counts.min()} on came out")
        return Noised(total + noise_vector(layout, form, self.agreed).view(np.uint64), self, asked)

    def repaired(self, noised: Words, asked: "Asked") -> Statistics:
        """Return statistics of one batch that both servers noised, and charge an account of its own for it."""
        self._account.record(plan(asked.layout, asked.fixed_point, self.agreed).ratio)
        return repair(noised, asked.layout, asked.fixed_point, self.agreed, servers=2)

    def read(self, ledger: "Ledger") -> tuple[Statistics, Mapping[str, Any] | None]:
        release_of_state = ledger.release()
        return release_of_state.statistics, release_of_state.facts

    def spent(self, asked: "Asked") -> dict[str, Any]:
        noise = plan(asked.layout, asked.fixed_point, self.agreed)
        return {"epsilon": noise.epsilon, "delta": noise.delta, "releases": 1}

    # ---------------------------------------------------------------------------------------------- publishing

    def publishable(self, events: FederationEvents) -> FederationEvents:
        """Return what happened, without bytes, and without the digests and numbers that refusals tell of."""
        why = "the ledger's log says why, and the client was told"

        def told(report: ServerRound) -> ServerRound:
            refused = tuple(replace(refusal, sentence=why) for refusal in report.refused)
            return replace(report, bytes=None, refused=refused)

        return replace(events, rounds=tuple(map(told, events.rounds)))

    def publishable_bytes(self, sent: int, dense: int) -> int:
        del sent
        return dense

    @property
    def notes(self) -> dict[str, Any]:
        return {"privacy": self.agreed.to_dict()}

    # ---------------------------------------------------------------------------------------------- text

    def facts(self) -> list[tuple[str, str]]:
        agreed = self.agreed
        return [
            ("Budget", f"ε = {agreed.epsilon:g}, δ = {agreed.delta:g} for one {agreed.unit}"),
            ("Neighbours", "one is another" if agreed.neighbours == "replace" else "one more or one less"),
            ("Features", f"clipped to norm {agreed.clip:g}" if agreed.clip else "scaled to length 1"),
        ]

    def assumptions(self, who: str) -> list[str]:
        public = "Clip norm, weights and shrinkage are public constants: tuned on the private data they would void the"
        return [f"{who}. {public} promise."]

    def not_promised(self, *, simulated: bool) -> list[str]:
        lines = []
        if self.hides_samples:
            lines.append("A client with many samples is not hidden: the noise hides one sample.")
        if simulated:
            lines.append(
                "This page is not covered: of a simulation it shows counts, diagnostics and errors without noise."
            )
        return lines

    def rows(self) -> dict[str, str]:
        agreed = self.agreed
        return {
            "noise": f"ε = {agreed.epsilon:g}, δ = {agreed.delta:g}, hiding one {agreed.unit} ({agreed.neighbours})",
            "releases": str(agreed.releases),
            "features": "scaled to length 1" if agreed.clip is None else f"clipped to norm {agreed.clip:g}",
        }
