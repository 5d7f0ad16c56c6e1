"""One file a format: each declares ``EXPORTS``, a tuple of :class:`fedmoments.handover.export.Export`."""
