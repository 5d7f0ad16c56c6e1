"""Sections of the page of several reproductions, one file each."""
