"""What a classifier knows of what it does not know: laws of its distances, its file, and real images that are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import Classifier, load, load_bytes
from fedmoments.core.classifier.familiar import FREEDOM, TAIL, Distance, Familiar
from fedmoments.errors import FileFormatError, InputError

C, D = 4, 24
HEADS = ["fed3r", "fedcof", "gh-lda", "gh-nb", "gh-qda", "sketch", "lda-sketch", "auto", "lda-free", "fedcof-spherical"]


def samples(n: int = 1200, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    return 1.5 * np.random.default_rng(1).normal(size=(C, D))[y] + rng.normal(size=(n, D)), y


def fitted(name: str, factor: float = 1.0) -> Classifier:
    X, y = samples()
    return fm.fit(name, {site: (factor * X[site::20], y[site::20]) for site in range(20)})


def naive(x: NDArray[Any], seen: Familiar) -> tuple[float, float]:
    """Return both distances of one sample as the docstring writes them."""
    mean = sum(share * own for share, own in zip(seen.shares, seen.means, strict=True))
    between = sum(share * (own - mean) ** 2 for share, own in zip(seen.shares, seen.means, strict=True))
    total = seen.variances + between
    nearest = min(sum((x - own) ** 2 / seen.variances) for own in seen.means)
    width = np.mean(total / seen.variances) - 1
    return (nearest - sum((x - mean) ** 2 / total)) / (len(x) * width), nearest / len(x)


def test_distances_are_those_of_the_formula() -> None:
    X, _ = samples(50, seed=3)
    classifier = fitted("gh-lda")
    assert classifier.familiar is not None
    expected = np.array([naive(x, classifier.familiar) for x in X])
    np.testing.assert_allclose(classifier.novelty(X), expected[:, 0], atol=1e-10)
    np.testing.assert_allclose(classifier.novelty(X, "mahalanobis"), expected[:, 1], atol=1e-10)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_with_a_spread_tells_its_classes_from_others(name: str) -> None:
    classifier = fitted(name)
    known, _ = samples(400, seed=5)
    new = 1.5 * np.random.default_rng(9).normal(size=(400, D)) * 2 + np.random.default_rng(8).normal(size=(400, D))
    assert np.median(classifier.novelty(new)) > np.quantile(classifier.novelty(known), 0.99)
    assert classifier.unknown(known, 0.01).mean() <= 0.03
    assert classifier.unknown(new, 0.01).mean() > 0.9


@pytest.mark.parametrize("name", ["gh-lda", "fedcof", "lda-sketch"])
@pytest.mark.parametrize("factor", [1e-3, 7.0, 2.0**90])
def test_law_features_times_a_constant_change_no_distance(name: str, factor: float) -> None:
    X, _ = samples(60, seed=4)
    one, other = fitted(name), fitted(name, factor)
    np.testing.assert_allclose(other.novelty(factor * X), one.novelty(X), rtol=1e-4, atol=1e-5)


def test_thresholds_are_those_of_the_tails() -> None:
    from scipy.stats import chi2

    seen = fitted("gh-lda").familiar
    assert seen is not None
    assert seen.threshold(0.01) == pytest.approx(-TAIL * np.log(0.01))
    assert seen.threshold(0.01, "mahalanobis") == pytest.approx(chi2.ppf(0.99, FREEDOM) / FREEDOM)
    assert seen.threshold(0.001) > seen.threshold(0.1)
    for wrong in (0.0, 1.0, -3.0, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            seen.threshold(wrong)


@pytest.mark.parametrize("n_classes", [C, 1])
def test_law_unknown_is_beyond_the_thresholds_of_a_share(n_classes: int) -> None:
    X, y = samples()
    classifier = fm.fit("gh-lda", {"a": (X, y % n_classes)}, n_classes=n_classes)
    seen = classifier.familiar
    assert seen is not None
    given = X * np.linspace(0.2, 4.0, len(X))[:, None]
    for share in (0.001, 0.01, 0.05, 0.3):
        beyond = classifier.novelty(given) > seen.threshold(share / 2)
        beyond |= classifier.novelty(given, "mahalanobis") > seen.threshold(share / 2, "mahalanobis")
        np.testing.assert_array_equal(classifier.unknown(given, share), beyond)
        assert 0 < beyond.sum() < len(X)
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            classifier.unknown(X, wrong)


def test_one_class_has_distances_too() -> None:
    X, _ = samples(100)
    classifier = fm.fit("gh-lda", {"a": (X, np.zeros(100, int))})
    assert not classifier.unknown(X, 0.01).all()
    assert classifier.unknown(X + 100.0, 0.01).all()


LEVEL_HEADS = ["fed3r", "fedcof", "gh-lda", "gh-qda", "sketch", "lda-sketch", "lda-free"]


def rectified(n: int = 2000, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features of which each is often near 0 and all never are: those of a sample rise and fall together."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    means = np.random.default_rng(1).uniform(0.5, 1.5, size=(C, D))
    return means[y] * rng.gamma(1.0, size=(n, D)) * rng.uniform(0.8, 1.2, size=(n, 1)), y


def rectified_classifier(name: str, factor: float = 1.0) -> Classifier:
    X, y = rectified()
    return fm.fit(name, {site: (factor * X[site::20], y[site::20]) for site in range(20)})


def test_levels_are_those_of_the_formula() -> None:
    X, _ = rectified()
    seen = rectified_classifier("gh-lda")
    mean = X.mean(axis=0)
    along = [float(x @ mean) / float(np.sqrt(mean @ mean)) for x in X]
    expected = [(np.mean(along) - own) / np.std(along) for own in along]
    np.testing.assert_allclose(seen.novelty(X, "level"), expected, rtol=2e-3, atol=2e-3)  # N − C for N


@pytest.mark.parametrize("name", LEVEL_HEADS)
def test_what_is_low_in_all_features_is_unknown(name: str) -> None:
    classifier = rectified_classifier(name)
    known, _ = rectified(1000, seed=5)
    empty = np.zeros((1, D))
    assert classifier.novelty(empty) < np.quantile(classifier.novelty(known), 0.99)
    assert classifier.novelty(empty, "mahalanobis") < np.quantile(classifier.novelty(known, "mahalanobis"), 0.99)
    assert classifier.novelty(empty, "level") > 1.2 * classifier.novelty(known, "level").max()
    assert classifier.unknown(empty, 0.01).all()
    assert (classifier.novelty(known, "level") > classifier.familiar.threshold(0.01, "level")).mean() <= 0.01  # type: ignore[union-attr]


@pytest.mark.parametrize("factor", [1e-3, 7.0, 2.0**90])
def test_law_features_times_a_constant_change_no_level(factor: float) -> None:
    X, _ = rectified(60, seed=4)
    one, other = rectified_classifier("fedcof"), rectified_classifier("fedcof", factor)
    np.testing.assert_allclose(other.novelty(factor * X, "level"), one.novelty(X, "level"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gh-nb", "fedcof-spherical"])
def test_without_a_covariance_or_an_origin_far_off_there_is_no_level(name: str) -> None:
    for classifier in (rectified_classifier(name), fitted("gh-lda")):
        with pytest.raises(InputError, match="no level"):
            classifier.novelty(samples(3)[0], "level")
        assert classifier.familiar is not None
        assert classifier.familiar.n_distances == 2


def test_law_unknown_is_beyond_the_thresholds_of_a_share_of_levels_too(tmp_path: Path) -> None:
    classifier = rectified_classifier("gh-lda")
    X = rectified(900, seed=7)[0] * np.linspace(0.0, 3.0, 900)[:, None]
    classifier.save(tmp_path / "head.safetensors")
    seen = load(tmp_path / "head.safetensors").familiar
    assert seen is not None
    for share in (0.001, 0.01, 0.05, 0.3):
        kinds: tuple[Distance, ...] = ("relative", "mahalanobis", "level")
        beyond = np.any([seen.distances(X, kind) > seen.threshold(share / 3, kind) for kind in kinds], axis=0)
        np.testing.assert_array_equal(classifier.knowing(seen).unknown(X, share), beyond)
        assert 0 < beyond.sum() < len(X)


def test_a_head_without_spread_says_so() -> None:
    with pytest.raises(InputError, match="fedncm"):
        fitted("fedncm").novelty(samples(3)[0])


def test_it_travels_in_the_file_and_files_without_it_are_read(tmp_path: Path) -> None:
    X, _ = samples(40, seed=6)
    classifier = fitted("fedcof")
    classifier.save(tmp_path / "head.safetensors")
    back = load(tmp_path / "head.safetensors")
    assert back.digest() == classifier.digest()
    np.testing.assert_allclose(back.novelty(X), classifier.novelty(X), atol=1e-5)
    former = load_bytes(classifier.knowing(None).to_bytes())
    assert former.familiar is None
    np.testing.assert_array_equal(former.scores(X), classifier.scores(X))


@pytest.mark.parametrize("wrong", ["means", "variances", "shares"])
def test_a_file_with_nonsense_in_it_is_refused(wrong: str) -> None:
    from fedmoments.files import pack_tensors, unpack_tensors

    tensors, header = unpack_tensors(fitted("fedcof").to_bytes(), "classifier", "it")
    for bad in (np.full_like(tensors[f"familiar.{wrong}"], np.nan), tensors[f"familiar.{wrong}"][:-1]):
        with pytest.raises((FileFormatError, InputError)):
            load_bytes(pack_tensors("classifier", {**tensors, f"familiar.{wrong}": bad}, header))


def test_what_is_no_photograph_is_rejected_behind_a_real_encoder() -> None:
    """Handwritten digits are known; noise and photographs' noise, black images are not."""
    from sklearn.datasets import load_digits

    from fedmoments.samples.encoders.registry import load_encoder

    digits = load_digits()
    encoder = load_encoder("squeezenet-1.1", size=64)
    enlarged = np.repeat(np.repeat(digits.images[:700], 8, 1), 8, 2) / 16 * 255
    images = [np.repeat(image[..., None], 3, 2).astype(np.uint8) for image in enlarged]
    features = encoder.encode([encoder.prepare(image) for image in images])
    classifier = fm.fit("gh-lda", {"a": (features[:600], digits.target[:600])})
    rng = np.random.default_rng(0)
    strange = [rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(5)]
    strange += [np.zeros((64, 64, 3), np.uint8)]
    strange += [np.full((64, 64, 3), grey, np.uint8) for grey in (128, 255)]
    assert classifier.unknown(encoder.encode([encoder.prepare(image) for image in strange]), 0.01).all()
    assert classifier.unknown(features[600:], 0.01).mean() < 0.1
