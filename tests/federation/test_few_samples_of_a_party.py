"""What a party's contribution tells of few samples under its default rules: from the bytes that leave it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import DIM, Party, new_ledger

from fedmoments.core.linalg import unpack_symmetric
from fedmoments.core.statistics import Statistics
from fedmoments.federation.flower.node import identity_of
from fedmoments.wire import decode, unpack_bundle


def sent_by(tmp_path: Path, X: Any, y: Any, head: str, policy: dict[str, Any] | None = None) -> Statistics:
    """Return what a party with these training samples sends for a head."""
    terms = new_ledger(tmp_path / "ledger", ("cat", "dog"), (head,))
    np.savez(tmp_path / "a.npz", x_train=X, y_train=y, x_test=X[:2], y_test=y[:2], classes=np.array(["cat", "dog"]))
    one = Party("clinic", tmp_path / "clinic", str(tmp_path / "a.npz"), {"policy": policy or {}})
    offer = one.offer(terms)
    (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)
    return decode(bytes(item), terms.agreement, key_of=lambda _: identity_of(one.settings, "clinic").public).statistics


@pytest.mark.parametrize("policy", [{}, {"min_count": 1}])
@pytest.mark.parametrize("head", ["fed3r", "gh-qda"])
def test_no_sample_is_a_row_of_what_a_party_sends(tmp_path: Path, head: str, policy: dict[str, Any]) -> None:
    X = np.zeros((60, DIM), np.float32)
    X[:, :2] = np.random.default_rng(0).normal(size=(60, 2))
    X[7] = [0.5, -1.0, 3.0, 2.0, 0.25]  # it alone has the last three
    sent = sent_by(tmp_path, X, np.arange(60) % 2, head, policy)
    packed = sent.class_array("class_grams") if head == "gh-qda" else [sent.global_array("gram")]
    rows = [row / np.sqrt(row[j]) for M in map(unpack_symmetric, packed) for j, row in enumerate(M) if row[j] > 1e-9]
    nearest = min(np.abs(row - X[7]).max() for row in rows)
    assert (nearest < 1e-6) == bool(policy)  # without the rule the sample is read, to the last digit
    assert sent.n_samples == 60


@pytest.mark.parametrize(("copies", "leaves"), [(12, False), (5, False), (0, True)])
def test_a_class_of_copies_is_withheld(tmp_path: Path, copies: int, leaves: bool) -> None:
    rng = np.random.default_rng(0)
    cats = np.tile(rng.normal(size=(1, DIM)), (copies, 1)) if copies else rng.normal(size=(5, DIM))
    X = np.concatenate([cats, rng.normal(size=(9, DIM))]).astype(np.float32)
    sent = sent_by(tmp_path, X, np.repeat([0, 1], [len(cats), 9]), "fedncm")
    assert sent.counts.tolist() == [5 if leaves else 0, 9]


def test_a_party_answers_no_terms_but_those_that_it_read(tmp_path: Path) -> None:
    read, other = (new_ledger(tmp_path / name, ("cat", "dog")) for name in ("read", "other"))
    X, y = np.random.default_rng(0).normal(size=(20, DIM)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x_train=X, y_train=y, x_test=X[:2], y_test=y[:2], classes=np.array(["cat", "dog"]))
    one = Party("clinic", tmp_path / "clinic", str(tmp_path / "a.npz"), {"federation": read.id})
    assert one.offer(read).clients == ("clinic",)
    refused = one.offer(other)
    assert refused.clients == ()
    assert "read those first" in refused.declined[0]["why"]
    assert unpack_bundle(refused.bundle, max_bytes=2**30, max_items=9) == []
