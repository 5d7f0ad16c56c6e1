"""One self-contained HTML page about a simulation: no network, no plotting library, light and dark, screen and paper.

>>> from fedmoments.core.observations import Outcome, Row, Setting
>>> row = Row("fedncm", Setting(10, "iid"), "counts + sums", {}, (Outcome(0, 0.9, 10, 1000, 10, 0.1),))
>>> page = render(Results({"data": {"name": "toy"}, "seeds": 1}, (row,)))
>>> page.startswith("<!doctype html>"), "90.0" in page
(True, True)
"""

from fedmoments.pages.reading import Results
from fedmoments.pages.report import render, write_report

__all__ = ["Results", "render", "write_report"]
