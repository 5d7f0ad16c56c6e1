"""What the parties of a federation must agree on, and who contributed what."""

from fedmoments.federation.terms import Terms

__all__ = ["Terms"]
