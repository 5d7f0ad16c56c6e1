"""One self-contained HTML page about a report: no network, no plotting library, light and dark, screen and paper.

>>> from fedmoments.core.observations import Outcome, Report, Row, Setting
>>> row = Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 1000, 10, 0.1),))
>>> page = render(Report((row,)))
>>> page.startswith("<!doctype html>"), "90.0" in page
(True, True)
"""

from fedmoments.pages.report import render, write_report

__all__ = ["render", "write_report"]
