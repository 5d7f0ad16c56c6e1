"""The reader and the formulas of docs/export.md, in plain numpy, give the scores of every kind of classifier."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.handover.test_export_equality import DIM, KINDS, arrays

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"


def documented_reader() -> Any:
    """Return the function ``read`` as the document has it, with numpy and the standard library alone."""
    text = DOCUMENT.read_text("utf-8")
    (code,) = re.findall(r"^TYPES = .*?^    return notes, arrays$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 20
    names: dict[str, Any] = {}
    exec(f"import json, struct\nfrom pathlib import Path\nimport numpy as np\n{code}", names)
    return names["read"]


def summed(scores: Any) -> Any:
    """Return log sum exp of the last axis."""
    return np.log(np.exp(scores).sum(-1))


def documented_scores(kind: str, a: dict[str, Any], X: Any) -> Any:
    """Return the scores (n, C) by the formulas of the document's table; classes without samples are not looked at."""
    z = X - a.get("offset", 0.0)
    z = z @ a["basis"] if "basis" in a else z
    if kind in ("linear", "mixture", "ensemble"):
        columns = z @ a["weights"] + a["bias"]
    if kind == "linear":
        return columns
    classes = range(len(a["present"]))
    if kind == "mixture":
        return np.stack([summed(columns[:, a["labels"] == c]) for c in classes if (a["labels"] == c).any()], 1)
    if kind == "ensemble":
        total = 0.0
        for k, own in enumerate(np.split(np.arange(len(a["labels"])), a["starts"][1:].astype(int))):
            labels = a["labels"][own]
            place = [own[labels == (c if (labels == c).any() else -1)][0] if (labels == c).any() or (labels == -1).any()
                     else own[0] for c in classes]  # fmt: skip
            shares = np.exp(columns[:, place] - summed(columns[:, place])[:, None])
            total = total + a["mixing"][k] * shares
        return np.log(total)
    away = z[:, None, :] - a["means"]
    if kind == "quadratic":
        return a["bias"] - 0.5 * (np.einsum("cij,ncj->nci", a["whiteners"], away) ** 2).sum(-1)
    given = a["bias"] - 0.5 * (away**2 * a["precisions"]).sum(-1)
    if kind == "low-rank":
        given = given + 0.5 * (np.einsum("crd,ncd->ncr", a["projections"], away) ** 2).sum(-1)
    return given


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_in_plain_numpy_gives_our_scores(kind: str, tmp_path: Path) -> None:
    classifier = arrays(np.random.default_rng(1), DIM, kind)
    classifier.save(tmp_path / "head.safetensors")
    notes, read = documented_reader()(tmp_path / "head.safetensors")
    assert (notes["classifier"], notes["temperature"]) == (kind, classifier.temperature)
    assert f"| `{kind}` |" in DOCUMENT.read_text("utf-8")
    X = np.random.default_rng(2).normal(size=(50, DIM))
    present = read["present"].astype(bool)
    scores = documented_scores(kind, read, X)
    scores = scores if scores.shape[1] == present.sum() else scores[:, present]
    np.testing.assert_allclose(scores, classifier.scores(X)[:, present], rtol=1e-12, atol=1e-12)
    shares = np.exp(scores / notes["temperature"])
    shares /= shares.sum(1, keepdims=True)
    np.testing.assert_allclose(shares, classifier.predict_proba(X)[:, present], rtol=1e-9)
