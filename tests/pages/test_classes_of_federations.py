"""The classes of a federation's report: what clients withhold or round is said, and never passes for no errors."""

import numpy as np

from fedmoments.core.observations import Report, Row, Setting
from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.parts import Data, HeadDetail
from fedmoments.pages.sections.classes import classes_section


def shown(found: list[int], rounding: float, area: float = 0.98) -> str:
    tested, two = np.array([40, 50]), np.array([0.99, 0.98])
    areas = np.array([0.99, area])
    figures = ClassFigures(tested, np.array(found), two, areas, macro_f1=0.95, micro_auc=0.99, rounding=rounding)
    detail = HeadDetail("fedcof", None, np.diag([12, 50]), figures=figures)
    row = Row("fedcof", Setting(4), "sums", {}, (), detail=0)
    data = Data("trial", "", 400, 90, 8, 2, ("cat", "dog"))
    return str(classes_section(Report((row,), data, details=(detail,))))


def test_errors_that_nobody_tells_apart_are_not_called_none() -> None:
    page = shown([35, 50], 16.7)
    assert "Every test sample was classified correctly" not in page
    assert "Clients do not tell which classes few samples were taken for." in page
    assert "round right answers of a class by chance" in page
    assert "macro-F1 0.950" in page
    assert "a dash is an AUC that would be mostly this rounding" not in page
    assert "a dash is an AUC that would be mostly this rounding" in shown([35, 50], 16.7, np.nan)


def test_without_errors_the_page_says_so() -> None:
    page = shown([40, 50], 0.0)
    assert "Every test sample was classified correctly" in page
    assert "by chance" not in page
