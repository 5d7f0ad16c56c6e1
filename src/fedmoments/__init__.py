"""Training-free, one-shot federated learning from moments of frozen features."""

__version__ = "0.1.0"
