"""The heads as a scikit-learn classifier, for pipelines, grid searches and cross-validation (extra ``sklearn``).

Scikit-learn holds all samples in one matrix; ``groups`` say which client holds which row. Additive heads (FedNCM,
Fed3R, GH-LDA …) do not depend on the partition, so they ignore groups. Heads that estimate covariances from client
means (FedCOF, ``lda-free``, ``nb-free``) do; without groups every sample is its own client, and then, by a law of this
package, the free covariance *is* the ordinary sample covariance.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.api import fit as fit_head
from fedmoments.core.api import spec_for
from fedmoments.core.arrays import as_array
from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head, make_head
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import FeatureMap
from fedmoments.core.maps.cells import is_missing
from fedmoments.core.statistics import Accumulator, Ledger, Statistics, StatisticsSpec
from fedmoments.core.statistics.relabelling import relabelled
from fedmoments.errors import FedMomentsError, InputError, MissingExtraError, NotEnoughDataError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("FedMomentsClassifier", "scikit-learn>=1.6", "sklearn") from error

__all__ = ["FedMomentsClassifier"]

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

#: What features may stay; anything else is widened to the first.
FLOAT_TYPES = (np.float64, np.float32)


@dataclass(frozen=True)
class _Measured:
    """What was measured so far, and for which head."""

    head: Head
    feature_map: FeatureMap | None
    source: Accumulator | Ledger
    seed: int
    before: Statistics | None = None

    @classmethod
    def nothing(
        cls, head: Head, spec: StatisticsSpec, *, n_classes: int, dim: int, feature_map: FeatureMap | None, seed: int
    ) -> "_Measured":
        """Return the state before the first sample."""
        width = feature_map.output_dim(dim) if feature_map else dim
        source: Accumulator | Ledger
        if spec.keeps_clients_apart:
            source = Ledger(spec, n_classes=n_classes, dim=width, fold=True)
        else:
            source = Accumulator(spec, n_classes=n_classes, dim=width)
        return cls(head, feature_map, source, seed)

    def add(self, X: Floats, labels: Ints) -> None:
        """Take in a batch (additive heads), or one more client (heads that keep clients apart)."""
        if isinstance(self.source, Accumulator):
            for block in blocks(len(X)):  # mapped features may be far wider than X
                self.source.update(self._mapped(X[block]), labels[block])
        else:
            spec, n_classes = self.source.spec, self.source.n_classes
            part = Statistics.of(self._mapped(X), labels, spec, n_classes=n_classes, seed=self.seed)
            self.source.join(len(self.source), part)

    def among(self, labels: Ints, n_classes: int) -> "_Measured":
        """Return the state under a class list with more classes, in which class c has the label ``labels[c]``."""
        dim = self.source.dim
        if isinstance(self.source, Accumulator):
            before = relabelled(self.statistics(), labels, n_classes)
            source = Accumulator(self.source.spec, n_classes=n_classes, dim=dim, seed=self.seed)
            return replace(self, source=source, before=before)
        ledger = Ledger(self.source.spec, n_classes=n_classes, dim=dim)
        for client in self.source.clients:
            ledger.join(client, relabelled(self.source.client(client), labels, n_classes))
        return replace(self, source=ledger)

    def statistics(self) -> Statistics:
        """Return all that was taken in, merged."""
        now = self.source.statistics()
        return now if self.before is None else Statistics.merge([self.before, now])

    def with_clients(self, X: Floats, labels: Ints, holders: Ints) -> "_Measured":
        """Return the state after all clients of a partition, where there was none before."""
        if isinstance(self.source, Accumulator):
            self.add(X, labels)
            return self
        spec, n_classes = self.source.spec, self.source.n_classes
        ledger = Ledger.of(self._mapped(X), labels, holders, spec, n_classes=n_classes, seed=self.seed, fold=True)
        return _Measured(self.head, self.feature_map, ledger, self.seed)

    def _mapped(self, X: Floats) -> Floats:
        return self.feature_map(X) if self.feature_map else X


class FedMomentsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types: its bases are Any
    """Any head of fedmoments as a scikit-learn classifier.

    Parameters
    ----------
    head
        A name (see :func:`fedmoments.head_names`) or a head.
    hyper
        Hyper-parameters of a head that is given by name, for example ``{"shrinkage": "blend:0.05"}``.
    means_per_client
        How many means of a class a client sends (heads that use client means).
    temperature
        Probabilities are softmax(scores / temperature); None: the classifier's own, which follows from the statistics.
    random_state
        Deals samples to those means; an integer, a ``numpy.random.RandomState`` or None.

    Attributes
    ----------
    classes_
        (C,) labels, sorted.
    n_features_in_
        d.
    feature_names_in_
        (d,) names of the columns, if X had any.
    classifier_
        The :class:`fedmoments.Classifier`, to save or to deploy without scikit-learn; its class names are ``classes_``
        as text.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 40)
    >>> X = rng.normal(size=(80, 5)) + np.where(y == "cat", -3.0, 3.0)[:, None]
    >>> site = np.arange(80) % 4
    >>> model = FedMomentsClassifier("fedcof").fit(X, y, groups=site)
    >>> model.score(X, y)
    1.0
    >>> model.predict([[3.0, 3.0, 3.0, 3.0, 3.0]])
    array(['dog'], dtype='<U3')

    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(FedMomentsClassifier(), {"head": ["fedncm", "gh-lda", "gh-nb"]}, cv=4)
    >>> search.fit(X, y).best_score_
    np.float64(1.0)
    """

    def __init__(
        self,
        head: str | Head = "gh-lda",
        hyper: Mapping[str, Any] | None = None,
        means_per_client: int = 1,
        temperature: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.hyper = hyper
        self.means_per_client = means_per_client
        self.temperature = temperature
        self.random_state = random_state

    # ---------------------------------------------------------------------------------------------- fitting

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Measure all clients, merge, solve.

        Parameters
        ----------
        X
            (n, d) features, dense, n ≥ 2.
        y
            (n,) labels of any sortable kind.
        groups
            (n,) which client holds each sample. Without it, heads that keep clients apart take every sample for a
            client of its own, with a warning: the free covariance is then the ordinary sample covariance, and
            ``means_per_client`` has no effect. Scores of other heads do not depend on who holds what; the temperature
            of those without a covariance between features does (``fedncm``), until ``partial_fit`` adds to them.

        Examples
        --------
        >>> X, y = [[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.1]], ["low", "low", "high", "high"]
        >>> FedMomentsClassifier("gh-lda").fit(X, y).classes_
        array(['high', 'low'], dtype='<U4')
        """
        features, targets = validate_data(self, _plain(X), _plain(y), dtype=FLOAT_TYPES, ensure_min_samples=2)
        check_classification_targets(targets)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        holders = np.arange(len(targets))
        if groups is not None:
            check_consistent_length(features, groups)
            holders = _numbered(groups)
        head, n_classes = self._head(), len(self.classes_)
        if groups is None and self._spec(head).keeps_clients_apart:
            warnings.warn(
                f"{head} depends on who holds which sample, but no groups were given: every sample counts as a client "
                "of its own. Say fit(X, y, groups=sites)",
                stacklevel=2,
            )

        def measured(needs: StatisticsSpec, behind: FeatureMap | None) -> Statistics:
            mapped = behind(features) if behind else features
            return Ledger.of(mapped, labels, holders, needs, n_classes=n_classes, fold=True).statistics()

        feature_map = head.agreed_map(features.shape[1], measured)
        self._measured = self._nothing(head, feature_map).with_clients(features, labels, holders)
        self._solved = None  # if solving fails, what was fitted before is gone all the same
        apart = None
        if groups is not None and head.apart_needs != head.needs:
            apart = measured(head.apart_needs, feature_map)
        self._solved = self._solve(apart)
        return self

    def _head_needs_one_pass(self) -> bool:
        """Return whether a stream suffices; a head that cannot even be made complains when it is fitted."""
        try:
            return not self._head().earlier(1)
        except FedMomentsError:
            return True

    @available_if(_head_needs_one_pass)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Take in one more batch, or one more client, and forget its samples.

        Additive heads accumulate exactly: any batching gives what :meth:`fit` gives on everything. For heads that keep
        clients apart each call is one client. Continues after :meth:`fit`. The head is solved when it is first used,
        not in every call, so calls are cheap. Not available for a head that must look at all features before it
        measures them (``fed3r-rf`` with an automatic bandwidth).

        Parameters
        ----------
        X
            (n, d) features, dense.
        y
            (n,) labels.
        classes
            (C,) all labels; needed in the first call. A later call may name more than before: what was taken in stays,
            and the result is the one of having named all from the start, up to rounding.

        Examples
        --------
        >>> model = FedMomentsClassifier("fedcof")
        >>> model = model.partial_fit([[0.0, 1.0], [4.0, 0.2]], ["a", "b"], classes=["a", "b"])
        >>> model = model.partial_fit([[0.3, 1.2], [5.0, 0.0]], ["a", "b"])
        >>> model.predict([[0.0, 2.0]])
        array(['a'], dtype='<U1')
        """
        first = not self.__sklearn_is_fitted__()
        if first and classes is None:
            raise InputError(
                "the first call of partial_fit needs classes: the labels known so far; a later call may name more"
            )
        features, targets = validate_data(self, _plain(X), _plain(y), dtype=FLOAT_TYPES, reset=first)
        check_classification_targets(targets)
        known = np.unique(column_or_1d(classes)) if classes is not None else self.classes_
        if not first and not np.isin(self.classes_, known).all():
            raise InputError(f"classes must stay what they were, {self.classes_}, or be more; {known} arrived")
        _check_labels(targets, known)
        head = self._head()
        if first:
            self.classes_ = known
            self._measured = self._nothing(head, head.feature_map(self.n_features_in_, None))
        elif head != self._measured.head or self._spec(head) != self._measured.source.spec:
            raise InputError(
                f"the statistics so far are {self._measured.source.spec} for {self._measured.head}, but the head is "
                f"now {head} with means_per_client={self.means_per_client}: call fit, or partial_fit on a clone"
            )
        if len(known) > len(self.classes_):
            labels = np.searchsorted(known, self.classes_)
            self._measured, self.classes_ = self._measured.among(labels, len(known)), known
        self._measured.add(features, np.searchsorted(known, targets))
        self._solved = None
        return self

    # ---------------------------------------------------------------------------------------------- using it

    @property
    def classifier_(self) -> Classifier:
        """The fedmoments classifier of everything that was taken in so far."""
        check_is_fitted(self)
        if self._solved is None:
            try:
                self._solved = self._solve()
            except NotEnoughDataError as error:
                raise NotFittedError(f"this {type(self).__name__} cannot be used yet: {error}") from error
        return self._solved

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return scores; higher is likelier.

        Parameters
        ----------
        X
            (n, d) features. float32 is scored in float32, anything else in float64.

        Returns
        -------
        scores
            (n, C); of two classes (n,), the score of ``classes_[1]`` less that of ``classes_[0]``.
        """
        scores = self.classifier_.scores(self._checked(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label (n,) with the highest score, of features (n, d)."""
        labels = self.classifier_.predict(self._checked(X))
        return np.asarray(self.classes_[labels])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return softmax(scores / temperature), (n, C), of features (n, d), columns in the order of ``classes_``."""
        return self.classifier_.predict_proba(self._checked(X), temperature=self.temperature)

    # ---------------------------------------------------------------------------------------------- inside

    def _head(self) -> Head:
        if isinstance(self.head, str):
            return make_head(self.head, **(self.hyper or {}))
        if self.hyper:
            raise InputError(f"{self.head} has its hyper-parameters already; hyper belongs to a head given by name")
        return self.head

    def _spec(self, head: Head) -> StatisticsSpec:
        if self.means_per_client < 1:
            raise InputError(f"means_per_client must be 1 or more, not {self.means_per_client}")
        spec = spec_for(head, means_per_client=self.means_per_client)
        return spec.with_plan(spec.plan).settled(len(self.classes_))

    def _nothing(self, head: Head, feature_map: FeatureMap | None) -> _Measured:
        state = self.random_state
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31))
        sizes = {"n_classes": len(self.classes_), "dim": self.n_features_in_}
        return _Measured.nothing(head, self._spec(head), **sizes, feature_map=feature_map, seed=seed)

    def _solve(self, apart: Statistics | None = None) -> Classifier:
        """Fit from all that was taken in, or from the same with clients' class sums apart, where these are known."""
        done = self._measured
        source = apart or (done.statistics() if isinstance(done.source, Accumulator) else done.source)
        names = [str(label) for label in self.classes_]
        classifier = fit_head(done.head, source, class_names=names, feature_map=done.feature_map)
        return classifier.noting(head=self.head) if isinstance(self.head, str) else classifier

    def _checked(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return np.asarray(validate_data(self, _plain(X), dtype=FLOAT_TYPES, reset=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_measured")


def _plain(values: Any) -> Any:
    """Return tensors as arrays, whether they need gradients or not, and refuse masks, which would be ignored."""
    return as_array(values) if hasattr(values, "detach") or np.ma.isMaskedArray(values) else values


def _numbered(groups: ArrayLike) -> Ints:
    """Return the holders (n,) of the samples as numbers; none may be missing."""
    named = column_or_1d(_plain(groups))
    gone = [place for place, group in enumerate(named.tolist()) if is_missing(group)]
    if gone:
        raise InputError(f"groups say of no client that it holds sample {gone[0]}: {len(gone)} are missing")
    return np.asarray(np.unique(named, return_inverse=True)[1], np.int64)


def _check_labels(targets: NDArray[Any], known: NDArray[Any]) -> None:
    unknown = targets[~np.isin(targets, known)]
    if len(unknown):
        arrived = unknown[0].item()
        raise InputError(
            f"labels must be among the classes {known}, but {arrived!r} arrived: if new, name it in classes"
        )
