"""A client's arithmetic against Fed3R's Appendix E and Table 5."""

from typing import Any

import pytest

from fedmoments.core.costs import client_flops, expected_flops, flops_of, head_flops, known_methods

ENCODER = 332.9e6  # MobileNetV2, FLOPs a sample


@pytest.mark.parametrize(("classes", "head", "model"), [(2028, 2.60, 335.5), (1203, 1.54, 334.4), (100, 0.13, 333.0)])
def test_fed3r_table_5_forward_megaflops(classes: int, head: float, model: float) -> None:
    assert round(head_flops(1280, classes) / 1e6, 2) == head
    round_of_one_sample = client_flops("fedavg", samples=1, encoder_flops=ENCODER, d=1280, classes=classes)
    assert round(round_of_one_sample / 3e6, 1) == model


@pytest.mark.parametrize("classes", [100, 1203, 2028])
def test_fed3r_appendix_e_formulas(classes: int) -> None:
    n, d, random_features, epochs = 120, 1280, 5000, 5
    head = d * classes

    def flops(method: str, **options: Any) -> float:
        return client_flops(method, samples=n, encoder_flops=ENCODER, d=d, classes=classes, **options)

    assert flops("fed3r") == pytest.approx(n * (ENCODER + d * (d + 1) / 2 + head), rel=1e-15)
    assert flops("fed3r-rf", map_dimension=random_features) == pytest.approx(
        n * (ENCODER + random_features * (random_features + 1) / 2 + random_features * classes), rel=1e-15
    )
    assert flops("fedncm") == pytest.approx(n * (ENCODER + d), rel=1e-15)
    for optimiser in ("fedavg", "fedavgm", "fedadam", "fedprox", "scaffold"):
        full = 3 * epochs * n * (ENCODER + head)
        assert flops(optimiser, epochs=epochs) == pytest.approx(full, rel=1e-15)
        assert flops(f"{optimiser}-feat", epochs=epochs) == pytest.approx(full, rel=1e-15)
        assert flops(f"{optimiser}-lp", epochs=epochs) == pytest.approx(epochs * n * (ENCODER + 3 * head), rel=1e-15)


def test_fed3r_appendix_e_cumulative_cost() -> None:
    """T · t κ/K: after ⌈K/κ⌉ rounds of a one-shot method a client has spent about one participation."""
    assert expected_flops(7.0, rounds=3000, sampled=10, clients=1262) == pytest.approx(7 * 3000 * 10 / 1262)
    assert expected_flops(7.0, rounds=10, sampled=10, clients=100) == 7


@pytest.mark.parametrize(
    ("moment", "per_sample"),
    [
        ("counts", 0),
        ("sums", 40),
        ("gram", 36),
        ("class_grams", 36),
        ("class_squares", 8),
        ("class_thirds", 16),
        ("class_fourths", 16),
        ("client_means", 8),
    ],
)
def test_flops_of_each_moment(moment: str, per_sample: int) -> None:
    assert flops_of([moment], d=8, classes=5, samples=11) == 11 * per_sample


def test_flops_of_sums_without_the_one_hot_product() -> None:
    assert flops_of(["sums", "gram"], d=8, classes=5, samples=11, dense_sums=False) == 11 * (8 + 36)


def test_the_map_itself_is_counted_on_request() -> None:
    options: dict[str, Any] = {"samples": 3, "d": 8, "classes": 5, "map_dimension": 100}
    without = client_flops("fed3r-rf", encoder_flops=0, **options)
    assert client_flops("fed3r-rf", encoder_flops=0, count_map=True, **options) == without + 3 * 8 * 100


@pytest.mark.parametrize("method", known_methods())
def test_every_known_method_has_a_compute_cost_that_grows_with_the_samples(method: str) -> None:
    one, ten = (client_flops(method, samples=n, encoder_flops=1e6, d=8, classes=5, map_dimension=16) for n in (1, 10))
    assert ten == 10 * one > 1e7
