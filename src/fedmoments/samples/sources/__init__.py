"""Where data come from: one file a source, found by the prefix that a person types (``folder:PATH``)."""

from fedmoments.samples.sources.registry import load_data, register_source, sources
from fedmoments.samples.sources.source import Source

__all__ = ["Source", "load_data", "register_source", "sources"]
