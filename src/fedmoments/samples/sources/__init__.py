"""Where data come from: one file a source, found by the prefix that a person types (``folder:PATH``)."""

from fedmoments.samples.sources.registry import Source, load_data, register_source, sources

__all__ = ["Source", "load_data", "register_source", "sources"]
