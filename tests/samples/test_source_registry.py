"""Data by the text that is typed, the bundled digits, and how a test part is held out."""

import numpy as np
import pytest

from fedmoments.errors import InputError, MissingExtraError, UnknownNameError
from fedmoments.samples import hold_out, load_data, sources
from fedmoments.samples.natural_order import sorted_names


def test_every_source_takes_share_seed_and_strict() -> None:
    for source in sources().values():
        assert {"test_share", "seed", "strict"} <= set(source.options), source.prefix
        assert source.summary


def test_unknown_sources_and_options_are_named_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'folder'"):
        load_data("foldr:x")
    with pytest.raises(InputError, match=r"'digits' has no option 'label': its options are seed, strict, test_share"):
        load_data("digits", label="x")
    with pytest.raises(InputError, match="typed as digits"):
        load_data("digits:x")
    with pytest.raises(InputError, match="typed as csv:PATH"):
        load_data("csv")


def test_an_option_that_is_none_is_not_given() -> None:
    assert len(load_data("digits", label=None, seed=None).train) == 1300


def test_digits_are_whole_and_stratified_and_stay_the_same_for_a_seed() -> None:
    data, again, other = load_data("digits"), load_data("digits"), load_data("digits", seed=1)
    images = np.asarray(data.train.items)
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert data.class_names[9] == "nine"
    assert data.digest == again.digest != other.digest
    assert len({*data.train.sources, *data.test.sources}) == 1797
    counts = [np.bincount(part.labels) for part in (data.train, data.test)]
    np.testing.assert_allclose(counts[1] / (counts[0] + counts[1]), 497 / 1797, atol=0.005)


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"fedmoments\[sklearn\]"):
        load_data("digits")


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_every_class_of_two_or_more_is_in_both_parts(share: float) -> None:
    labels = np.repeat(np.arange(6), [1, 2, 3, 10, 100, 7]).astype(np.int64)
    labels = labels[np.random.default_rng(0).permutation(len(labels))]
    train, test = hold_out(labels, share, seed=3)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert set(labels[train]) == set(range(6))
    assert set(labels[test]) == set(range(1, 6))
    assert (np.diff(train) > 0).all()


def test_shares_of_classes_add_up_to_the_share_of_all() -> None:
    labels = np.arange(1000) % 7
    _, test = hold_out(labels, 0.25, seed=0)
    assert len(test) == 250
    assert set(np.bincount(labels[test])) <= {35, 36}


def test_held_out_samples_are_pinned() -> None:
    """A split by a seed must stay the same for good: results are compared across releases."""
    _, test = hold_out(np.arange(30) % 3, 0.2, seed=0)
    assert test.tolist() == [1, 3, 11, 13, 20, 21]


def test_a_share_of_nothing_holds_out_nothing() -> None:
    train, test = hold_out(np.arange(5) % 2, 0)
    assert (len(train), len(test)) == (5, 0)


@pytest.mark.parametrize("share", [1, -0.1, float("nan"), "a", True])
def test_shares_out_of_range_are_refused(share: object) -> None:
    with pytest.raises(InputError, match="test_share must be"):
        load_data("digits", test_share=share)


def test_names_are_in_natural_order() -> None:
    names = ["b", "a10", "a9", "A1", "1", "10", "9x", "", "a", "a09"]
    assert sorted_names(names) == ["", "1", "9x", "10", "a", "A1", "a09", "a9", "a10", "b"]
    assert sorted_names(["3", "-2", "10"]) == ["-2", "3", "10"]
