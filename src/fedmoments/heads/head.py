"""What a head is: hyper-parameters, what statistics it needs, and how it turns them into a classifier."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from fedmoments.classifier import Classifier
from fedmoments.gaussian import require
from fedmoments.maps import FeatureMap
from fedmoments.statistics import Ledger, Statistics, StatisticsSpec

__all__ = ["Head", "Preset"]

Made = TypeVar("Made")


@dataclass(frozen=True)
class Head(ABC):
    """A recipe from statistics to a classifier. Frozen: its fields are its hyper-parameters.

    No hyper-parameter ever enters a statistic, so one upload serves any sweep.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [1.0, 0.2]], [0, 1]), "b": ([[0.2, 1.1], [0.9, 0.1]], [0, 1])}
    >>> upload = fm.measure(parties, fm.make_head("fed3r").needs)
    >>> [fm.make_head("fed3r", ridge=ridge).fit(upload).predict([[0.0, 1.0]]).item() for ridge in (0.01, 1.0)]
    [0, 0]
    """

    #: Whether fitting takes as long as many other heads together: a covariance a class, or training.
    slow: ClassVar[bool] = False

    @property
    @abstractmethod
    def needs(self) -> StatisticsSpec:
        """The least statistics that this head can be fitted from."""

    @abstractmethod
    def solve(self, stats: Statistics) -> Classifier:
        """Return the classifier; ``stats`` hold what :attr:`needs` says."""

    def fit(self, source: Statistics | Ledger) -> Classifier:
        """Fit from merged statistics, or from a ledger.

        Where a scatter sketch has a budget, client means are rounded as they travel within it, unless they have
        travelled already: a head fitted beside the data is the head that a federation fits.

        Raises
        ------
        ClientsPooledError
            When the head needs clients kept apart and they are not; before anything is computed.
        MissingMomentError
            When another moment is missing.
        """
        stats = source.statistics() if isinstance(source, Ledger) else source
        require(stats, self.needs, type(self).__name__)
        return self.solve(stats.as_sent() if self.needs.has_sketch else stats)

    @property
    def has_own_map(self) -> bool:
        """Whether features are mapped in a way of this head's own before they are measured."""
        return type(self).feature_map is not Head.feature_map

    @property
    def pilot_needs(self) -> StatisticsSpec | None:
        """Statistics of a small first exchange that :meth:`feature_map` needs, or None."""
        return None

    def feature_map(self, dim: int, pilot: Statistics | None) -> FeatureMap | None:  # noqa: ARG002 - for overriders
        """Return the map that clients apply to features of ``dim`` dimensions before they measure, or None."""
        return None

    @property
    def temperature(self) -> float:
        """What scores are divided by before a softmax, so that they read as log-probabilities."""
        return 1.0

    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters as plain values, for tables and file headers."""
        plain = (bool, int, float, str, type(None))
        shallow = {name: getattr(self, name) for name in asdict(self)}
        return {name: value if isinstance(value, plain) else str(value) for name, value in shallow.items()}


@dataclass(frozen=True)
class Preset(Generic[Made]):
    """A named head (a point in the space of moments × covariance source × solver), or a named baseline.

    Parameters
    ----------
    name
        What users type.
    head
        The class.
    defaults
        Hyper-parameters that make it this preset; users may override any.
    summary
        One line for tables.
    paper
        Where it comes from.

    Examples
    --------
    >>> import fedmoments as fm
    >>> fedcof = fm.presets()["fedcof"]
    >>> fedcof.summary
    'ridge on the within scatter, free covariance of client means'
    >>> fedcof.make(shrinkage=0.1).settings()["shrinkage"]
    0.1
    """

    name: str
    head: type[Made]
    summary: str
    paper: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def make(self, **hyper: Any) -> Made:
        """Return the head with these hyper-parameters instead of the defaults."""
        return self.head(**{**self.defaults, **hyper})
