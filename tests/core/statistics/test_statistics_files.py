"""Statistics survive their file; damaged or foreign files are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import MOMENTS, FixedPoint, Statistics, StatisticsSpec, load_statistics, save_statistics
from fedmoments.errors import FileFormatError
from fedmoments.files import read_tensors, write_tensors

SPEC = StatisticsSpec.of("gram", "class_squares", "client_means", means_per_client=2)


def example(spec: StatisticsSpec = SPEC, form: FixedPoint | None = None, n: int = 20, seed: int = 0) -> Statistics:
    rng = np.random.default_rng(seed)
    return Statistics.of(rng.normal(size=(n, 3)), rng.integers(0, 3, n), spec, n_classes=5, fixed_point=form)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(MOMENTS))),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 30),
    st.dictionaries(
        st.text(max_size=5), st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.lists(st.integers())
    ),
)
def test_statistics_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], shares: int, fixed: bool, n: int, notes: dict[str, Any]
) -> None:
    spec = StatisticsSpec(frozenset(names), shares if "client_means" in names else 1)
    stats = example(spec, FixedPoint(norm_bound=32.0, max_samples=100) if fixed else None, n)
    path = tmp_path_factory.mktemp("stats") / "file"
    save_statistics(path, stats, notes)
    again, read = load_statistics(path)
    assert again == stats
    assert again.fixed_point == stats.fixed_point
    assert again.spec == stats.spec
    assert read == notes
    assert (again + again).n_samples == 2 * n


def test_the_header_can_be_read_by_people(tmp_path: Path) -> None:
    path = tmp_path / "clinic.stats"
    save_statistics(path, example(), {"client": "clinic", "years": {2024: 7, 9: 1}})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    outer = json.loads(raw[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["fedmoments"])
    assert inner["kind"] == "statistics"
    assert inner["header"]["notes"]["client"] == "clinic"
    assert load_statistics(path)[1]["years"] == {"2024": 7, "9": 1}


def damaged(path: Path, position: int, flip: int) -> Path:
    raw = bytearray(path.read_bytes())
    raw[position] ^= flip
    bad = path.with_suffix(".bad")
    bad.write_bytes(raw)
    return bad


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_statistics(path, example(n=6), {"a": "b"})
    size = path.stat().st_size
    for position in range(size):
        for flip in (0x01, 0x80):
            with pytest.raises(FileFormatError, match=r"file\.bad|bad"):
                load_statistics(damaged(path, position, flip))


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_statistics(path, example(n=6))
    raw = path.read_bytes()
    for length in [*range(0, len(raw), 37), len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(FileFormatError):
            load_statistics(path)
    path.write_bytes(raw + b"\0")
    with pytest.raises(FileFormatError):
        load_statistics(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_tensors(path, "split", {"clients": np.zeros(2)}, {})
    with pytest.raises(FileFormatError, match="holds 'split', but a file of 'statistics'"):
        load_statistics(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class_counts": np.array([1, 0, 3])}, "counts must be 1 or more"),
        ({"classes": np.array([0, 0, 1])}, "ascend"),
        ({"classes": np.array([0, 1, 9])}, "ascend from 0 to 4"),
        ({"classes": np.array([-1, 1, 2])}, "ascend"),
        ({"class_counts": np.array([1.0, 2.0, 3.0])}, "int64"),
        ({"class_counts": np.array([[1], [2], [3]])}, "shape"),
        ({"moment.gram": np.zeros(5)}, "'gram' must be float64 of shape"),
        ({"moment.gram": np.full(6, np.nan)}, "NaN or infinity"),
        ({"moment.gram": np.zeros(6, np.int64)}, "'gram' must be float64"),
        ({"row_counts": np.full(6, 99)}, "do not add up"),
        ({"row_labels": np.full(6, 7)}, "class without samples"),
        ({"row_labels": np.full(6, -1)}, "class without samples"),
    ],
)
def test_sound_files_with_numbers_that_no_data_could_have_are_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "file"
    save_statistics(path, example())
    tensors, header = read_tensors(path, "statistics")
    write_tensors(path, "statistics", {**tensors, **change}, header)
    with pytest.raises(FileFormatError, match=words):
        load_statistics(path)


@pytest.mark.parametrize(
    "change",
    [
        {"n_classes": 0},
        {"n_classes": "many"},
        {"dim": 4},
        {"dim": None},
        {"moments": ["secret"]},
        {"moments": 3},
        {"means_per_client": 0},
        {"fixed_point": {"norm_bound": -1.0, "max_samples": 5}},
        {"fixed_point": {"bits": 3}},
        {"fixed_point": {"norm_bound": 8.0, "max_samples": 100}},
    ],
)
def test_sound_files_with_a_wrong_header_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "file"
    save_statistics(path, example())
    tensors, header = read_tensors(path, "statistics")
    write_tensors(path, "statistics", tensors, {**header, **change})
    with pytest.raises(FileFormatError, match="file"):
        load_statistics(path)


@pytest.mark.parametrize("missing", ["classes", "moment.gram", "row_counts"])
def test_sound_files_that_lack_an_array_are_refused(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "file"
    save_statistics(path, example())
    tensors, header = read_tensors(path, "statistics")
    del tensors[missing]
    write_tensors(path, "statistics", tensors, header)
    with pytest.raises(FileFormatError, match=missing):
        load_statistics(path)


def test_fixed_point_numbers_beyond_the_agreed_range_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_statistics(path, example(StatisticsSpec(), FixedPoint(norm_bound=32.0, max_samples=100)))
    tensors, header = read_tensors(path, "statistics")
    tensors["moment.sums"] = np.full_like(tensors["moment.sums"], 2**63 - 1)
    write_tensors(path, "statistics", tensors, header)
    with pytest.raises(FileFormatError, match=r"range|norm_bound"):
        load_statistics(path)
