"""Files appear whole or not at all, and say what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from fedmoments import files
from fedmoments.errors import FileFormatError
from fedmoments.files import FORMAT, read_tensors, write_tensors, write_whole

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
arrays = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "u1", "?"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
names = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names.filter(lambda n: n != "__metadata__"), arrays, max_size=4), json_values)
def test_arrays_and_header_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Any], value: Any
) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    write_tensors(path, "thing", tensors, {"value": value})
    again, header = read_tensors(path, "thing")
    assert set(again) == set(tensors)
    for name, array in tensors.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == np.ascontiguousarray(array).tobytes()
    assert header == {"value": value}


def test_any_memory_layout_and_byte_order_is_stored_alike(tmp_path: Path) -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    for number, array in enumerate([matrix.T.copy().T, matrix[:, ::-1][:, ::-1], matrix.astype(">f8")]):
        write_tensors(tmp_path / str(number), "thing", {"a": array}, {})
    contents = {entry.read_bytes() for entry in tmp_path.iterdir()}
    assert len(contents) == 1


def test_a_failed_write_leaves_no_part_and_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new content")
    with pytest.raises(OSError, match="No space left"):
        write_tensors(tmp_path / "other", "thing", {"a": np.zeros(3)}, {})
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failed_rename_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        write_tensors(tmp_path / "file", "thing", {"a": np.zeros(3)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_is_no_json_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_tensors(tmp_path / "file", "thing", {}, {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_numbers_as_keys_become_text_and_do_not_break_the_checksum(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", "thing", {}, {"by number": {10: "b", 9: "a"}})
    assert read_tensors(tmp_path / "file", "thing")[1] == {"by number": {"10": "b", "9": "a"}}


def test_another_kind_and_another_format_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_tensors(path, "split", {}, {})
    with pytest.raises(FileFormatError, match="holds 'split', but a file of 'classifier' was requested"):
        read_tensors(path, "classifier")
    monkeypatch.setattr(files, "FORMAT", FORMAT + 1)
    with pytest.raises(FileFormatError, match=f"is of format {FORMAT}, but this release reads format {FORMAT + 1}"):
        read_tensors(path, "split")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "fedmoments did not write it"),
        ({"other": "x"}, "fedmoments did not write it"),
        ({"fedmoments": "{"}, "header is not JSON"),
        ({"fedmoments": "[" * 100_000}, "header is not JSON"),
        ({"fedmoments": "[]"}, "lacks a description"),
        ({"fedmoments": '{"header": 3}'}, "lacks a description"),
        ({"fedmoments": json.dumps({"kind": "thing", "format": FORMAT, "header": {}})}, "checksum does not match"),
        (
            {"fedmoments": json.dumps({"kind": "thing", "format": FORMAT, "header": {}, "checksum": 5})},
            "checksum does not match",
        ),
    ],
)
def test_other_safetensors_files_are_refused(tmp_path: Path, metadata: dict[str, str] | None, words: str) -> None:
    path = tmp_path / "file"
    save_file({"a": np.zeros(2)}, path, metadata=metadata)
    with pytest.raises(FileFormatError, match=words):
        read_tensors(path, "thing")


def test_a_header_that_claims_to_be_huge_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(FileFormatError, match="not a valid fedmoments file"):
        read_tensors(path, "thing")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises((OSError, FileFormatError)):
        read_tensors(tmp_path, "thing")
