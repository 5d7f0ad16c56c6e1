"""Tuning an encoder on torch, in one process: stages ``ft`` and ``feat``; torch is imported when an engine is made."""

from fedmoments.tuning.network.engine import NetworkEngine
from fedmoments.tuning.network.samples import forward_flops, parameter_count, prepare_all, save_encoder

__all__ = ["NetworkEngine", "forward_flops", "parameter_count", "prepare_all", "save_encoder"]
