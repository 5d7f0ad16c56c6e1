"""One party's samples in many files: each is measured where it can be read, and only sums come back."""

from fedmoments.samples.lakes.measuring import class_names_of, measure_files, plan_files
from fedmoments.samples.lakes.shard import joined, measure_shard

__all__ = ["class_names_of", "joined", "measure_files", "measure_shard", "plan_files"]
