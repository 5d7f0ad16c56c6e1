"""Sections of the report, one file each: every file declares its own, and nothing else names it."""
