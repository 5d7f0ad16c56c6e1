"""The terms of a federation: the one public document that every party reads before it takes part.

Their SHA-256 is the federation's id. It stands, signed, in every contribution, beside the digest of the class list:
nobody can be made to contribute under other terms than those it read. Classes may be added later, by the server's
signature and each party's consent; the id stays that of the first terms.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from fedmoments.core.maps import Directions, FeatureMap, Identity
from fedmoments.core.maps.canonical import canonical_json, sha256_of_json
from fedmoments.core.statistics import FixedPoint, SketchPlan, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError, reading
from fedmoments.federation.amendment import Amendment, read_amendments
from fedmoments.federation.name_samples import NameSamples
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.map_leaks import MapOutline
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.context import MOST_ATTEMPTS, Context
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire.agreement import Agreement, rows_of
from fedmoments.wire.keys import PublicKey

__all__ = ["Terms"]

_FIELDS = ("name", "encoder", "fingerprint", "dim", "moments", "means_per_client", "norm_bound", "max_samples")
_OPTIONAL = {"privacy", "sketch", "server", "amended", "names"}
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
        Which moments; scatter sketches by a plan that every party reads, the default one where none is given.
    fixed_point
        Their form; its norm bound and number of samples are caps that every party obeys.
    rows
        Type in which rows of client means travel: int64, float32, float16, bfloat16 or int8. With a budget for scatter
        sketches it is ``budget``, what int64, the default, becomes then: the code that the budget leaves them.
    max_bytes
        Cap on one contribution.
    seed
        Deals samples to several means of a class.
    nonce
        Makes the id of two federations with the same terms differ; random by default.
    privacy
        Secure sums and differential privacy; nothing of both by default, and then nothing of it stands in the JSON.
    attempt
        No part of what is agreed on, nor of the JSON: how often a batch of masked reports was given up (:meth:`at`).
    server
        Public key that signs receipts and heads of the log, 64 hexadecimal digits. Empty: clients believe the first one
        that they are shown, and only that, and it does not stand in the JSON.
    amended
        What stood before classes were added, the oldest first (:func:`fedmoments.federation.drawing_up.amend_terms`).
    names
        Class names that count as one sample each, as features; None, and not in the JSON: none does.

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
    privacy: Agreed = field(default_factory=Agreed)
    attempt: int = 0
    server: str = ""
    amended: tuple[Amendment, ...] = ()
    names: NameSamples | None = None

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
        if self.server:
            PublicKey.from_hex(self.server)
        object.__setattr__(self, "rows", rows_of(self.spec, self.rows))
        object.__setattr__(self, "spec", self.spec.settled(len(self.fingerprint.classes)))
        self.privacy.mode.check_terms(self)
        self._check_directions()
        if self.amended:
            self._check_amended()
        self._check_names()
        if self.agreement.federation != self.id:  # also builds the agreement, which checks the numbers
            raise InputError("the terms of a federation cannot be changed")

    def _check_directions(self) -> None:
        """Refuse more directions than those in which so many classes can differ: a server may ask in no others."""
        given = self.fingerprint.feature_map
        for stage in getattr(given, "maps", (given,)):
            if isinstance(stage, Directions) and stage.n_components >= len(self.fingerprint.classes):
                raise InputError(
                    f"{len(self.fingerprint.classes)} classes differ in at most {len(self.fingerprint.classes) - 1} "
                    f"directions, but the feature map of these terms has {stage.n_components}"
                )

    def _check_names(self) -> None:
        """Refuse features of class names that are not those of these classes, behind this map."""
        if self.names is None:
            return
        width = self.map_or_none.output_dim(self.names.dim) if self.map_or_none else self.names.dim
        if self.names.n > len(self.classes) or width != self.dim:
            raise InputError(
                f"these terms are of {len(self.classes)} classes in {self.dim} dimensions, but hold features of "
                f"{self.names.n} class names in {width}"
            )

    def _check_amended(self) -> None:
        """Refuse classes that the server did not sign, or that do not stand behind those that were there before."""
        before = [*(entry.classes for entry in self.amended), len(self.classes)]
        if any(former >= later for former, later in pairwise(before)):
            raise InputError(f"amended terms must have more classes each time, but they have {before}")
        if not self.server or not self.amended[-1].is_signed_by(self.server, self.id, self.unsigned):
            raise InputError("these terms were amended, but the server that the first ones name did not sign that")

    @property
    def unsigned(self) -> str:
        """SHA-256 of the terms without the signature of their last amendment: what that signature is of."""
        *formers, last = [asdict(entry) for entry in self.amended]
        return sha256_of_json({**self.to_dict(), "amended": [*formers, {**last, "signature": ""}]})

    @cached_property
    def stages(self) -> "tuple[Terms, ...]":
        """These terms as they stood at first, after each amendment, and now."""
        if not self.amended:
            return (self,)
        last = self.amended[-1]
        fingerprint = replace(self.fingerprint, classes=self.classes[: last.classes])
        former = replace(self, fingerprint=fingerprint, max_bytes=last.max_bytes, amended=self.amended[:-1])
        return (*former.stages, self)

    @cached_property
    def id(self) -> str:
        """SHA-256 of the terms that the federation was founded on, 64 hexadecimal digits."""
        return sha256_of_json(self.to_dict()) if not self.amended else self.stages[0].id

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the terms as they stand now: the `id` until classes are added."""
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
            tuple(stage.agreement for stage in self.stages[:-1]),
        )

    @property
    def map_or_none(self) -> FeatureMap | None:
        """The feature map, or None where features are measured as the encoder gives them."""
        given = self.fingerprint.feature_map
        return None if isinstance(given, Identity) else given

    @cached_property
    def map_outline(self) -> MapOutline:
        """What the feature map tells of single samples: its columns, and whether it is linear."""
        return MapOutline.of(self.map_or_none, self.dim)

    @property
    def encoder_note(self) -> dict[str, Any]:
        """What identifies the encoder in the notes of a classifier: how to load it, what it is, and what it does."""
        behaviour = self.fingerprint.behaviour
        note = {**self.encoder, "options": dict(self.encoder["options"])}
        return note if behaviour is None else {**note, "behaviour": behaviour.to_text()}

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the labels."""
        return self.fingerprint.classes

    @cached_property
    def layout(self) -> DenseLayout:
        """Where the numbers of a client stand in the vector that is masked, summed or noised."""
        return DenseLayout(self.spec.additive, len(self.classes), self.dim)

    @property
    def context(self) -> Context:
        """What masked reports are made for: this federation, this attempt, with these features."""
        return Context(self.id, self.attempt, self.fingerprint.digest)

    def at(self, attempt: object) -> "Terms":
        """Return the same terms for reports after some batches were given up.

        Raises
        ------
        PrivacyError
            When reports may not be made again in this mode, or more often than makes sense.
        """
        if attempt == self.attempt:
            return self
        if type(attempt) is not int or not 0 <= attempt <= MOST_ATTEMPTS:
            raise PrivacyError(f"masked reports are made in at most {MOST_ATTEMPTS} attempts, not in {attempt!r:.40}")
        if attempt and not self.privacy.mode.repeats:
            raise PrivacyError(
                f"under {self.privacy.mode.title} a client reports once, and no batch is given up: there is "
                f"no attempt {attempt}. Ask for attempt 0"
            )
        return replace(self, attempt=attempt)

    def to_dict(self) -> dict[str, Any]:
        """Return the terms, ready for JSON; without a word on privacy or sketches where nothing was agreed on."""
        privacy = {} if self.privacy == Agreed() else {"privacy": self.privacy.to_dict()}
        sketch = {} if self.spec.plan is None else {"sketch": asdict(self.spec.plan)}
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
            **privacy,
            **sketch,
            **({"server": self.server} if self.server else {}),
            **({"amended": [asdict(entry) for entry in self.amended]} if self.amended else {}),
            **({"names": self.names.to_dict()} if self.names else {}),
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
            When the text is not terms, or terms that make no sense.
        """
        with reading("these are not terms of a federation"):
            value = json.loads(text)
            if not isinstance(value, dict) or set(value) - _OPTIONAL != _ALL:
                raise InputError(f"a JSON object with the fields {', '.join(sorted(_ALL))} was expected")
            _check_numbers(value)
            privacy = _privacy_from(value)
            plan = _plan_from(value["sketch"]) if "sketch" in value else None
            spec = StatisticsSpec.of(*value["moments"], means_per_client=value["means_per_client"], sketch=plan)
            if spec.has_sketch and plan is None:
                raise InputError("they ask for scatter sketches, but lack the plan of their size ('sketch')")
            form = FixedPoint(value["norm_bound"], value["max_samples"])
            fingerprint = Fingerprint.from_json(json.dumps(value["fingerprint"]))
            rest = {name: value[name] for name in ("name", "encoder", "dim", "rows", "max_bytes", "seed", "nonce")}
            return cls(fingerprint=fingerprint, spec=spec, fixed_point=form, privacy=privacy, **rest, **_extras(value))


def _extras(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that stand in terms only where they say something."""
    if "server" in value and not value["server"]:
        raise InputError("the server's key stands in them, or nothing does")
    return {
        "server": value.get("server", ""),
        "amended": read_amendments(value["amended"]) if "amended" in value else (),
        "names": NameSamples.from_dict(value["names"]) if "names" in value else None,
    }


def _check_numbers(value: Mapping[str, Any]) -> None:
    """Refuse numbers of another type or size than terms have: JSON knows numbers that nothing can compute with."""
    for name in ("dim", "means_per_client", "max_samples", "max_bytes", "seed"):
        if type(value[name]) is not int or not -(2**63) <= value[name] < 2**63:
            raise InputError(f"{name} must be a whole number of 64 bits, not {value[name]!r:.80}")
    if type(value["norm_bound"]) not in (int, float):
        raise InputError(f"norm_bound must be a number, not {value['norm_bound']!r:.80}")


def _privacy_from(value: Mapping[str, Any]) -> Agreed:
    """Return what is agreed on privacy; the same agreement must always be the same text."""
    privacy = Agreed.from_dict(value.get("privacy", {}))
    if "privacy" in value and (not value["privacy"] or value["privacy"] != privacy.to_dict()):
        raise InputError("what is agreed on privacy must hold what differs from the defaults, and nothing else")
    return privacy


def _plan_from(value: Any) -> SketchPlan:
    """Return the plan that ``asdict`` wrote."""
    whole, text = (int, type(None)), (str, type(None))
    kinds = {"budget": text, "rank": whole, "code": (str,), "share": (float, int), "spare": (int,), "rows": (str,)}
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise InputError(f"the plan of scatter sketches must have the fields {', '.join(kinds)} and no others")
    for name, allowed in kinds.items():
        if type(value[name]) not in allowed:
            raise InputError(f"the {name} of scatter sketches must not be {value[name]!r:.80}")
    return SketchPlan(**{**value, "share": float(value["share"])})


def _sound_options(options: Mapping[str, Any]) -> bool:
    kinds = {"size": int, "pooling": str}
    return all(name in kinds and type(value) is kinds[name] for name, value in options.items())
