"""Drawing up the terms of a federation from what a person typed: encoder, classes, heads."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fedmoments.core.api import spec_for
from fedmoments.core.costs.sketches import plan_of
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.ridge import FourierRidge
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.maps import (
    FeatureMap,
    RandomFourier,
    RandomProjection,
    TableMap,
    compose,
    median_bandwidth,
    table_of,
)
from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.core.tables import table_bandwidth, table_map
from fedmoments.errors import InputError, PrivacyError
from fedmoments.federation.amendment import MOST_AMENDMENTS, Amendment
from fedmoments.federation.name_samples import NameSamples
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.class_words import name_features
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.samples import EncoderChoice
from fedmoments.wire.keys import IdentityKey

__all__ = [
    "amend_terms",
    "bandwidth_after",
    "directions_after",
    "draw_up_terms",
    "largest_contribution",
    "table_after_exchange",
    "table_bandwidth_after",
    "usual_heads",
]

#: Room for header, signature and the description of the body.
_OVERHEAD = 2**16


def draw_up_terms(
    name: str,
    choice: EncoderChoice,
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
    seed: int = 0,
    names: bool = False,
) -> Terms:
    """Return terms that ask clients for the least that serves some heads.

    Parameters
    ----------
    name
        What people call the federation.
    choice
        Size and pooling of the encoder.
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
    seed
        Public: deals samples to several means, and draws the projection of a budget.
    names
        Whether class names count as a sample each, encoded as sentences; for encoders of text.
    """
    noise = privacy.mode.noise
    feature_map = noise.bounded(feature_map)
    chosen = choose_heads(heads, hyper or {})
    _require_common_map(chosen, feature_map)
    spec = spec_for(*chosen.values(), means_per_client=means_per_client, budget=budget)
    _require_sketches_alone(chosen, spec)
    spec, feature_map = _within(budget, spec, feature_map, dim=encoder.dim, n_classes=len(classes), seed=seed)
    if rows != "int64" and spec.sent != ("client_means",):
        raise InputError(
            f"rows in {rows} beside {spec} would contradict each other: rounded means against exact second moments "
            "cost Fed3R a third of its accuracy. Send rows as int64, or ask for client means alone"
        )
    options = {key: getattr(choice, key) for key in ("size", "pooling") if getattr(choice, key) is not None}
    fingerprint = Fingerprint.of(encoder, feature_map, tuple(classes))
    dim = feature_map.output_dim(encoder.dim) if feature_map else encoder.dim
    given: dict[str, Any] = {} if nonce is None else {"nonce": nonce}
    terms = Terms(
        name,
        {"name": encoder.name, "options": options, "fingerprint": encoder.fingerprint},
        fingerprint,
        dim,
        spec,
        noise.form(fixed_point),
        rows,
        largest_contribution(spec, len(classes), dim),
        seed,
        **given,
        privacy=privacy,
        names=NameSamples.of(name_features(classes, encoder, encoder.modality)) if names else None,
    )
    noise.check_grid(terms)
    return terms


def amend_terms(terms: Terms, classes: Sequence[str], key: IdentityKey) -> Terms:
    """Return terms with more classes, signed; the federation stays the same, and so does what it holds.

    Parameters
    ----------
    terms
        As they stand.
    classes
        Names of the classes that are added, behind those that are there.
    key
        The server's, which the terms name.

    Raises
    ------
    InputError
        When a class is there already, or the terms name another key or none.
    PrivacyError
        When every class has had its place in masked or noised sums from the start.
    """
    _check_amendable(terms, classes, key)
    fingerprint = replace(terms.fingerprint, classes=(*terms.classes, *classes))
    room = max(terms.max_bytes, largest_contribution(terms.spec, len(fingerprint.classes), terms.dim))
    changed = {**terms.to_dict(), "fingerprint": fingerprint.to_dict(), "max_bytes": room}
    last = Amendment(len(terms.classes), terms.max_bytes, "")
    changed["amended"] = [asdict(entry) for entry in (*terms.amended, last)]
    signed = last.signed(key, terms.id, sha256_of_json(changed))
    return replace(terms, fingerprint=fingerprint, max_bytes=room, amended=(*terms.amended, signed))


def _check_amendable(terms: Terms, classes: Sequence[str], key: IdentityKey) -> None:
    """Refuse new classes where terms cannot take them, or take them from somebody else."""
    mode = terms.privacy.mode
    if not mode.takes_classes:
        raise PrivacyError(
            f"under {mode.title}{' with noise' if mode.noise.is_on else ''} every class has its place in the sums from "
            "the start, and sums before and after would show who holds a new one: create a new federation"
        )
    if key.public.hex != terms.server:
        raise InputError("terms are amended by the server whose key they name, but these name another key or none")
    again = [name for name in classes if name in terms.classes]
    if again or not classes:
        raise InputError(f"say which classes are new: {', '.join(again) or 'none'} cannot be added")
    if len(terms.amended) >= MOST_AMENDMENTS:
        raise InputError(f"terms are amended at most {MOST_AMENDMENTS} times: create a new federation")


def usual_heads(privacy: Agreed, *, means_per_client: int = 1, rows: str = "int64") -> tuple[str, ...]:
    """Return the head of a federation that names none: ``auto``, or ``fedcof`` where nobody may send a sketch.

    Examples
    --------
    >>> usual_heads(Agreed()), usual_heads(Agreed(), rows="float16")
    (('auto',), ('fedcof',))
    """
    mode = privacy.mode
    clear = mode.is_open and not mode.noise.is_on and not mode.has_helper
    return ("auto",) if clear and means_per_client == 1 and rows == "int64" else ("fedcof",)


def directions_after(first: Terms, stats: Statistics) -> FeatureMap:
    """Return the feature map of a second exchange: the first one's, then the Fisher directions of what it collected.

    Parameters
    ----------
    first
        Terms of the first exchange.
    stats
        All contributions to it, merged: client means, with or without scatter sketches, or a gram.

    Examples
    --------
    >>> fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> first = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 3, StatisticsSpec.of("gram"))
    >>> X, y = [[0.0, 0.0, 1.0], [2.0, 0.1, 0.0], [0.1, 5.0, 0.0], [2.0, 5.1, 1.0]], [0, 0, 1, 1]
    >>> directions_after(first, Statistics.of(X, y, first.spec, n_classes=2)).output_dim(3)
    1
    """
    moments = first.spec.moments
    if not moments & {"client_means", "gram"}:
        raise InputError(
            f"the directions of a second exchange come from a pooled covariance, but the first one, '{first.name}', "
            f"collected {first.spec}: let it collect client means, scatter sketches or a gram"
        )
    pooled = "sketch" if first.spec.has_sketch else "exact" if "gram" in moments else "free"
    own = fisher_directions(stats, pooled)
    return compose(first.map_or_none, own) if first.map_or_none else own


def bandwidth_after(first: Terms, stats: Statistics, before: FeatureMap | None) -> float:
    """Return the kernel width that fits what a first exchange collected: counts, sums and norms.

    Parameters
    ----------
    first, stats
        Its terms, and all contributions to it, merged; in fixed point or not.
    before
        The map that stands before the Fourier features, which the first exchange must have been behind, too.

    Examples
    --------
    >>> fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> spec = StatisticsSpec.of("class_squares")
    >>> first = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 2, spec)
    >>> bandwidth_after(first, Statistics.of([[0.0, 0.0], [3.0, 4.0]], [0, 1], spec, n_classes=2), None)
    5.0
    """
    if first.map_or_none != before:
        raise InputError(
            f"the first exchange, '{first.name}', was measured behind {first.map_or_none}, but a kernel width is "
            f"needed behind {before}: give both the same --map, --normalize and --project"
        )
    for name in ("class_squares", "gram"):
        if name in first.spec.moments:
            if stats.n_samples < 2:
                raise InputError(
                    f"the first exchange, '{first.name}', holds {stats.n_samples} samples: collect it ('fedmoments "
                    "server run') before terms with its kernel width are drawn up"
                )
            squares = stats.class_array(name).sum() if name == "class_squares" else np.trace(stats.gram)
            return median_bandwidth(stats.counts, stats.sums, float(squares))
    raise InputError(
        f"the width of a kernel comes from norms, but the first exchange, '{first.name}', collected {first.spec}: let "
        "it serve the head gh-nb, or give --bandwidth"
    )


def table_after_exchange(first: Terms, stats: Statistics) -> TableMap:
    """Return the table that a first exchange was measured behind, standardised by its sums.

    Parameters
    ----------
    first, stats
        Its terms, and all contributions to it, merged.

    Examples
    --------
    >>> from fedmoments.core.tables import draft_table
    >>> draft = draft_table({"age": [30.0, 50.0]})
    >>> fingerprint = Fingerprint("identity", "none", draft, ("cat", "dog"))
    >>> spec = StatisticsSpec.of("class_squares")
    >>> first = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 2, spec)
    >>> stats = Statistics.of(draft(draft.code({"age": [30, 50]})), [0, 1], spec, n_classes=2)
    >>> table_after_exchange(first, stats).columns[0].center
    40.0
    """
    return table_map(_draft(first), stats)


def table_bandwidth_after(first: Terms, stats: Statistics) -> float:
    """Return the kernel width of Fourier features behind the table that :func:`table_after_exchange` returns."""
    return table_bandwidth(_draft(first), stats)


def _draft(first: Terms) -> TableMap:
    """Return the table that a first exchange was measured behind, and no other map."""
    table = table_of(first.map_or_none)
    if table is None or table != first.map_or_none:
        raise InputError(
            f"the first exchange, '{first.name}', was measured behind {first.map_outline.text}, but the sums of a raw "
            "table come from one behind its draft alone: --table draft and no other map"
        )
    return table


def _require_common_map(heads: Mapping[str, Head], feature_map: FeatureMap | None) -> None:
    last = getattr(feature_map, "maps", (feature_map,))[-1]
    for name, head in heads.items():
        fourier = isinstance(last, RandomFourier) and isinstance(head, FourierRidge)
        if head.has_own_map and not fourier:
            raise InputError(
                f"the head '{name}' is measured behind a feature map of its own: agree on that map first, as the "
                "federation's feature map (--fourier D and --bandwidth S, or --after a first exchange)"
            )


def _require_sketches_alone(heads: Mapping[str, Head], spec: StatisticsSpec) -> None:
    apart = [name for name, head in heads.items() if not head.needs.has_sketch]
    if spec.has_sketch and apart:
        raise InputError(
            "heads on scatter sketches are fitted from means that are rounded to a budget, on which "
            f"{', '.join(apart)} would lose: let them be a federation of their own, or leave them out"
        )


def _within(
    budget: str | None, spec: StatisticsSpec, feature_map: FeatureMap | None, *, dim: int, n_classes: int, seed: int
) -> tuple[StatisticsSpec, FeatureMap | None]:
    """Return what is requested and behind which map, so that every client stays within its budget."""
    if not spec.has_sketch:
        return spec, feature_map
    width = feature_map.output_dim(dim) if feature_map else dim
    plan, dimensions = plan_of(budget, n_classes=n_classes, dim=width)
    if dimensions is None:
        return spec.with_plan(plan), feature_map
    projection = RandomProjection(width, dimensions, seed)
    return spec.with_plan(plan), compose(feature_map, projection) if feature_map else projection


def largest_contribution(spec: StatisticsSpec, n_classes: int, dim: int) -> int:
    """Return how many bytes a contribution of a client that holds every class can have.

    Examples
    --------
    >>> largest_contribution(StatisticsSpec.of("gram"), 10, 100) - 8 * (10 * 100 + 5050 + 2 * 10)
    65536
    """
    rows = n_classes * spec.means_per_client
    indices = 2 * n_classes + (2 * rows if spec.keeps_clients_apart else 0)
    return 8 * (spec.numbers(n_classes, dim) + indices) + _OVERHEAD
