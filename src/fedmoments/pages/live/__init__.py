"""The live page of a federation that runs: what stands in it is a :class:`LiveView`, drawn by one file a section."""
