"""The rules of one client: what may leave it. Which values they may have; what they do stands in the federation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.option import option

__all__ = ["MAPS", "SHARE", "SMALL_CLASSES", "SMALL_SKETCHES", "SPARE", "TUNING", "PolicyRules"]

#: Share of a client's spare samples that a scatter sketch may span, and fewest spare samples, by default.
SHARE, SPARE = 0.25, 20
#: What may be done with classes and means of too few samples.
SMALL_CLASSES = ("withhold", "merge")
#: What may be done where there are too few samples for the rows of a scatter sketch.
SMALL_SKETCHES = ("trace", "refuse")
#: What may be trained on a client's samples, from nothing to everything: each allows those before it.
TUNING = ("none", "lp", "feat", "ft")

#: Behind which feature maps samples may be measured, from the strictest rule to none.
MAPS = ("linear", "narrow", "scaled", "any")
#: Numbers that terms may make a client draw, measure and send, by default: 2 GiB in float64.
NUMBERS = 2**28

_COUNTS = (
    "max_heads", "min_count", "max_per_class", "max_bytes", "max_means", "max_rounds", "max_numbers", "min_batch",
    "min_parties",
)  # fmt: skip
_ALWAYS = ("max_heads", "min_count", "max_numbers", "min_batch", "min_parties")
_WORDS = {"small_classes": SMALL_CLASSES, "small_sketches": SMALL_SKETCHES, "tuning": TUNING, "maps": MAPS}
_rule = partial(option, group="Privacy")


@dataclass(frozen=True)
class PolicyRules:
    """The rules of one client.

    Parameters
    ----------
    min_count
        A class with fewer samples is withheld whole, and so is one whose several means would be over fewer. To send
        small classes, say 1.
    max_per_class
        Only the first so many samples of a class, in the client's order, are measured; None: all.
    max_bytes
        Cap on one contribution; None: what the terms allow.
    moments
        Only these moments, and those that follow from them, may leave; None: any. Counts and sums are part of all.
    maps
        Behind which feature maps samples are measured: ``linear`` ones that do not expand; ``narrow``, any that does
        not expand; ``scaled``, any, but classes (and a gram) of so few samples that the numbers behind the map would
        determine them are withheld; ``any``, which alone takes maps that ``server create`` does not make. See
        :mod:`fedmoments.privacy.map_leaks`. Noise (an epsilon) hides samples by itself: then nothing is withheld.
    max_numbers
        Take part only where the feature map, the moments and a table of all pairs of classes have at most so many
        numbers each: what a short text of terms makes this machine draw and hold.
    max_means
        Into at most so many means a class may be split; None: any number.
    report_withheld
        Whether the server learns how many classes and samples were withheld.
    small_classes
        ``withhold``, or ``merge``: a class whose several means would be over fewer than `min_count` samples is sent as
        one mean; and where one node serves several clients, a class that is too small at a client is measured by the
        client of the node that has most of it, if there are enough together. See
        :mod:`fedmoments.privacy.small_classes`.
    sketch_share
        A scatter sketch spans at most this share of the client's n − |C| spare samples, however much the terms ask for;
        0 sends the trace of the scatter alone. See :mod:`fedmoments.privacy.sketch_leaks` for what a share tells.
    sketch_spare
        With fewer spare samples, no row of a sketch leaves.
    small_sketches
        What then happens: ``trace`` (the trace of the scatter is sent alone), or ``refuse`` (nothing is sent).
    obfuscate
        How counts are blurred, such as ``laplace:0.5``; None: not at all. No differential privacy, see
        :mod:`fedmoments.privacy.obfuscation`.
    require_secure
        Whether to take part only where contributions are added up behind masks (secure sums).
    min_batch
        With `require_secure`: fewest clients that a sum may be over, and that must hold a class for it to be opened.
    min_parties
        Fewest parties that the terms let a head be fitted from: a head of few shows their class means to all.
    helper
        Public key (64 hexadecimal digits) of the helper that its operator knows: take part only in secure sums through
        that one. None: through whichever the terms name.
    max_epsilon
        Take part only under differential privacy with an epsilon of at most this; None: any, or none.
    max_delta
        With `max_epsilon`: the largest chance that the promise fails.
    allow_evaluation
        Whether classifiers are tested on held-out samples also where the terms promise secure sums or an epsilon:
        results are masked or noised then. Without such a promise they are tested unless `evaluate` is false.
    max_heads
        How many classifiers are tested in all, of all federations and rounds together: each is a release about the
        held-out samples. With an epsilon, the noise of each test is made for so many.
    tuning
        The most that may be trained on this client's samples: ``none``, ``lp`` (a head), ``feat`` (an encoder) or
        ``ft`` (both). Trained parameters, less those that were sent, are gradients of the samples, and reveal more
        than moments: nothing is trained unless this says so.
    max_rounds
        In at most so many rounds of a federation's tuning, of all its runs together; None: any number. It bounds sums
        of losses, too: two for each round (a test and a check), two for the start, and one for temperatures.
    small_changes
        Whether a new version may be sent that differs from the last one in fewer than ``min_count`` samples of a class:
        whoever holds both has the sums of these samples alone.
    """

    min_count: int = _rule(5, "Withhold classes with fewer samples; 1 sends every class.", metavar="N", common=9)
    max_per_class: int | None = _rule(None, "Measure at most this many samples per class, the first ones.", metavar="N")
    max_bytes: int | None = _rule(None, "Send no contribution with more bytes.", metavar="BYTES")
    moments: tuple[str, ...] | None = _rule(None, "Allow only these moments to be sent.", "--allow", metavar="MOMENT,…")
    max_means: int | None = _rule(None, "Allow at most this many means per class.", metavar="N")
    report_withheld: bool = _rule(True, "Tell the server how many classes and samples were withheld.")
    small_classes: str = _rule(
        "withhold", "withhold, or merge: send one mean for a class too small for several.", metavar="withhold|merge"
    )
    sketch_share: float = _rule(SHARE, "Largest rank of a sketch, as a share of the spare samples.", metavar="SHARE")
    sketch_spare: int = _rule(SPARE, "Send no sketch rows with fewer spare samples.", metavar="N")
    small_sketches: str = _rule(
        "trace",
        "With too few spare samples: send only the trace of the scatter, or refuse to send anything.",
        metavar="trace|refuse",
    )
    obfuscate: str | None = _rule(
        None, "Add noise to counts: uniform, gaussian or laplace with 0 < E < 1, such as laplace:0.5.", metavar="KIND:E"
    )
    maps: str = _rule(
        "narrow",
        "Allowed feature maps; maps to more dimensions reveal more about single samples.",
        metavar="|".join(MAPS),
    )
    # Not in the repr, which stands for what a contribution is made by: these two say who may ask, not what is made.
    max_numbers: int = _rule(
        NUMBERS, "Refuse terms whose feature map or moments have more numbers.", metavar="N", repr=False
    )
    require_secure: bool = _rule(
        False, "Take part only with secure sums: no server reads this client's own statistics."
    )
    min_batch: int = _rule(
        3, "With --require-secure: fewest clients in a sum, and per class in it.", metavar="N", repr=False
    )
    min_parties: int = _rule(
        1, "Take part only where the terms fit heads from at least this many parties.", metavar="N", repr=False
    )
    max_epsilon: float | None = _rule(
        None, "Take part only under differential privacy with at most this epsilon.", metavar="EPSILON"
    )
    max_delta: float = _rule(1e-5, "With --max-epsilon: largest δ.", metavar="DELTA", repr=False)
    helper: str | None = _rule(
        None,
        "Card of a helper that you trust: take part only in secure sums that use it.",
        metavar="CARD",
        kind="helper card",
    )
    allow_evaluation: bool = _rule(
        False,
        "Allow tests of heads here also under secure sums or an epsilon; results are then masked and noised.",
        repr=False,
    )
    max_heads: int = _rule(20, "Test at most this many heads in total, over all runs.", metavar="N", repr=False)
    # Not in the repr, which stands for what a contribution is made by: consent to tuning changes no contribution.
    tuning: str = _rule(
        "none",
        "Allow training of a head (lp), the encoder (feat) or both (ft) here; updates reveal more than moments.",
        "--allow-tuning",
        metavar="STAGE",
        repr=False,
    )
    max_rounds: int | None = _rule(
        None, "Train in at most this many rounds of this federation.", metavar="N", repr=False
    )
    small_changes: bool = _rule(
        False,
        "Send a new version even if it differs in fewer than --min-count samples of a class, and so reveals them.",
        repr=False,
    )

    def __post_init__(self) -> None:
        self._check_numbers()
        for name in ("report_withheld", "require_secure", "allow_evaluation", "small_changes"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} of a policy must be true or false, not {getattr(self, name)!r}")
        for name, known in _WORDS.items():
            if getattr(self, name) not in known:
                allowed = " or ".join(known) if len(known) == 2 else ", ".join(known)
                raise InputError(f"{name} of a client's policy must be {allowed}, not {getattr(self, name)!r}")
        if self.helper is not None and not re.fullmatch("[0-9a-f]{64}", str(self.helper)):
            raise InputError(
                f"helper of a client's policy must be a public key, 64 lower-case hexadecimal digits, not "
                f"{self.helper!r}"
            )

    def _check_counts(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and (value is not None or name in _ALWAYS):
                raise InputError(f"{name} of a client's policy must be a whole number of 1 or more, not {value!r}")

    def _check_numbers(self) -> None:
        self._check_counts()
        most = self.max_epsilon
        if most is not None and not (type(most) in (int, float) and most > 0):
            raise InputError(f"max_epsilon of a client's policy must be a number above 0, not {most!r}")
        if not (type(self.max_delta) is float and 0 < self.max_delta < 1):
            raise InputError(f"max_delta of a client's policy must be between 0 and 1, not {self.max_delta!r}")
        if self.max_per_class is not None and self.max_per_class < self.min_count:
            raise InputError(
                f"a client's policy that measures at most {self.max_per_class} samples of a class (max_per_class) and "
                f"withholds classes of fewer than {self.min_count} (min_count) withholds everything: raise the former, "
                "or lower the latter"
            )

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read rules from a TOML table; every rule that is not in it has its default.

        Raises
        ------
        UnknownNameError
            When the table holds a rule that there is not: a mistyped rule must not be a rule that is not applied.
        InputError
            When a value is of the wrong type or out of range.

        Examples
        --------
        >>> PolicyRules.from_dict({"min_count": 5, "max_means": 2}).max_means
        2
        """
        if not isinstance(table, Mapping):
            raise InputError(f"a client's policy must be a table of rules, not {table!r}")
        known = [rule.name for rule in fields(cls)]
        for name in table:
            if name not in known:
                raise UnknownNameError("rule of a client's policy", str(name), known)
        return cls(**table)

    def to_dict(self) -> dict[str, Any]:
        """Return the table that :meth:`from_dict` reads, ready for TOML and JSON: rules that are None are left out.

        Examples
        --------
        >>> PolicyRules(max_means=2).to_dict()
        {'min_count': 5, 'max_means': 2, 'report_withheld': True, 'small_classes': 'withhold', 'sketch_share': 0.25,
        'sketch_spare': 20, 'small_sketches': 'trace', 'maps': 'narrow', 'max_numbers': 268435456,
        'require_secure': False, 'min_batch': 3, 'min_parties': 1, 'max_delta': 1e-05, 'allow_evaluation': False,
        'max_heads': 20, 'tuning': 'none', 'small_changes': False}
        """
        table = {rule.name: getattr(self, rule.name) for rule in fields(self)}
        if self.moments is not None:
            table["moments"] = list(self.moments)
        return {name: value for name, value in table.items() if value is not None}
