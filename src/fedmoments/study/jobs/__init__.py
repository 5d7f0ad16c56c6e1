"""The main job: data and an encoder in; a table, classifiers and a report out. And predictions with what came out."""

from fedmoments.study.jobs.predict import Prediction, predict
from fedmoments.study.jobs.run import JobResult, run_job

__all__ = ["JobResult", "Prediction", "predict", "run_job"]
