"""What all parties of a federation must have in common before their moments may be added.

Moments carry no trace of how features were made: sums over features of two encoders add without an error and mean
nothing. So each party states the encoder's weights and behaviour, the preprocessing, the feature map and the class
list, and two parties whose statements differ are never merged.

All but the behaviour must be equal, and is named by the `Fingerprint.digest`. The behaviour (what the encoder makes of
a public probe, see :mod:`fedmoments.samples.encoders.probe`) differs in its last bits between machines and runtimes:
it must *agree*, and is not part of the digest. Terms carry the behaviour of the encoder that they were made with, so
their id covers it; a party compares its own with that one and then works under the id of the terms.
"""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedmoments.core.maps.base import FeatureMap, Identity, from_description
from fedmoments.core.maps.canonical import canonical_json, sha256_of_json
from fedmoments.errors import FileFormatError, InputError, MergeError, reading
from fedmoments.samples.encoders.probe import Behaviour, describe_difference

if TYPE_CHECKING:
    from fedmoments.samples.encoders.encoder import Encoder

__all__ = ["FORMAT_VERSION", "Fingerprint"]

FORMAT_VERSION = 1

_REMEDIES = {
    "encoder": "load the same encoder weights",
    "behaviour": "use the same code of the network",
    "preprocessing": "prepare the samples in the same way",
    "feature_map": "build the map from the description that the server publishes",
    "classes": "use the server's class list, in its order",
    "format_version": "install the same version of fedmoments",
}


@dataclass(frozen=True)
class Fingerprint:
    """The statement of one party on how its features and labels came about.

    Parameters
    ----------
    encoder
        Which encoder with which weights, best with a hash of them: ``"mobilenet_v2@sha256:…"``.
    preprocessing
        What happens to a sample before the encoder: a text, or a mapping with values that JSON can hold. A mapping is
        kept as its canonical JSON text; write numbers alike everywhere, for ``1`` and ``1.0`` are different texts.
    feature_map
        The map between encoder and statistics; None means the identity and is kept as that.
    classes
        The names of the classes, unique; the order counts, for row c of every moment is ``classes[c]``.
    format_version
        The version of this format, 1.
    behaviour
        What the encoder does with the public probe; None where the encoder of the features is unknown.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize
    >>> server = Fingerprint("minilm@sha256:53aa", "lower case", Normalize(), ("cat", "dog"))
    >>> client = Fingerprint("minilm@sha256:53aa", "lower case", Normalize(), ("cat", "dog"))
    >>> server.digest == client.digest
    True
    >>> server.require_same(client, theirs="client 7")
    """

    encoder: str
    preprocessing: str | Mapping[str, object]
    feature_map: FeatureMap | None
    classes: tuple[str, ...]
    format_version: int = FORMAT_VERSION
    behaviour: Behaviour | None = None

    @classmethod
    def of(cls, encoder: "Encoder", feature_map: FeatureMap | None, classes: tuple[str, ...]) -> "Fingerprint":
        """Return the statement of a party with this encoder; the encoder is run on the probe.

        Examples
        --------
        >>> from fedmoments.samples.encoders import load_encoder
        >>> Fingerprint.of(load_encoder("identity", dim=3), None, ("cat", "dog")).behaviour.scale > 1
        True
        """
        parts = encoder.weights_hash, dict(encoder.preprocessing), feature_map, classes
        return cls(*parts, behaviour=encoder.behaviour)

    def __post_init__(self) -> None:
        _require_text(self.encoder, "encoder")
        if isinstance(self.preprocessing, Mapping):
            object.__setattr__(self, "preprocessing", canonical_json(dict(self.preprocessing)))
        else:
            _require_text(self.preprocessing, "preprocessing", or_else=" or a mapping")
        if self.feature_map is None:
            object.__setattr__(self, "feature_map", Identity())
        elif not isinstance(self.feature_map, FeatureMap):
            raise InputError(
                "the feature_map of a Fingerprint must be a FeatureMap or None, "
                f"but got {_shortened(self.feature_map)}; build one with fedmoments.core.maps.from_description"
            )
        object.__setattr__(self, "classes", _checked_classes(self.classes))
        version: object = self.format_version
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InputError(
                f"the format_version of a Fingerprint must be a whole number of at least 1, but got {version!r}"
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of all fields but the behaviour, 64 hexadecimal digits."""
        return sha256_of_json({name: value for name, value in self.to_dict().items() if name != "behaviour"})

    def require_same(self, other: "Fingerprint", ours: str = "server", theirs: str = "client") -> None:
        """Raise MergeError unless all fields are equal and the behaviours agree, naming every field that differs.

        Parameters
        ----------
        other
            The fingerprint of the other party.
        ours, theirs
            Whose fingerprints these are, for the message.

        Examples
        --------
        >>> server = Fingerprint("minilm", "lower case", None, ("cat", "dog"))
        >>> client = Fingerprint("minilm", "upper case", None, ("dog", "cat"))
        >>> server.require_same(client, theirs="client 7")
        Traceback (most recent call last):
        fedmoments.errors.MergeError: the moments of client 7 must not be merged with those of server: ...
          preprocessing: server has 'lower case', client 7 has 'upper case'; prepare the samples in the same way
          classes: server has 2, client 7 has 2, the same names in another order, first at position 0: 'cat' against
          'dog'; use the server's class list, in its order
        """
        if not isinstance(other, Fingerprint):
            raise InputError(f"only fingerprints can be compared, but {theirs} sent {_shortened(other)}")
        mine, other_fields = ({"behaviour": None, **fingerprint.to_dict()} for fingerprint in (self, other))
        if self.behaviour and other.behaviour and self.behaviour.agrees(other.behaviour):
            other_fields["behaviour"] = mine["behaviour"]
        differing = [name for name in mine if mine[name] != other_fields[name]]
        if not differing:
            return
        lines = [f"  {name}: {self._difference(other, name, ours, theirs)}; {_REMEDIES[name]}" for name in differing]
        raise MergeError(
            f"the moments of {theirs} must not be merged with those of {ours}: their fingerprints differ "
            f"({ours} {self.digest[:12]}, {theirs} {other.digest[:12]}) in {', '.join(differing)}\n" + "\n".join(lines)
        )

    def to_dict(self) -> dict[str, object]:
        """Write all fields as a JSON object.

        Examples
        --------
        >>> Fingerprint("minilm", "none", None, ("a", "b")).to_dict()["feature_map"]
        {'kind': 'identity'}
        """
        feature_map = self.feature_map or Identity()
        does = {"behaviour": self.behaviour.to_text()} if self.behaviour else {}
        return {
            "encoder": self.encoder,
            "preprocessing": self.preprocessing,
            "feature_map": feature_map.describe(),
            "classes": list(self.classes),
            "format_version": self.format_version,
            **does,
        }

    def to_json(self) -> str:
        """Write the canonical JSON text of all fields.

        Examples
        --------
        >>> fingerprint = Fingerprint("minilm", "none", None, ("a", "b"))
        >>> Fingerprint.from_json(fingerprint.to_json()) == fingerprint
        True
        """
        return canonical_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "Fingerprint":
        """Read what `to_json` wrote; everything in it is checked. Cap the size of foreign text before.

        Examples
        --------
        >>> Fingerprint.from_json("{}")
        Traceback (most recent call last):
        fedmoments.errors.FileFormatError: a fingerprint must be a JSON object with the fields ...
        """
        try:
            value = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise FileFormatError(
                f"a fingerprint is not JSON ({error}); write it with Fingerprint.to_json()"
            ) from error
        wanted = {"encoder", "preprocessing", "feature_map", "classes", "format_version"}
        if not isinstance(value, dict) or set(value) - {"behaviour"} != wanted:
            got = sorted(value) if isinstance(value, dict) else _shortened(value)
            raise FileFormatError(
                f"a fingerprint must be a JSON object with the fields {sorted(wanted)}, but got {got}; "
                f"it was damaged, or written by another version (this one writes format_version {FORMAT_VERSION})"
            )
        with reading("this is not a fingerprint"):
            return cls(
                encoder=value["encoder"],
                preprocessing=value["preprocessing"],
                feature_map=from_description(value["feature_map"]),
                classes=value["classes"],
                format_version=value["format_version"],
                behaviour=Behaviour.from_text(value["behaviour"]) if "behaviour" in value else None,
            )

    def _difference(self, other: "Fingerprint", name: str, ours: str, theirs: str) -> str:
        if name == "classes":
            return _class_difference(self.classes, other.classes, ours, theirs)
        if name == "behaviour" and self.behaviour and other.behaviour:
            return f"the networks behave differently: {describe_difference(self.behaviour.difference(other.behaviour))}"
        shown = [
            _shown_map(party) if name == "feature_map" else _shortened(getattr(party, name)) for party in (self, other)
        ]
        return f"{ours} has {shown[0]}, {theirs} has {shown[1]}"


def _class_difference(mine: tuple[str, ...], yours: tuple[str, ...], ours: str, theirs: str) -> str:
    counts = f"{ours} has {len(mine)}, {theirs} has {len(yours)}"
    shared = min(len(mine), len(yours))
    first = next((at for at in range(shared) if mine[at] != yours[at]), shared)
    pair = " against ".join(_shortened(names[first]) if first < len(names) else "none" for names in (mine, yours))
    where = f"first at position {first}: {pair}"
    if set(mine) == set(yours):
        return f"{counts}, the same names in another order, {where}"
    only = [
        f"only {whose}: {_shortened(sorted(names))}"
        for whose, names in ((ours, set(mine) - set(yours)), (theirs, set(yours) - set(mine)))
        if names
    ]
    return f"{counts}, {', '.join(only)}, {where}"


def _shown_map(of: Fingerprint) -> str:
    feature_map = of.feature_map or Identity()
    return f"{_shortened(canonical_json(feature_map.describe()))} ({feature_map.fingerprint()[:12]})"


def _checked_classes(classes: object) -> tuple[str, ...]:
    if not isinstance(classes, list | tuple) or not classes:
        raise InputError(
            "the classes of a Fingerprint must be a list or tuple of at least one name, in the order of the moments' "
            f"rows, but got {_shortened(classes)}"
        )
    seen: set[str] = set()
    for position, name in enumerate(classes):
        if not isinstance(name, str) or not name:
            raise InputError(
                f"class {position} of a Fingerprint must be a name (a string that is not empty), but got "
                f"{_shortened(name)}; turn other labels into text with str()"
            )
        form = unicodedata.normalize("NFC", name)  # é is one character or two, and looks the same
        if form in seen:
            how = "twice" if name in classes[:position] else "before, in another Unicode form"
            raise InputError(
                f"class {position} of a Fingerprint, {_shortened(name)}, occurs {how}; names must be unique"
            )
        seen.add(form)
    return tuple(str(name) for name in classes)


def _require_text(value: object, name: str, or_else: str = "") -> None:
    if not isinstance(value, str) or not value:
        raise InputError(
            f"the {name} of a Fingerprint must be a text that is not empty{or_else}, but got {_shortened(value)}"
        )


def _shortened(value: object, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
