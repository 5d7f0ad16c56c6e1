"""Groups that stay together: no patient on both sides of a test, or at two clients."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raw_tables import write_clinic

from fedmoments.errors import InputError
from fedmoments.samples import parse_split
from fedmoments.samples.features import load_features
from fedmoments.samples.sources.registry import load_data
from fedmoments.samples.sources.rows import hold_out
from fedmoments.samples.splits.split import DROPPED, Split
from fedmoments.samples.splits.together import kept_together


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=80),
    st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]),
    st.integers(0, 5),
)
def test_no_group_is_on_both_sides_and_every_class_stays_to_train_on(
    rows: list[tuple[int, int]], share: float, seed: int
) -> None:
    labels, groups = (np.array(column) for column in zip(*rows, strict=True))
    train, test = hold_out(labels, share, seed, groups=groups)
    assert sorted([*train, *test]) == list(range(len(rows)))
    assert not set(groups[train]) & set(groups[test])
    assert set(labels[train]) == set(labels)
    if not share:
        assert not len(test)
    again = hold_out(labels, share, seed, groups=groups)
    assert np.array_equal(again[0], train)


def test_shares_of_classes_are_near_to_what_was_asked_for() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 200, 2000)
    labels = rng.integers(0, 4, 2000)
    _, test = hold_out(labels, 0.2, 1, groups=groups)
    shares = np.bincount(labels[test], minlength=4) / np.bincount(labels)
    assert np.abs(shares - 0.2).max() < 0.03


def test_one_group_that_is_larger_than_the_share_is_held_out_if_classes_allow_it() -> None:
    labels, groups = np.array([0, 1] * 6), np.repeat([0, 1, 2], 4)
    train, test = hold_out(labels, 0.1, 0, groups=groups)
    assert len(test) == 4
    assert len(train) == 8
    assert not len(hold_out(np.zeros(4, int), 0.5, 0, groups=np.zeros(4, int))[1])  # one patient: nothing to test on


@pytest.mark.parametrize("scheme", ["iid", "dirichlet:0.1", "dirichlet-client:0.3", "classes:2", "quantity:0.5"])
def test_no_group_is_at_two_clients_whatever_the_scheme(scheme: str) -> None:
    rng = np.random.default_rng(3)
    labels, groups = rng.integers(0, 5, 600), rng.integers(0, 90, 600)
    split = parse_split(scheme).apply(labels, n_clients=7, seed=1, groups=groups)
    for group in range(90):
        mine = split.clients[(groups == group) & (split.clients != DROPPED)]
        assert len(set(mine.tolist())) <= 1
    plain = parse_split(scheme).apply(labels, n_clients=7, seed=1)
    assert np.array_equal(split.clients == DROPPED, plain.clients == DROPPED)
    assert any("groups" in note for note in split.notes)


def test_a_split_that_keeps_groups_together_is_returned_as_it_is() -> None:
    split = Split(np.array([0, 1, 1, -1]), 2, "by hand", why="an example")
    assert kept_together(split, np.array(["a", "b", "b", "b"]), moving=True) is split


def test_groups_that_the_data_give_to_two_users_are_refused() -> None:
    options = {"ids": ["north", "south", "south"], "groups": ["ann", "ann", "bob"]}
    with pytest.raises(InputError, match="the group 'ann' has samples at north and south"):
        parse_split("id").apply([0, 1, 0], **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one a sample"):
        parse_split("iid").apply([0, 1, 0], n_clients=2, groups=["ann"])


def test_a_column_of_patients_keeps_them_on_one_side(tmp_path: Path) -> None:
    path = write_clinic(tmp_path / "a.csv", 150)
    data = load_data(f"csv:{path}", label="outcome", group="patient", features="score")
    assert data.train.groups is not None
    assert data.test.groups is not None
    assert len(data.test)
    assert not set(data.train.groups) & set(data.test.groups)
    assert "50 groups" in data.description


def test_a_given_test_part_with_known_patients_loses_them(tmp_path: Path) -> None:
    train = write_clinic(tmp_path / "a.csv", 30, 0)
    test = write_clinic(tmp_path / "b.csv", 30, 1, patient=["p0-0"] * 3 + ["new"] * 27)
    options = {"label": "outcome", "group": "patient", "features": "score", "test": str(test)}
    data = load_data(f"csv:{train}", **options)
    assert len(data.test) == 27
    assert str(data.problems[0]) == "b.csv row 1: its group 'p0-0' has samples to train on"
    with pytest.raises(InputError, match="This run is strict"):
        load_data(f"csv:{train}", **options, strict=True)


def test_features_files_carry_groups(tmp_path: Path) -> None:
    arrays = {"x_train": np.eye(4), "y_train": [0, 1, 0, 1], "group_train": np.array(["a", "a", "b", "b"])}
    np.savez(tmp_path / "f.npz", **arrays)  # type: ignore[arg-type]
    features = load_features(tmp_path / "f.npz", ["train"])
    assert features.groups is not None
    assert features.groups.tolist() == ["a", "a", "b", "b"]
    data = load_data(f"npz:{tmp_path / 'f.npz'}", test_share=0.5)
    assert data.train.groups is not None
    assert len(set(data.train.groups)) == 1
