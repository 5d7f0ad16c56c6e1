"""How one release's noise is shared between counts, sums and second moments.

A part with the share s_m of the budget (Σ s_m = 1) has the weight w_m = √s_m / R^g, so that one sample changes the
whole release by Δ = 1, and each number of that part has noise of σ₁·R^g/√s_m. Shares are public constants:

``equal``
    the same share for all parts;
``counts=0.1,sums=1,second=0.5``
    weights w_m·R^g by degree (``third`` and ``fourth``, too), scaled to Δ = 1; what the release does not hold is
    ignored;
``automatic``
    shares by a rule that knows C, d and which moments there are, nothing else.

The automatic rule
------------------
If the error that noise causes is Σ_m q_m/s_m, shares s_m ∝ √q_m are the best. To first order, with noise E on the
scatter B that a head inverts and e on the sums A_c, the weights w_c = B⁻¹A_c of a class move by B⁻¹(e − E w_c):

- sums: ‖e‖² = d·σ²/s, so q = d;
- counts scale a mean by one number: q = 1; class norms are one number a class as well;
- second moments: ‖E w_c‖² is σ²/s·‖w_c‖² times d/2 for a full symmetric E, 1 for a diagonal one, and C times as much
  where E is added up from C classes; ‖w_c‖ = r/C if the N/C samples of a class meet an eigenvalue of N/r. r, how many
  directions features really use, is private; √(2d) is taken for it. Relative to sums, √(q/d) is then

  ===========  ============  =====================
  gram         class grams   class squares
  ===========  ============  =====================
  √d/C         √(d/C)        √(2/C)
  ===========  ============  =====================

A ridge bounds the harm of noisy second moments and nothing bounds that of noisy means, so no share exceeds that of the
sums. With sums at 1, the best share of the gram was 0.1 to 0.2 on 77 classes in 128 dimensions (√d/C = 0.15) and 0.5 to
2 on 7 and 10 classes in 64 and 128 dimensions (0.8 to 1.6), for ε from 0.5 to 8.

What must not be combined with noise, because one sample would then change more than its own share of a sum.

The sensitivity counts on every sample entering the sums once, whatever the others are. Rules that look at the data
break that, and no noise was planned for it:

================  ======================================================================  ==============  ==============
rule              what one sample more can do                                             unit sample     unit client
================  ======================================================================  ==============  ==============
min_count m       bring a class over the threshold: m samples appear at once              refused         fine
max_per_class     push another sample out                                                 refused         fine
obfuscation       change the factor of all samples of its class                           refused         fine
max_samples       bring its client over the cap: all its samples vanish                   refused         fine
merged classes    move samples of one client into the contribution of another             refused         refused
robust filter     change which *other* clients are left out                               refused         refused
================  ======================================================================  ==============  ==============

A client that is hidden whole is clipped after its own rules, so these are its own affair; a filter that compares
clients is not, and neither is a client that measures what another one holds. Heads that keep clients apart, or that
send other statistics first, are refused for any unit.
"""

import math

from fedmoments.errors import InputError, PrivacyError, UnknownNameError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.sensitivity import COUNTS, degree_of
from fedmoments.privacy.protection import Agreed

__all__ = ["check_rules", "parse_budget", "shares_of"]


def check_rules(
    agreed: Agreed,
    *,
    min_count: int = 1,
    max_per_class: int | None = None,
    obfuscation: str | None = None,
    max_samples: int | None = None,
    robust: str | None = None,
    small_classes: str = "withhold",
) -> None:
    """Refuse rules that differential privacy as agreed on does not account for; see the module.

    Parameters
    ----------
    agreed
        With an epsilon; :meth:`fedmoments.privacy.modes.noise.Noise.check_rules` refuses nothing without one.
    min_count, max_per_class, obfuscation, max_samples, robust, small_classes
        Rules of clients and server, as in :class:`~fedmoments.privacy.protection.Protection` and in a client's policy.

    Raises
    ------
    PrivacyError
        Which rule, and what to do.

    Examples
    --------
    >>> check_rules(Agreed(epsilon=2.0))
    >>> check_rules(Agreed(epsilon=2.0), min_count=5)
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: min_count = 5 and differential privacy of one sample exclude each other: ...
    """
    if robust is not None:
        raise PrivacyError(
            f"the robust filter '{robust}' and differential privacy exclude each other: which clients it leaves out "
            "depends on everybody's data, so that one sample can change more than the noise hides. Choose one"
        )
    if small_classes == "merge":
        raise PrivacyError(
            "small_classes = merge and differential privacy exclude each other: a client would measure samples that "
            "another one holds, so that one sample, or one client, changes more than the noise hides. Say withhold"
        )
    if agreed.unit == "client":
        return
    rules = {"max_per_class": max_per_class, "obfuscation": obfuscation, "max_samples": max_samples}
    given = {"min_count": min_count if min_count > 1 else None, **rules}
    for name, value in given.items():
        if value is not None:
            raise PrivacyError(
                f"{name} = {value} and differential privacy of one sample exclude each other: under that rule one "
                "sample more can bring in, push out or change others, and the noise hides only one. "
                f"{'Say min_count = 1' if name == 'min_count' else 'Leave the rule out'} (with secure sums the server "
                "sees no client's classes anyway), or hide whole clients (unit 'client')"
            )


#: What a weight is called, by degree.
DEGREES = (COUNTS, "sums", "second", "third", "fourth")


def parse_budget(word: str) -> dict[str, float] | None:
    """Read ``automatic`` or ``equal`` (None), or weights by degree.

    Examples
    --------
    >>> parse_budget("counts=0.1, sums=1")
    {'counts': 0.1, 'sums': 1.0}
    >>> parse_budget("count=0.1")
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown part of a budget 'count': did you mean 'counts'? ...
    """
    if word in ("automatic", "equal"):
        return None
    weights: dict[str, float] = {}
    for part in word.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in DEGREES:
            raise UnknownNameError("part of a budget", name, DEGREES)
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not (weight > 0 and math.isfinite(weight)) or name in weights:
            raise InputError(
                "a budget is automatic, equal, or one weight above 0 for each part, such as "
                f"counts=0.1,sums=1,second=0.5; '{word}' arrived"
            )
        weights[name] = weight
    return weights


def shares_of(word: str, layout: DenseLayout) -> dict[str, float]:
    """Return the share of every part of a release, which add up to 1.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout = DenseLayout(StatisticsSpec.of("gram"), n_classes=10, dim=16)
    >>> shares_of("counts=1,sums=3,second=2", layout)
    {'counts': 0.07142857142857142, 'sums': 0.6428571428571429, 'gram': 0.2857142857142857}
    """
    parts = (COUNTS, *layout.spec.sent)
    weights = parse_budget(word)
    if weights is not None:
        for name in parts:
            if DEGREES[degree_of(name)] not in weights:
                raise InputError(
                    f"the budget '{word}' gives no weight to {DEGREES[degree_of(name)]}, but {layout.spec} is to be "
                    "released: add one"
                )
        raw = {name: weights[DEGREES[degree_of(name)]] ** 2 for name in parts}
    elif word == "equal":
        raw = dict.fromkeys(parts, 1.0)
    else:
        raw = {name: _automatic(name, float(layout.n_classes), float(layout.dim)) for name in parts}
    total = sum(raw.values())
    return {name: share / total for name, share in raw.items()}


def _automatic(name: str, classes: float, dim: float) -> float:
    """Return the share of a part relative to that of the sums."""
    if name in (COUNTS, "class_norms"):
        return 1.0 / math.sqrt(dim)
    rule = {"sums": 1.0, "gram": math.sqrt(dim) / classes, "class_grams": math.sqrt(dim / classes)}
    return min(1.0, rule.get(name, math.sqrt(2.0 / classes)))
