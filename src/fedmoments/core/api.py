"""The short way: measure every client, merge, solve; in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.classifier import Classifier, target_matrix
from fedmoments.core.columns import Columns
from fedmoments.core.gaussian import require
from fedmoments.core.heads import Head, make_head, presets
from fedmoments.core.heads.registry import TARGET_HEADS, label_of
from fedmoments.core.maps import FeatureMap, compose
from fedmoments.core.maps.power import AUTO, named_map
from fedmoments.core.parties import Parties, parties_of
from fedmoments.core.raw_parties import TABLE, coded_parties, wants_table
from fedmoments.core.statistics import FixedPoint, Ledger, SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.targets import TargetHead, with_targets
from fedmoments.errors import InputError

__all__ = ["Clients", "fit", "measure", "spec_for"]

#: Classes that labels alone may make: labels beyond are ids or codes, for which no memory would do.
MOST_CLASSES = 2**20
#: Features and labels, or statistics, by client id (any hashable; a mapping is invariant in its keys, so that Hashable
#: here would refuse a dict[str, …]).
ByClient = Mapping[Any, tuple[ArrayLike, ArrayLike] | Statistics]
#: What a federation can be given as: the same, a list of pairs, or a table (which has no type that all tables share).
Clients = ByClient | Sequence[tuple[ArrayLike, ArrayLike]] | Any


def spec_for(*heads: str | Head, means_per_client: int = 1, budget: str | SketchPlan | None = None) -> StatisticsSpec:
    """Return the least statistics that serve all these heads: one upload, many heads.

    A budget is what a client's means and scatter sketch may take (:class:`fedmoments.SketchPlan`).

    Examples
    --------
    >>> str(spec_for("fedncm", "fedcof", "gh-lda"))
    'counts + gram + client_means'
    >>> str(spec_for("sketch", budget="means/2"))
    'counts + client_means + scatter_sketch (budget means/2)'
    """
    spec = StatisticsSpec()
    for head in heads:
        spec = spec | (make_head(head) if isinstance(head, str) else head).needs
    if means_per_client > 1 and spec.keeps_clients_apart:
        spec = spec | StatisticsSpec.of("client_means", means_per_client=means_per_client)
    if budget is None:
        return spec
    if not spec.has_sketch:
        raise InputError(
            f"a budget of {budget} is spent by heads on scatter sketches (sketch, lda-sketch, auto …), but these heads "
            f"need {spec}: add one of those, or leave the budget out"
        )
    return spec.with_plan(budget if isinstance(budget, SketchPlan) else SketchPlan(str(budget), rows="automatic"))


def measure(
    clients: Clients,
    spec: StatisticsSpec,
    *,
    n_classes: int | None = None,
    feature_map: FeatureMap | None = None,
    seed: int = 0,
    fixed_point: FixedPoint | None = None,
    fold: bool = False,
    label: str = "label",
    client: str = "client",
    features: Sequence[str] | str | None = None,
) -> Ledger:
    """Measure every client and return the ledger of their contributions.

    Parameters
    ----------
    clients
        Client id -> (X, y) with X (n, d) features and y (n,) labels, or -> statistics that were measured before; a list
        of pairs (X, y); or a table (pandas, polars, Arrow, Hugging Face) with a column of labels and one of clients.
        Labels that are text are numbered in alphabetical order.
    spec
        What to measure.
    n_classes
        C; the highest label plus one by default.
    feature_map
        Applied to features (not to statistics, which were measured behind it). Behind a :class:`fedmoments.TableMap`
        clients' data may be raw tables.
    seed
        Deals samples to shares when a client sends several means a class.
    fixed_point, fold
        See :class:`fedmoments.Ledger`.
    label, client, features
        Of a table: names of the columns of labels and of clients, and names or patterns (``emb*``) of the feature
        columns or of one column of vectors; all other columns of numbers by default.

    Examples
    --------
    >>> ledger = measure({"a": ([[1.0]], [0]), "b": ([[3.0]], [1])}, StatisticsSpec())
    >>> ledger.pool().counts
    array([1, 1])
    """
    parties, _ = _parties(clients, Columns(label, client, features), feature_map)
    n_classes = _count_classes(parties) if n_classes is None else n_classes
    ways: dict[str, Any] = {"seed": seed, "fixed_point": fixed_point, "fold": fold, "leaving": True}
    return _measured(parties.data, spec, n_classes, feature_map=feature_map, **ways)


def _measured(
    data: ByClient,
    spec: StatisticsSpec,
    n_classes: int,
    *,
    feature_map: FeatureMap | None,
    fixed_point: FixedPoint | None,
    seed: int = 0,
    fold: bool = True,
    leaving: bool = False,
) -> Ledger:
    """Return the ledger of what clients measure, whose labels are numbers already; nobody leaves it unless said so."""
    ledger: Ledger | None = None
    for name, given in data.items():
        if isinstance(given, Statistics):
            part = given
        else:
            try:
                mapped = np.asarray(feature_map(given[0]) if feature_map else given[0])
                part = Statistics.of(mapped, given[1], spec, n_classes=n_classes, seed=seed)
            except InputError as error:
                raise InputError(f"client {name!r}: {error}") from error
        if ledger is None:
            ledger = Ledger(spec, n_classes=n_classes, dim=part.dim, fixed_point=fixed_point, fold=fold)
        ledger.join(name, part, leaving=leaving)
    if ledger is None:
        raise InputError("there is no client: give at least one, as {id: (features, labels)}")
    return ledger


def fit(
    head: str | Head,
    clients: Clients | Ledger | Statistics,
    *,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    feature_map: FeatureMap | str | None = None,
    means_per_client: int = 1,
    seed: int = 0,
    fixed_point: FixedPoint | None = None,
    budget: str | SketchPlan | None = None,
    label: str = "label",
    client: str = "client",
    features: Sequence[str] | str | None = None,
    **hyper: Any,
) -> Classifier:
    """Fit a head from clients' data, from their statistics, from a ledger or from merged statistics.

    All four give the same classifier. Only the temperature of heads that know no covariance (``fedncm``,
    ``fedcof-diagonal``, ``fedcof-spherical``) is better known where clients' sums are not added up yet: from data, and
    from a ledger that keeps them.

    Parameters
    ----------
    head
        A name (see ``fedmoments heads``) or a head.
    clients
        Client id -> (X, y) or statistics; a list of pairs (X, y); a table (pandas, polars, Arrow, Hugging Face) with a
        column of labels and one of clients; or a ledger; or merged statistics. For heads of targets
        (``ridge-regression``, ``multi-label``) y are numbers (n,) or (n, m).
    n_classes
        C; the highest label plus one by default. Only for data.
    class_names
        C names; labels that are text name themselves, others are numbers by default.
    feature_map
        Applied to features before anything else; the classifier carries it and applies it to what it scores. With
        statistics, the map that they were measured behind. Of data also a word: ``power`` (√x, then unit length),
        ``auto`` (that where no feature is negative and features are skewed, mean 0 and deviation 1 where columns are in
        units of their own, which every client tells in three numbers) or ``none``. By default none; ``auto`` for the
        heads that choose by themselves. ``table``: clients' data are raw tables, with numbers, texts and gaps, and the
        map is made of a first exchange (:mod:`fedmoments.core.tables`).
    means_per_client
        How many means of a class a client sends (heads that use client means).
    seed
        Deals samples to those means.
    fixed_point
        Round and add up in fixed point, as a deployed federation does.
    budget
        Bytes that a client's means and scatter sketch may take, for heads on sketches: ``means``, ``means/2``, ``50KB``
        (:class:`fedmoments.SketchPlan`). Only for data.
    label, client, features
        Of a table: which columns are what, as for :func:`measure`.
    **hyper
        Hyper-parameters of the head.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 40)
    >>> X = rng.normal(size=(80, 5)) + np.where(y == 0, -3.0, 3.0)[:, None]
    >>> parties = {site: (X[site::4], y[site::4]) for site in range(4)}
    >>> classifier = fit("fedcof", parties)
    >>> float((classifier.predict(X) == y).mean())
    1.0
    """
    chosen, name = _head_of(head, hyper)
    parties: Parties | None = None
    if feature_map == TABLE or not isinstance(clients, Ledger | Statistics):
        parties, feature_map = _parties(clients, Columns(label, client, features), feature_map, class_names)
    given = _public_map(chosen, parties, feature_map)
    if isinstance(chosen, TargetHead):
        return _named(_fit_targets(chosen, parties, clients, given, fixed_point).noting(head=name), class_names)
    source: Ledger | Statistics
    if parties is None:
        source, full_map = _measured_before(clients, budget), given
    else:
        n_classes = _count_classes(parties) if n_classes is None else n_classes
        full_map = _whole_map(chosen, parties.data, given, n_classes, fixed_point)
        spec = _spec_of(chosen, parties, means_per_client, budget)
        source = _measured(parties.data, spec, n_classes, feature_map=full_map, seed=seed, fixed_point=fixed_point)
        class_names = class_names if class_names is not None else parties.class_names or None
    _require_map(chosen, source, full_map)
    classifier = chosen.fit(source).mapped(full_map)
    return _named(classifier.noting(head=name, settings=chosen.suited(source.spec).settings()), class_names)


def _spec_of(head: Head, parties: Parties, means_per_client: int, budget: str | SketchPlan | None) -> StatisticsSpec:
    """Return what clients measure for a head: of data, also what it keeps apart for its temperature."""
    if budget is None and head.needs.has_sketch:
        budget = SketchPlan(rows="automatic")
    spec = spec_for(head, means_per_client=means_per_client, budget=budget)
    return spec if any(isinstance(held, Statistics) for held in parties.data.values()) else spec | head.apart_needs


def _named(classifier: Classifier, class_names: Sequence[str] | None) -> Classifier:
    return classifier if class_names is None else classifier.named(class_names)


def _parties(
    clients: Clients, columns: Columns, feature_map: FeatureMap | str | None, class_names: Sequence[str] | None = None
) -> tuple[Parties, FeatureMap | str | None]:
    """Return clients' data, coded where they are raw tables, and the map that they are measured behind."""
    if feature_map is not None and wants_table(clients, feature_map):
        return coded_parties(clients, columns, feature_map, class_names)
    return parties_of(clients, columns, class_names), feature_map


def _require_map(head: Head, source: Ledger | Statistics, feature_map: FeatureMap | None) -> None:
    """Refuse statistics without the feature map that a head's own stands in."""
    if head.has_own_map and feature_map is None:
        require(source.statistics() if isinstance(source, Ledger) else source, head.needs, type(head).__name__)
        raise InputError(
            f"{type(head).__name__} is measured behind a feature map of its own, which statistics do not hold: give "
            "fit the feature_map that they were measured behind"
        )


def _fit_targets(
    head: TargetHead, parties: Parties | None, measured: Any, feature_map: FeatureMap | None, form: FixedPoint | None
) -> Classifier:
    """Fit a head for targets: from data, or from what was measured of features and targets together."""
    source = measured
    if parties is not None:
        texts = parties.class_names
        if texts or any(isinstance(data, Statistics) for data in parties.data.values()):
            what = f"text ({', '.join(texts[:3])})" if texts else "statistics"
            raise InputError(
                f"{type(head).__name__} is fitted from features and numbers, but {what} arrived: give targets as "
                "numbers, or a ledger that fedmoments.measure made of fedmoments.with_targets(…)"
            )
        pairs: dict[Any, Any] = dict(parties.data)
        joint = with_targets(pairs, feature_map)
        source = measure(joint, head.needs, n_classes=1, fixed_point=form, fold=True)
        head = replace(head, targets=target_matrix(next(iter(pairs.values()))[1]).shape[1])
    model = head.fit(source).mapped(feature_map)
    return model.noting(settings=head.settings())


def _measured_before(measured: Any, budget: str | SketchPlan | None) -> Any:
    """Return a ledger or statistics as they are; a budget for them is refused."""
    if budget is not None:
        raise InputError(
            f"a budget of {budget} is spent when a client measures, but what was measured already arrived: give "
            "the budget to spec_for before measuring, or leave it out"
        )
    return measured


def _head_of(head: str | Head, hyper: Mapping[str, Any]) -> tuple[Head, str]:
    """Return the head of a name and its hyper-parameters, or the head that was given, and what it is called."""
    if isinstance(head, str):
        return make_head(head, **hyper), head
    if hyper:
        raise InputError(f"{head} has its hyper-parameters already; {', '.join(hyper)} belong to a head given by name")
    return head, label_of({**presets(), **TARGET_HEADS}, head)


def _public_map(head: Head, parties: Parties | None, given: FeatureMap | str | None) -> FeatureMap | None:
    """Return the map that was given, or the one that a word or the head's own rule stands for."""
    if isinstance(given, FeatureMap):
        return given
    held: list[Any] = list(parties.data.values()) if parties is not None else []
    is_data = parties is not None and not any(isinstance(part, Statistics) for part in held)
    word = given or (head.map_rule if is_data else "none")
    if word != AUTO:
        return None if word == "none" else named_map(word)
    if not is_data:
        raise InputError(
            "feature_map='auto' looks at features, but what was measured already arrived: give the map that it was "
            "measured behind"
        )
    # What is not a matrix of numbers is refused where it is measured, with the name of its client.
    return automatic_map(held)


def _count_classes(parties: Parties) -> int:
    """Return C: how many names there are, what statistics say, or the highest label plus one."""
    counts = [len(parties.class_names)]
    for client, data in parties.data.items():
        if isinstance(data, Statistics):
            counts.append(data.n_classes)
            continue
        labels = np.asarray(data[1])
        # What is not a label (text, fractions) is refused where it is measured, with the name of its client.
        whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool(np.isfinite(labels).all()))
        highest = labels.max() if labels.size and whole else -1
        if highest >= MOST_CLASSES:
            raise InputError(
                f"client {client!r} has the label {highest}, which would make {int(highest) + 1} classes: number "
                "classes from 0 without gaps, give them as text, or say n_classes"
            )
        counts.append(int(highest) + 1)
    return max(1, *counts)


def _whole_map(
    head: Head, clients: ByClient, given: FeatureMap | None, n_classes: int, form: FixedPoint | None
) -> FeatureMap | None:
    """Return the given map followed by the head's own, which may need a first exchange of small statistics."""
    data = {k: v for k, v in clients.items() if not isinstance(v, Statistics)}
    if not data:
        return given

    def measured(needs: StatisticsSpec, behind: FeatureMap | None) -> Statistics:
        if len(data) < len(clients):
            raise InputError(
                "some clients gave features and some statistics, but this head chooses its feature map from all "
                "clients' features first: give features only, or choose the map's parameters yourself"
            )
        maps = compose(*(part for part in (given, behind) if part))
        return _measured(data, needs, n_classes, feature_map=maps, fixed_point=form).statistics()

    first = np.asarray(next(iter(data.values()))[0])
    if first.ndim != 2:
        return given
    own = head.agreed_map(given.output_dim(first.shape[1]) if given else first.shape[1], measured)
    if own is None:
        return given
    return compose(given, own) if given else own
