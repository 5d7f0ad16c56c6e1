"""What the parties of a federation must agree on, who contributed what, and what taking part costs."""

from fedmoments.federation.fingerprint import Fingerprint
from fedmoments.federation.terms import Terms

__all__ = ["Fingerprint", "Terms"]
