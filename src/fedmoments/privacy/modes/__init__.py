"""Privacy modes: one file each behind one contract (:class:`~fedmoments.privacy.modes.mode.Mode`), and the noise.

``Agreed(…).mode`` is the one that parties agreed on. Nobody else compares names of modes, or looks for an epsilon.
"""

from fedmoments.privacy.modes.mode import Cost, Mode
from fedmoments.privacy.modes.noise import Noise
from fedmoments.privacy.modes.registry import MODES, mode_of, secure_names, takers

__all__ = ["MODES", "Cost", "Mode", "Noise", "mode_of", "secure_names", "takers"]
