"""One-shot methods that send something else than sufficient statistics, for comparison with the heads.

A baseline's client sends a model of its own (a local head, a mixture …), and the server combines them. What it sends
does not add up, so the result depends on how the data are split. Baselines run in simulations, beside the heads.
"""

from fedmoments.study.baselines.baseline import (
    Baseline,
    Upload,
    baseline_names,
    baselines,
    make_baseline,
    register_baseline,
)

__all__ = ["Baseline", "Upload", "baseline_names", "baselines", "make_baseline", "register_baseline"]
