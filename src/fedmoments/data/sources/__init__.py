"""Where data come from: one file a source, found by the prefix that a person types (``folder:PATH``)."""

from fedmoments.data.sources.registry import load_data, sources
from fedmoments.data.sources.source import Source

__all__ = ["Source", "load_data", "sources"]
