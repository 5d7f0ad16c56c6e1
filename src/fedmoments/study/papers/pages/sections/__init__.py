"""Sections of the page of a reproduction, one file each."""
