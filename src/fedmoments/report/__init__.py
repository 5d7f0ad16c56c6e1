"""One self-contained HTML page about a simulation: no network, no plotting library, light and dark, screen and paper.

>>> row = {"head": "fedncm", "accuracy": 0.9, "up_bytes_per_client": 400.0}
>>> page = render({"data": {"name": "toy"}, "seeds": 1, "rows": [row]})
>>> page.startswith("<!doctype html>"), "90.0" in page
(True, True)
"""

from fedmoments.report.page import render, write_report

__all__ = ["render", "write_report"]
