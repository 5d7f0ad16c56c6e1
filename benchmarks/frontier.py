"""Draw accuracy against bytes (docs/frontier.svg) from features files.

python benchmarks/frontier.py BANKING77.npz CIFAR10.npz --names BANKING77,CIFAR-10 --out docs/frontier.svg
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

from fedmoments.core.observations import Report
from fedmoments.pages.budget_chart import budget_figure
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

HEADS = ("fedncm", "fedcof", "fed3r", "lda-sketch", "auto")


def fewer(path: str, most: int, folder: Path) -> str:
    """Return a features file of so many training samples at most."""
    arrays = dict(np.load(path))
    some = np.random.default_rng(0).permutation(len(arrays["y_train"]))[:most]
    arrays = {name: values[some] if name.endswith("_train") else values for name, values in arrays.items()}
    place = folder / Path(path).name
    np.savez(place, **arrays)
    return f"npz:{place}"


def measured(data: str, clients: int, seeds: int) -> Report:
    settings = StudySettings(
        data=data, heads=HEADS, clients=(clients,), splits=("dirichlet:0.1",), seeds=seeds, budget_curve=True
    )
    return run_job(settings, for_report=False).report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+")
    parser.add_argument("--names", required=True, help="headings, separated by commas")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most", type=int, default=10_000, help="training samples at most")
    parser.add_argument("--work", type=Path, default=Path("runs/frontier"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    reports = [measured(fewer(path, given.most, given.work), given.clients, given.seeds) for path in given.features]
    given.out.write_text(str(budget_figure(reports, headings=given.names.split(","))), "utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
