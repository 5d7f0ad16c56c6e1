"""What the parties of a federation must agree on, and what taking part costs."""

from fedmoments.federation.fingerprint import Fingerprint

__all__ = ["Fingerprint"]
