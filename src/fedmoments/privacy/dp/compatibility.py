"""What must not be combined with noise, because one sample would then change more than its own share of a sum.

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

from fedmoments.errors import PrivacyError
from fedmoments.privacy.protection import Agreed

__all__ = ["check_rules"]


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
