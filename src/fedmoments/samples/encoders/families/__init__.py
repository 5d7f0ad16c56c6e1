"""Encoders, one file a family; each declares ``ENCODERS``, which the registry collects."""
