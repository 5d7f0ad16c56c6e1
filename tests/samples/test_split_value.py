"""The value `Split`: its checks, its counts, and its file."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import write_tensors
from fedmoments.samples import Split, by_id


def example() -> Split:
    return Split(np.array([2, 0, -1, 2]), 4, "by hand", ("a", "b", "c", "Łódź/0"), "One was broken.", ("A note.",))


def test_a_split_is_frozen_and_keeps_its_own_copy() -> None:
    clients = np.array([0, 1])
    split = Split(clients, 2, "by hand")
    clients[0] = 1
    assert split.clients.tolist() == [0, 1]
    for array in (split.clients, split.indices(0), split.dropped):
        assert not array.flags.writeable
    with pytest.raises(dataclasses.FrozenInstanceError):
        split.n_clients = 3  # type: ignore[misc]


@given(st.lists(st.integers(-1, 9), min_size=1), st.data())
def test_cells_count_samples_by_client_and_class(clients: list[int], data: st.DataObject) -> None:
    y = data.draw(st.lists(st.integers(0, 4), min_size=len(clients), max_size=len(clients)))
    split = Split(np.array(clients), 10, "by hand", why="Some." if -1 in clients else "")
    expected = np.zeros((10, 6), dtype=np.int64)
    for client, label in zip(clients, y, strict=True):
        if client >= 0:
            expected[client, label] += 1
    cells = split.cells(y, 6)
    assert cells.dtype == np.int64
    assert cells.nnz == np.count_nonzero(expected)
    np.testing.assert_array_equal(cells.toarray(), expected)
    np.testing.assert_array_equal(split.sizes, expected.sum(axis=1))


def test_cells_refuse_labels_that_do_not_fit() -> None:
    split = Split(np.array([0, 1]), 2, "by hand")
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        split.cells([0], 2)
    with pytest.raises(InputError, match="whole numbers"):
        split.cells([0.0, 1.0], 2)
    with pytest.raises(InputError, match="from 0 to n_classes − 1 = 1, but go from 0 to 2"):
        split.cells([0, 2], 2)
    with pytest.raises(InputError, match="go from -1 to 0"):
        split.cells([0, -1], 2)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"clients": np.array([0.0])}, "whole numbers"),
        ({"clients": np.array([[0]])}, "shape"),
        ({"clients": np.array([2])}, "from 2 to 2"),
        ({"clients": np.array([-2])}, "from -2 to -2"),
        ({"n_clients": 0}, "at least 1"),
        ({"names": ("a",)}, "2 different ones"),
        ({"names": ("a", "a")}, "1 differ"),
        ({"why": "No reason."}, "exactly when some are"),
        ({"clients": np.array([-1])}, "exactly when some are"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(wrong: dict[str, object], says: str) -> None:
    fields: dict[str, object] = {"clients": np.array([0, 1]), "n_clients": 2, "scheme": "by hand"}
    with pytest.raises(InputError, match=says):
        Split(**(fields | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [-1, 4])
def test_a_client_that_does_not_exist_is_refused(client: int) -> None:
    with pytest.raises(InputError, match="from 0 to n_clients − 1 = 3"):
        example().indices(client)


def test_the_digest_is_of_the_assignment_alone() -> None:
    split = example()
    assert split.digest() == dataclasses.replace(split, scheme="other", names=(), notes=()).digest()
    assert split.digest() != Split(np.array([2, 0, 1, 2]), 4, "by hand").digest()
    assert split.digest() != dataclasses.replace(split, n_clients=5, names=()).digest()
    assert hash(split) == hash(example())
    assert split != dataclasses.replace(split, scheme="other")
    assert split != "by hand"


def test_a_saved_split_loads_the_same_and_its_bytes_are_reproducible(tmp_path: Path) -> None:
    for split in (example(), by_id([5, 5, 1])):
        split.save(tmp_path / "one")
        split.save(str(tmp_path / "two"))
        assert Split.load(tmp_path / "one") == split
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    example().save(tmp_path / "split")
    data = (tmp_path / "split").read_bytes()
    for i in range(len(data)):
        for flip in (1, 128):
            (tmp_path / "split").write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            with pytest.raises(FileFormatError):
                Split.load(tmp_path / "split")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    example().save(tmp_path / "split")
    data = (tmp_path / "split").read_bytes()
    for end in range(len(data)):
        (tmp_path / "split").write_bytes(data[:end])
        with pytest.raises(FileFormatError, match="split"):
            Split.load(tmp_path / "split")


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(FileFormatError, match="fedmoments did not write it"):
        Split.load(path)
    write_tensors(path, "statistics", {"clients": np.zeros(3, dtype=np.int64)}, {})
    with pytest.raises(FileFormatError, match="holds 'statistics', but a file of 'split'"):
        Split.load(path)
    for wrong in (np.zeros(3), np.zeros((2, 2), dtype=np.int64)):
        write_tensors(path, "split", {"clients": wrong}, {})
        with pytest.raises(FileFormatError, match="one tensor 'clients', int64"):
            Split.load(path)


@pytest.mark.parametrize(
    ("envelope", "says"),
    [
        ("{", "not JSON"),
        ("[]", "lacks a description"),
        ("{}", "lacks a description"),
        (json.dumps({"kind": "split", "format": 2, "header": {}}), "format 2"),
        (json.dumps({"kind": "split", "format": 1, "header": {}, "checksum": ""}), "checksum"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, envelope: str, says: str) -> None:
    path = tmp_path / "split"
    save_file({"clients": np.zeros(3, dtype=np.int64)}, path, metadata={"fedmoments": envelope})
    with pytest.raises(FileFormatError, match=says):
        Split.load(path)


def test_a_sound_file_of_an_invalid_split_is_refused(tmp_path: Path) -> None:
    from fedmoments.samples.splits.split import Header, write_split

    header: Header = {"n_clients": 2, "scheme": "x", "names": [], "why": "", "notes": []}
    write_split(tmp_path / "split", np.array([0, 7]), header)
    with pytest.raises(FileFormatError, match="does not hold a valid split: clients"):
        Split.load(tmp_path / "split")
    for wrong in (header | {"n_clients": "2"}, header | {"more": 1}, {}):
        write_split(tmp_path / "split", np.array([0, 1]), wrong)
        with pytest.raises(FileFormatError, match="must hold"):
            Split.load(tmp_path / "split")


def test_a_missing_file_is_the_system_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Split.load(tmp_path / "nowhere")
