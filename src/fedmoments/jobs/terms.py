"""Drawing up the terms of a federation from what a person typed: encoder, classes, heads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmoments.api import spec_for
from fedmoments.errors import InputError
from fedmoments.features.encoder import Encoder
from fedmoments.federation.fingerprint import Fingerprint
from fedmoments.federation.terms import Terms
from fedmoments.jobs.config import JobConfig
from fedmoments.maps import Clip, FeatureMap, Identity, Normalize, RandomProjection, compose
from fedmoments.privacy.dp import plan
from fedmoments.privacy.protection import Agreed
from fedmoments.simulation.budgets import plan_of
from fedmoments.simulation.run import choose_heads
from fedmoments.statistics import MOMENTS, FixedPoint, Layout, StatisticsSpec

__all__ = ["draw_up_terms", "largest_contribution"]

#: Room for header, signature and the description of the body.
_OVERHEAD = 2**16


def draw_up_terms(
    name: str,
    config: JobConfig,
    encoder: Encoder,
    classes: Sequence[str],
    heads: Sequence[str],
    *,
    hyper: Mapping[str, Mapping[str, Any]] | None = None,
    means_per_client: int = 1,
    fixed_point: FixedPoint | None = None,
    rows: str = "int64",
    feature_map: FeatureMap | None = None,
    nonce: str | None = None,
    budget: str | None = None,
    privacy: Agreed = Agreed(),  # noqa: B008 - frozen
) -> Terms:
    """Return terms that ask clients for the least that serves some heads.

    Parameters
    ----------
    name
        What people call the federation.
    config
        Size and pooling of the encoder, and the seed that deals samples to several means.
    encoder
        Already loaded: its weights and preprocessing become part of the terms.
    classes
        C names, in the order of the labels.
    heads, hyper
        Heads that are to be fitted, and their hyper-parameters.
    means_per_client, fixed_point, rows, feature_map, nonce
        As in :class:`fedmoments.federation.terms.Terms`.
    budget
        Bytes that a client's means and scatter sketch may take, where a head needs a sketch; ``means`` by default. One
        that is too small for means of all dimensions adds a public projection, drawn from the seed, to the feature map.
    privacy
        What is agreed on. With an epsilon the feature map is made to end in scaling to length 1, or in clipping to the
        public norm, and the fixed point is made for that norm.
    """
    if privacy.epsilon is not None:
        feature_map, fixed_point = _bounded(privacy, feature_map, fixed_point)
    chosen = choose_heads(heads, hyper or {})
    for head_name, head in chosen.items():
        if head.has_own_map:
            raise InputError(
                f"the head '{head_name}' is measured behind a feature map of its own: agree on that map first, as the "
                "federation's feature map, and fit the head without it"
            )
    spec = spec_for(*chosen.values(), means_per_client=means_per_client, budget=budget)
    apart = [head_name for head_name, head in chosen.items() if not head.needs.has_sketch]
    if spec.has_sketch and apart:
        raise InputError(
            "heads on scatter sketches are fitted from means that are rounded to a budget, on which "
            f"{', '.join(apart)} would lose: let them be a federation of their own, or leave them out"
        )
    spec, feature_map = _within(budget, spec, feature_map, dim=encoder.dim, n_classes=len(classes), seed=config.seed)
    if rows != "int64" and spec.sent != ("client_means",):
        raise InputError(
            f"rows in {rows} beside {spec} would contradict each other: rounded means against exact second moments "
            "cost Fed3R a third of its accuracy. Send rows as int64, or ask for client means alone"
        )
    options = {key: getattr(config, key) for key in ("size", "pooling") if getattr(config, key) is not None}
    fingerprint = Fingerprint(encoder.weights_hash, dict(encoder.preprocessing), feature_map, tuple(classes))
    dim = feature_map.output_dim(encoder.dim) if feature_map else encoder.dim
    given: dict[str, Any] = {} if nonce is None else {"nonce": nonce}
    terms = Terms(
        name,
        {"name": encoder.name, "options": options, "fingerprint": encoder.fingerprint},
        fingerprint,
        dim,
        spec,
        fixed_point or FixedPoint(),
        rows,
        largest_contribution(spec, len(classes), dim),
        config.seed,
        **given,
        privacy=privacy,
    )
    if privacy.epsilon is not None:
        plan(terms.layout, terms.fixed_point, privacy)  # noise that cannot be made is refused before anybody sends
    return terms


def _within(
    budget: str | None, spec: StatisticsSpec, feature_map: FeatureMap | None, *, dim: int, n_classes: int, seed: int
) -> tuple[StatisticsSpec, FeatureMap | None]:
    """Return what is asked for and behind which map, so that every client stays within its budget."""
    if not spec.has_sketch:
        return spec, feature_map
    width = feature_map.output_dim(dim) if feature_map else dim
    plan, dimensions = plan_of(budget, n_classes=n_classes, dim=width)
    if dimensions is None:
        return spec.with_plan(plan), feature_map
    projection = RandomProjection(width, dimensions, seed)
    return spec.with_plan(plan), compose(feature_map, projection) if feature_map else projection


def _bounded(
    agreed: Agreed, feature_map: FeatureMap | None, fixed_point: FixedPoint | None
) -> tuple[FeatureMap, FixedPoint]:
    """Return the map behind which no feature vector is longer than the public norm, and a fixed point of that norm."""
    last: FeatureMap = Normalize() if agreed.clip is None else Clip(agreed.clip)
    form = fixed_point or FixedPoint()
    norm = 1.0 if agreed.clip is None else float(agreed.clip)
    return compose(feature_map or Identity(), last), replace(form, norm_bound=norm)


def largest_contribution(spec: StatisticsSpec, n_classes: int, dim: int) -> int:
    """Return how many bytes a contribution of a client that holds every class can have.

    Examples
    --------
    >>> largest_contribution(StatisticsSpec.of("gram"), 10, 100) - 8 * (10 * 100 + 5050 + 2 * 10)
    65536
    """
    times = {Layout.CLASS: n_classes, Layout.GLOBAL: 1, Layout.ROWS: n_classes * spec.means_per_client}
    times[Layout.SKETCH] = spec.plan.capacity(n_classes, dim) if spec.plan else 0
    numbers = sum(MOMENTS[name].width(dim) * times[MOMENTS[name].layout] for name in spec.sent)
    indices = 2 * n_classes + (2 * times[Layout.ROWS] if spec.keeps_clients_apart else 0)
    return 8 * (numbers + indices) + _OVERHEAD
