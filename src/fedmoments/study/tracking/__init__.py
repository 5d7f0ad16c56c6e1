"""Callbacks of a study: results are handed on as they are found, to MLflow, to TensorBoard or to your own code."""

from fedmoments.study.tracking.callback import (
    TRACKERS,
    Callback,
    Tracker,
    call_all,
    make_trackers,
    register_tracker,
    tracking,
)

__all__ = ["TRACKERS", "Callback", "Tracker", "call_all", "make_trackers", "register_tracker", "tracking"]
