"""Feature maps: what a client does to its features before it measures them, and how such maps compose.

A map is a value. Its description (a small JSON object) says all about it, `from_description` builds an equal map from
that on another machine, and its fingerprint is the hash of the description. Maps compose as a monoid::

    (a | b) | c == a | (b | c)        a | Identity() == a == Identity() | a

**One rule for types**: every map computes and returns float64, whatever it was given. Moments are sums of products of
these numbers and cancel when a mean is subtracted, and Fourier features lose digits in float32 as their argument grows.

**Rows that are not finite** are not the map's business but must not vanish in it: a row with NaN or an infinity going
in has one coming out, without a warning, for the statistics to refuse by name.

A new map is one class: a frozen dataclass whose fields are its parameters, with ``kind=`` naming it in descriptions::

    @dataclass(frozen=True)
    class Squash(FeatureMap, kind="squash"):
        scale: float
        def _apply(self, X):
            return np.tanh(X / self.scale)
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.core.maps.checks import checked_count
from fedmoments.errors import InputError
from fedmoments.registry import Registry

__all__ = ["Chain", "FeatureMap", "FloatArray", "Identity", "compose", "from_description", "known_kinds"]

FloatArray = npt.NDArray[np.float64]


def _accept(given: Any, _name: str | None) -> type["FeatureMap"]:
    if not (isinstance(given, type) and issubclass(given, FeatureMap) and hasattr(given, "kind")):
        raise InputError("it must be a class made from FeatureMap, with kind=")
    return given


#: Classes register themselves when they are defined; entry points of the group are imported for kinds that are unknown.
_KINDS: Registry[type["FeatureMap"]] = Registry(
    "feature map", group="fedmoments.maps", accept=_accept, name_of=attrgetter("kind")
)


@dataclass(frozen=True)
class FeatureMap(ABC):
    """A map of feature rows, fixed by its parameters alone.

    Subclasses implement `_apply`, and `_width` and `required_dim` where the number of columns matters; `is_linear`.

    Examples
    --------
    >>> from fedmoments.core.maps import Clip, Normalize
    >>> pipeline = Normalize() | Clip(0.5)
    >>> pipeline([[3.0, 4.0]]).round(6).tolist()
    [[0.3, 0.4]]
    >>> from_description(pipeline.describe()) == pipeline
    True
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind = kind
            _KINDS.register(cls)

    def __call__(self, X: npt.ArrayLike) -> FloatArray:
        """Map feature rows.

        Parameters
        ----------
        X : array of shape (n, d)
            One sample a row; any real type. n may be 0.

        Returns
        -------
        array of shape (n, output_dim(d)), float64
            Never a changed X, but X itself where a map has nothing to do and X is float64.
        """
        name = type(self).__name__
        try:
            features = np.asarray(X)
        except ValueError as error:  # numpy refuses lists of unequal lengths
            raise InputError(f"the input of {name} must have shape (samples, features): {error}") from error
        if features.dtype.kind not in "fiu":
            raise InputError(
                f"the input of {name} must be real numbers (floats or integers), but got dtype {features.dtype}"
            )
        if features.ndim != 2:
            raise InputError(
                f"the input of {name} must have shape (samples, features), but got shape {features.shape}; "
                "a single sample x is x[np.newaxis, :]"
            )
        self.output_dim(features.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            return self._apply(features.astype(np.float64, copy=False))

    def output_dim(self, d: int) -> int:
        """Tell how many columns come out when ``d`` go in, or raise InputError when the map cannot take ``d``.

        Examples
        --------
        >>> Identity().output_dim(384)
        384
        """
        name = type(self).__name__
        checked_count(d, "the number of feature columns", of=f"the input of {name}")
        required = self.required_dim()
        if required is not None and d != required:
            raise InputError(
                f"the input of {name} must have {required} feature columns, but got {d}; "
                "use the encoder (and the maps before this one) that it was made for, or make it for the new width"
            )
        return self._width(int(d))

    def required_dim(self) -> int | None:
        """Tell the only number of input columns that the map takes, or None when it takes any.

        Examples
        --------
        >>> Identity().required_dim() is None
        True
        """
        return None

    @property
    def is_linear(self) -> bool:
        """Whether z = xR + b for some R and b, so that a sum behind it tells the sum before it, no more."""
        return False

    def describe(self) -> dict[str, object]:
        """Describe the map completely, as a JSON object: its ``kind`` and every parameter.

        Examples
        --------
        >>> from fedmoments.core.maps import Clip
        >>> Clip(2).describe()
        {'kind': 'clip', 'norm': 2.0}
        """
        return {"kind": self.kind, **{field.name: _plain(getattr(self, field.name)) for field in fields(self)}}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Build a map of this class from its description without the ``kind``.

        Examples
        --------
        >>> from fedmoments.core.maps import Clip
        >>> Clip.from_parameters({"norm": 2.0})
        Clip(norm=2.0)
        """
        allowed = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING}
        given = set(parameters)
        if not needed <= given <= allowed:
            raise InputError(
                f"the description of a feature map of kind '{cls.kind}' must have the parameters "
                f"{sorted(needed)} and may have {sorted(allowed - needed)}, but got {sorted(map(str, given))}; "
                "it was damaged, or written by another version of fedmoments"
            )
        return cls(**parameters)

    def fingerprint(self) -> str:
        """Hash the description: SHA-256 of its canonical JSON, 64 hexadecimal digits.

        Examples
        --------
        >>> from fedmoments.core.maps import Clip
        >>> Clip(2).fingerprint() == Clip(2.0).fingerprint() != Clip(3).fingerprint()
        True
        """
        return sha256_of_json(self.describe())

    def content_hash(self) -> str:
        """Hash the arrays that the map uses: SHA-256 of their little-endian float64 bytes, row by row.

        Two parties that have the same fingerprint must have the same content hash; if not, one machine draws other
        numbers from the seed. It says nothing about maps without arrays (all have the hash of no bytes).

        Examples
        --------
        >>> from fedmoments.core.maps import RandomProjection
        >>> RandomProjection(3, 2, seed=0).content_hash() == RandomProjection(3, 2, seed=1).content_hash()
        False
        """
        sha = hashlib.sha256()
        for array in self._arrays():
            sha.update(np.ascontiguousarray(array, dtype="<f8").data)
        return sha.hexdigest()

    def then(self, other: "FeatureMap") -> "FeatureMap":
        """Compose: apply this map first and ``other`` to what comes out. Also written ``self | other``.

        Examples
        --------
        >>> from fedmoments.core.maps import Clip, Normalize
        >>> Normalize().then(Clip(1)) == Normalize() | Clip(1)
        True
        """
        return compose(self, other)

    def __or__(self, other: object) -> "FeatureMap":
        return compose(self, other) if isinstance(other, FeatureMap) else NotImplemented

    def __reduce__(self) -> "tuple[Callable[[Mapping[str, object]], FeatureMap], tuple[dict[str, object]]]":
        # Copies and worker processes get the description, not the megabytes that were drawn from it.
        return from_description, (self.describe(),)

    @abstractmethod
    def _apply(self, X: FloatArray) -> FloatArray:
        """Map rows (n, d) that were checked; must not change X."""

    def _width(self, d: int, /) -> int:
        return d

    def _arrays(self) -> tuple[FloatArray, ...]:
        return ()


@dataclass(frozen=True)
class Identity(FeatureMap, kind="identity"):
    """The map that changes nothing: z = x.

    Examples
    --------
    >>> Identity()([[1.0, 2.0]]).tolist()
    [[1.0, 2.0]]
    """

    is_linear = True

    def _apply(self, X: FloatArray) -> FloatArray:
        return X


@dataclass(frozen=True)
class Chain(FeatureMap, kind="chain"):
    """Maps applied one after the other; made by ``a | b`` or `compose`.

    Chains inside are opened and identities left out, so that equal compositions are equal values.

    Parameters
    ----------
    maps
        At least two maps other than the identity, first applied first.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize, RandomProjection
    >>> chain = Normalize() | RandomProjection(64, 16, seed=0)
    >>> chain.output_dim(64)
    16
    >>> len((chain | Identity()).maps)
    2
    """

    maps: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        flat = _flatten(self.maps)
        if len(flat) < 2:
            raise InputError(
                f"a Chain must have at least two maps other than the identity, but got {len(flat)}; use compose()"
            )
        object.__setattr__(self, "maps", flat)
        width: int | None = None
        for position, stage in enumerate(flat, start=1):
            start = stage.required_dim() if width is None else width
            if start is not None:  # from the first map that fixes its width on, every width is known
                width = _next_width(stage, start, position)

    def required_dim(self) -> int | None:
        """Tell the number of columns that the first map takes, or None when it takes any."""
        return self.maps[0].required_dim()

    @property
    def is_linear(self) -> bool:
        """Whether all of its maps are."""
        return all(stage.is_linear for stage in self.maps)

    def describe(self) -> dict[str, object]:
        """Describe the chain: the descriptions of its maps, in order."""
        return {"kind": self.kind, "maps": [stage.describe() for stage in self.maps]}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Build a chain from the descriptions of its maps; a chain in a chain is refused, none is ever written."""
        descriptions = parameters.get("maps")
        if set(parameters) != {"maps"} or not isinstance(descriptions, list | tuple):
            raise InputError(
                "the description of a feature map of kind 'chain' must have the parameter 'maps', a list of "
                f"descriptions, but got {sorted(map(str, parameters))}; it was damaged, or written by another version"
            )
        if any(isinstance(stage, Mapping) and stage.get("kind") == cls.kind for stage in descriptions):
            raise InputError(
                "the description of a chain holds another chain: fedmoments writes one flat list; "
                "list the maps in the order in which they are applied"
            )
        return cls(tuple(from_description(stage) for stage in descriptions))

    def _apply(self, X: FloatArray) -> FloatArray:
        for stage in self.maps:
            X = stage._apply(X)
        return X

    def _width(self, d: int, /) -> int:
        for position, stage in enumerate(self.maps, start=1):
            d = _next_width(stage, d, position)
        return d

    def _arrays(self) -> tuple[FloatArray, ...]:
        return tuple(array for stage in self.maps for array in stage._arrays())


def compose(*maps: FeatureMap) -> FeatureMap:
    """Compose maps, first applied first: the identity for none, the map itself for one, else a `Chain`.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize
    >>> compose(), compose(Normalize(), Identity())
    (Identity(), Normalize())
    """
    flat = _flatten(maps)
    if not flat:
        return Identity()
    return flat[0] if len(flat) == 1 else Chain(flat)


def from_description(description: Mapping[str, object]) -> FeatureMap:
    """Build the map that a description (of `FeatureMap.describe`, perhaps by way of JSON) describes.

    Nothing is drawn or computed until the map is used, and every parameter is checked.

    Examples
    --------
    >>> from_description({"kind": "clip", "norm": 2})
    Clip(norm=2.0)
    >>> from_description({"kind": "normalise"})
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown feature map 'normalise': did you mean 'normalize'? Known are: ...
    """
    given: object = description  # it may have come as JSON from elsewhere: the type hint is not proof
    kind = given.get("kind") if isinstance(given, Mapping) else None
    if not isinstance(kind, str):
        raise InputError(
            "the description of a feature map must be a JSON object with a string 'kind', "
            f"but got {_shortened(description)}; write it with FeatureMap.describe()"
        )
    return _KINDS.find(kind).from_parameters({name: value for name, value in description.items() if name != "kind"})


def known_kinds() -> tuple[str, ...]:
    """List the kinds that `from_description` knows, sorted.

    Examples
    --------
    >>> "identity" in known_kinds()
    True
    """
    return tuple(sorted(_KINDS))


def _flatten(maps: tuple[FeatureMap, ...]) -> tuple[FeatureMap, ...]:
    flat: list[FeatureMap] = []
    for stage in maps:
        if not isinstance(stage, FeatureMap):
            raise InputError(f"only feature maps can be composed, but got {_shortened(stage)}")
        if isinstance(stage, Chain):
            flat.extend(stage.maps)
        elif not isinstance(stage, Identity):
            flat.append(stage)
    return tuple(flat)


def _next_width(stage: FeatureMap, width: int, position: int) -> int:
    try:
        return stage.output_dim(width)
    except InputError as error:
        raise InputError(f"map {position} of a Chain cannot take what reaches it: {error}") from error


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shortened(value: object, limit: int = 80) -> str:
    return text if len(text := repr(value)) <= limit else f"{text[:limit]}…"
