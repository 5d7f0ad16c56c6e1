"""One party's samples in many files: each is measured where it can be read, and only sums come back."""

from fedmoments.samples.lakes.measuring import class_names_of, measure_files

__all__ = ["class_names_of", "measure_files"]
