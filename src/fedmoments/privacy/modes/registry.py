"""All privacy modes by name: those of this room, of installed packages, and registered at run time.

A file of this room declares ``MODES``, a tuple of classes. A third-party package adds its own through the entry-point
group ``fedmoments.privacy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.modes.central_noise import CentralNoise
from fedmoments.privacy.modes.local_noise import LocalNoise
from fedmoments.privacy.modes.mode import Mode
from fedmoments.privacy.modes.noise import Noise
from fedmoments.registry import Registry, scan

if TYPE_CHECKING:
    from fedmoments.privacy.protection import Agreed

__all__ = ["MODES", "mode_of", "register_privacy", "secure_names", "takers"]

Given = TypeVar("Given", bound=type[Mode])
#: The mode of terms that name none.
CLEAR = "clear"


def _accept(given: Any, name: str | None) -> type[Mode]:
    if not (isinstance(given, type) and issubclass(given, Mode)):
        raise InputError("a privacy mode is a class made from fedmoments.privacy.modes.Mode")
    if name is not None and name != given.name:
        raise InputError(f"it calls itself '{given.name}', but '{name}' was requested: terms hold its own name")
    return given


MODES: Registry[type[Mode]] = Registry(
    "privacy mode", group="fedmoments.privacy", accept=_accept, built_in=scan("fedmoments.privacy.modes", "MODES")
)


def register_privacy(mode: Given) -> Given:
    """Make a privacy mode known by its name in this process; also a class decorator.

    Parameters
    ----------
    mode
        A class made from :class:`fedmoments.privacy.modes.mode.Mode`.

    Examples
    --------
    >>> from fedmoments.privacy.modes.sums import MODES as sums
    >>> register_privacy(sums[0])
    Traceback (most recent call last):
    fedmoments.errors.InputError: two privacy modes call themselves 'sums': ...
    """
    MODES.register(mode)
    return mode


def secure_names() -> tuple[str, ...]:
    """Return the names of all modes but the clear one, which terms do not name.

    Examples
    --------
    >>> secure_names()
    ('cohorts', 'sums', 'two-phase')
    """
    return tuple(name for name in MODES if name != CLEAR)


def takers(rule: str) -> tuple[str, ...]:
    """Return the names of the modes that obey a rule of an agreement.

    Examples
    --------
    >>> takers("contributors")
    ('cohorts', 'sums', 'two-phase')
    """
    return tuple(name for name, mode in MODES.items() if rule in mode.takes)


def mode_of(agreed: Agreed) -> Mode:
    """Return the mode that parties agreed on, with its noise.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> mode_of(Agreed(secure="sums", epsilon=1.0)).title
    'secure sums'
    >>> Agreed(secure="sum")
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown value of 'secure' 'sum': did you mean 'sums'? ...
    """
    if agreed.secure is not None and agreed.secure not in secure_names():
        raise UnknownNameError("value of 'secure'", str(agreed.secure), secure_names())
    noises = {"central": CentralNoise, "local": LocalNoise}
    noise = Noise(agreed) if agreed.epsilon is None else noises[agreed.noise](agreed)
    return noise.carrier(MODES[agreed.secure or CLEAR])(agreed, noise)
