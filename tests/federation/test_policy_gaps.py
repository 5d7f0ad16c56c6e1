"""What terms may not do to a client: promise little under a rule that asks for much, or make it hold gigabytes."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmoments import StatisticsSpec
from fedmoments.core.maps import FeatureMap, Normalize, RandomProjection
from fedmoments.core.statistics import FixedPoint
from fedmoments.errors import PolicyError
from fedmoments.federation.flower.node import Node
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.client import ClientSettings

HELPER = "ab" * 32


def terms_of(
    privacy: Agreed,
    feature_map: FeatureMap | None = None,
    dim: int = 8,
    spec: StatisticsSpec | None = None,
    n_classes: int = 2,
) -> Terms:
    names = tuple(f"c{label}" for label in range(n_classes))
    form = FixedPoint(norm_bound=1.0)
    given = Fingerprint("none", "none", feature_map, names)
    return Terms(
        "pets", {"name": "identity", "options": {}}, given, dim, spec or StatisticsSpec(), form, privacy=privacy
    )


def test_max_epsilon_bounds_delta_too() -> None:
    likely = terms_of(Agreed(epsilon=1.0, delta=0.01), Normalize())
    with pytest.raises(PolicyError, match=r"max_delta: .* may fail with probability 0.01, allowed is 1e-05"):
        ClientPolicy(min_count=1, max_epsilon=1.0).require(likely)
    ClientPolicy(min_count=1, max_epsilon=1.0, max_delta=0.01).require(likely)
    ClientPolicy(min_count=1, max_epsilon=1.0).require(terms_of(Agreed(epsilon=1.0), Normalize()))


@pytest.mark.parametrize("secure", ["sums", "two-phase", "cohorts"])
def test_require_secure_asks_for_sums_over_several(secure: str) -> None:
    spec = StatisticsSpec() if secure == "sums" else StatisticsSpec.of("client_means")
    pair = terms_of(Agreed(secure=secure, batch=2, helper=HELPER), spec=spec)
    with pytest.raises(PolicyError, match=r"min_batch: a sum may be over 2 clients \(batch\), allowed are 3"):
        ClientPolicy(require_secure=True).require(pair)
    ClientPolicy(require_secure=True, min_batch=2).require(pair)
    ClientPolicy().require(pair)  # who asks for nothing gets what the terms say


@pytest.mark.parametrize("secure", ["two-phase", "cohorts"])
def test_require_secure_asks_for_classes_of_several(secure: str) -> None:
    alone = terms_of(
        Agreed(secure=secure, contributors=1, helper=HELPER), spec=StatisticsSpec.of("client_means")
    )  # fmt: skip
    with pytest.raises(PolicyError, match=r"an opened class may be over 1 clients \(contributors\), allowed are 3"):
        ClientPolicy(require_secure=True).require(alone)


def settings_at(folder: Path) -> ClientSettings:
    path = folder / "toy.npz"
    np.savez(path, x_train=np.zeros((8, 400), np.float32), y_train=np.zeros(8, np.int64))
    return ClientSettings(data=f"npz:{path}", name="clinic", key_seed="trial", policy={"maps": "any"})


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        (terms_of(Agreed(), RandomProjection(400, 1_600_000, seed=0), 1_600_000), "numbers of the feature map"),
        (terms_of(Agreed(), None, 400_000, StatisticsSpec.of("gram")), "numbers of the moments"),
        (terms_of(Agreed(), None, 400, n_classes=20_000), "pairs of classes"),
    ],
)
def test_a_short_message_makes_no_client_hold_gigabytes(tmp_path: Path, terms: Terms, what: str) -> None:
    node = Node(settings_at(tmp_path))
    tracemalloc.start()
    offer = node.contribute(Terms.from_json(terms.to_json()), most_bytes=2**40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "max_numbers: asked are " in offer.declined[0]["why"]
    assert what in offer.declined[0]["why"]
    assert peak < 2**26
    wide = replace(node.policy, max_numbers=2**50)
    wide.require(terms)
