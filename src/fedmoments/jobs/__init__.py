"""The main job: data and an encoder in; a table, classifiers and a report out. And predictions with what came out."""

from fedmoments.jobs.config import JobConfig
from fedmoments.jobs.predict import Prediction, predict
from fedmoments.jobs.run import JobResult, run_job

__all__ = ["JobConfig", "JobResult", "Prediction", "predict", "run_job"]
