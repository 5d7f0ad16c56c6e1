"""The terms of a federation: the one public document that every party reads before it takes part.

Their SHA-256 is the federation's id. It stands, signed, in every contribution: nobody can be made to contribute under
other terms than those it read.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedmoments.errors import FedMomentsError, FileFormatError, InputError
from fedmoments.federation.fingerprint import Fingerprint
from fedmoments.maps.base import FeatureMap, Identity
from fedmoments.maps.canonical import canonical_json, sha256_of_json
from fedmoments.statistics import FixedPoint, StatisticsSpec
from fedmoments.wire.agreement import Agreement

__all__ = ["Terms"]

_FIELDS = ("name", "encoder", "fingerprint", "dim", "moments", "means_per_client", "norm_bound", "max_samples")
_ALL = {*_FIELDS, "rows", "max_bytes", "seed", "nonce"}


@dataclass(frozen=True)
class Terms:
    """What is measured, of which features, in which form.

    Parameters
    ----------
    name
        What people call the federation.
    encoder
        How to load the encoder: ``{"name": …, "options": {…}}``, and its own fingerprint (``"fingerprint": …``) for
        those who predict later; the fingerprint below says whether a party has the right one.
    fingerprint
        Encoder weights, preprocessing, feature map and class list that all parties share.
    dim
        Dimension d of the features that are measured, after the feature map.
    spec
        Which moments.
    fixed_point
        Their form; its norm bound and number of samples are caps that every party obeys.
    rows
        Type in which rows of client means travel: int64, float16 or bfloat16.
    max_bytes
        Cap on one contribution.
    seed
        Deals samples to several means of a class.
    nonce
        Makes the id of two federations with the same terms differ; random by default.

    Examples
    --------
    >>> fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    >>> terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 8, StatisticsSpec())
    >>> Terms.from_json(terms.to_json()).id == terms.id
    True
    """

    name: str
    encoder: Mapping[str, Any]
    fingerprint: Fingerprint
    dim: int
    spec: StatisticsSpec
    fixed_point: FixedPoint = field(default_factory=FixedPoint)
    rows: str = "int64"
    max_bytes: int = 2**28
    seed: int = 0
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise InputError(f"the name of a federation must be a printable text, not {self.name!r}")
        known = set(self.encoder) <= {"name", "options", "fingerprint"} and isinstance(self.encoder.get("name"), str)
        options = self.encoder.get("options")
        if not known or not isinstance(options, Mapping) or not _sound_options(options):
            raise InputError(
                'the encoder of terms must be {"name": …, "options": {…}}, with no other options than size (a whole '
                f"number) and pooling (a word), not {self.encoder!r}"
            )
        if self.agreement.federation != self.id:  # also builds the agreement, which checks the numbers
            raise InputError("the terms of a federation cannot be changed")

    @cached_property
    def id(self) -> str:
        """SHA-256 of the terms, 64 hexadecimal digits."""
        return sha256_of_json(self.to_dict())

    @cached_property
    def agreement(self) -> Agreement:
        """What contributions are checked against."""
        return Agreement(
            self.id,
            self.fingerprint.digest,
            sha256_of_json(list(self.fingerprint.classes)),
            len(self.fingerprint.classes),
            self.dim,
            self.spec,
            self.fixed_point,
            self.rows,
            self.max_bytes,
        )

    @property
    def map_or_none(self) -> FeatureMap | None:
        """The feature map, or None where features are measured as the encoder gives them."""
        given = self.fingerprint.feature_map
        return None if isinstance(given, Identity) else given

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the labels."""
        return self.fingerprint.classes

    def to_dict(self) -> dict[str, Any]:
        """Return the terms, ready for JSON."""
        return {
            "name": self.name,
            "encoder": {**self.encoder, "options": dict(self.encoder["options"])},
            "fingerprint": self.fingerprint.to_dict(),
            "dim": self.dim,
            "moments": sorted(self.spec.moments),
            "means_per_client": self.spec.means_per_client,
            "norm_bound": float(self.fixed_point.norm_bound),
            "max_samples": self.fixed_point.max_samples,
            "rows": self.rows,
            "max_bytes": self.max_bytes,
            "seed": self.seed,
            "nonce": self.nonce,
        }

    def to_json(self) -> str:
        """Return the canonical JSON text of which `id` is the hash."""
        return canonical_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "Terms":
        """Read what :meth:`to_json` wrote; everything in it is checked.

        Raises
        ------
        FileFormatError
            When the text is no terms, or terms that make no sense.
        """
        try:
            value = json.loads(text)
            if not isinstance(value, dict) or set(value) != _ALL:
                raise InputError(f"a JSON object with the fields {', '.join(sorted(_ALL))} was expected")
            spec = StatisticsSpec.of(*value["moments"], means_per_client=value["means_per_client"])
            form = FixedPoint(value["norm_bound"], value["max_samples"])
            fingerprint = Fingerprint.from_json(json.dumps(value["fingerprint"]))
            rest = {name: value[name] for name in ("name", "encoder", "dim", "rows", "max_bytes", "seed", "nonce")}
            return cls(fingerprint=fingerprint, spec=spec, fixed_point=form, **rest)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, FedMomentsError) as error:
            raise FileFormatError(f"these are no terms of a federation: {error}") from error


def _sound_options(options: Mapping[str, Any]) -> bool:
    kinds = {"size": int, "pooling": str}
    return all(name in kinds and type(value) is kinds[name] for name, value in options.items())
