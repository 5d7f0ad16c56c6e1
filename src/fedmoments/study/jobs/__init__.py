"""The main job: data and an encoder in; a table, classifiers and a report out."""

from fedmoments.study.jobs.run import JobResult, run_job

__all__ = ["JobResult", "run_job"]
