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
from fedmoments.samples.reading import choose_encoder
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


@pytest.mark.parametrize("secure", ["sums", "two-phase", "cohorts"])
def test_require_secure_asks_for_classes_of_several(secure: str) -> None:
    spec = StatisticsSpec() if secure == "sums" else StatisticsSpec.of("client_means")
    alone = terms_of(Agreed(secure=secure, contributors=1, helper=HELPER), spec=spec)
    with pytest.raises(PolicyError, match=r"an opened class may be over 1 clients \(contributors\), allowed are 3"):
        ClientPolicy(require_secure=True).require(alone)


def hostile(folder: Path, feature_map: FeatureMap | None, dim: int, moment: str, n_classes: int) -> tuple[Node, Terms]:
    """Return a client, and terms with its own encoder that ask it for something large."""
    path = folder / "toy.npz"
    np.savez(path, x_train=np.zeros((8, 400), np.float32), y_train=np.zeros(8, np.int64))
    settings = ClientSettings(data=f"npz:{path}", name="clinic", key_seed="trial", policy={"maps": "any"})
    encoder = choose_encoder(settings.with_encoder("identity"), "features", 400)
    given = Fingerprint.of(encoder, feature_map, tuple(map(str, range(n_classes))))
    form, spec = FixedPoint(norm_bound=1.0), StatisticsSpec.of(moment)
    return Node(settings), Terms("pets", {"name": "identity", "options": {}}, given, dim, spec, form)


@pytest.mark.parametrize(
    ("feature_map", "dim", "moment", "n_classes", "what"),
    [
        (RandomProjection(400, 1_600_000, seed=0), 1_600_000, "sums", 2, "640,000,000 numbers of the feature map"),
        (RandomProjection(400, 30_000, seed=0), 30_000, "gram", 2, "450,075,000 numbers of the moments"),
        (None, 400, "sums", 20_000, "400,000,000 pairs of classes"),
    ],
)
def test_a_short_message_makes_no_client_hold_gigabytes(
    tmp_path: Path, feature_map: FeatureMap | None, dim: int, moment: str, n_classes: int, what: str
) -> None:
    node, terms = hostile(tmp_path, feature_map, dim, moment, n_classes)
    tracemalloc.start()
    offer = node.contribute(Terms.from_json(terms.to_json()), most_bytes=2**40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f"max_numbers: the server asks for {what}, allowed are 268,435,456" in offer.declined[0]["why"]
    assert peak < 2**26
    with pytest.raises(PolicyError, match="max_numbers"):
        node.policy.require(terms)
    replace(node.policy, max_numbers=2**50).require(terms)
