"""A moment that is registered at run time: it is tried first, and then measured, merged, kept and fitted like ours."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.statistics import MOMENTS, Layout, Moment
from fedmoments.core.statistics.moments import ClassSums
from fedmoments.errors import InputError, UnknownNameError


class Absolutes(ClassSums):
    """Σ|x| of a class."""

    name = "class_absolutes"
    symbol = "Σ|x|"

    def add(self, work: Any, X: Any, cells: Any) -> None:
        super().add(work, np.abs(X), cells)


class Lengths(Moment):
    """Σ‖x‖² over all samples: one number."""

    name = "total_lengths"
    symbol = "Σ‖x‖²"
    layout = Layout.GLOBAL
    degree = 2

    def width(self, dim: int) -> int:
        return 1

    def workspace(self, n_cells: int, dim: int) -> Any:
        return np.zeros(1)

    def add(self, work: Any, X: Any, cells: Any) -> None:
        work += (X**2).sum()


@pytest.fixture
def registered() -> Iterator[None]:
    fm.register_moment(Absolutes)
    fm.register_moment(Lengths())
    yield
    MOMENTS.remove("class_absolutes")
    MOMENTS.remove("total_lengths")


@pytest.mark.usefixtures("registered")
def test_it_is_measured_merged_restricted_and_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    spec = fm.StatisticsSpec.of("class_absolutes", "total_lengths", "gram")
    assert spec.sent == ("sums", "gram", "class_absolutes", "total_lengths")
    clients = {"a": (X[:11], y[:11]), "b": (X[11:], y[11:])}
    for form in (None, fm.FixedPoint(20.0, 1000)):
        merged = fm.measure(clients, spec, fixed_point=form).statistics()
        expected = np.stack([np.abs(X[y == label]).sum(axis=0) for label in range(3)])
        np.testing.assert_allclose(merged.class_array("class_absolutes"), expected, atol=1e-6)
        fm.save_statistics(tmp_path / "s", merged, {})
        again, _ = fm.load_statistics(tmp_path / "s")
        assert again.digest() == merged.digest()
        np.testing.assert_allclose(again.raw("total_lengths") if form is None else [(X**2).sum()], [(X**2).sum()])
        small = merged.restricted(fm.StatisticsSpec.of("class_absolutes"))
        assert small.spec.sent == ("sums", "class_absolutes")
    assert fm.fit("fed3r", merged).n_classes == 3


def test_without_it_its_files_and_names_are_refused(tmp_path: Path) -> None:
    fm.register_moment(Absolutes)
    spec = fm.StatisticsSpec.of("class_absolutes")
    fm.save_statistics(tmp_path / "s", fm.Statistics.of(np.eye(2), [0, 1], spec, n_classes=2), {})
    MOMENTS.remove("class_absolutes")
    with pytest.raises(UnknownNameError, match="unknown moment 'class_absolutes'"):
        fm.StatisticsSpec.of("class_absolutes")
    with pytest.raises(InputError, match="class_absolutes"):
        fm.load_statistics(tmp_path / "s")


@pytest.mark.usefixtures("registered")
def test_what_is_remembered_of_a_head_covers_the_code_of_its_moments() -> None:
    from fedmoments.provenance import code_of
    from fedmoments.study.memory import identity_of

    @dataclass(frozen=True)
    class Sizes(NearestMean):
        """Of a moment of one's own."""

        @property
        def needs(self) -> fm.StatisticsSpec:
            return fm.StatisticsSpec.of("class_absolutes")

    assert identity_of(Sizes())[3:] == [code_of(Absolutes)]
    assert len(identity_of(fm.make_head("fedcof"))) == 3


class Wide(Absolutes):
    """One number too many."""

    def width(self, dim: int) -> int:
        return dim + 1


class Means(Absolutes):
    """Not a sum."""

    def finish(self, work: Any) -> Any:
        return work / 2 + 1


class Large(Absolutes):
    """Beyond its bound."""

    def finish(self, work: Any) -> Any:
        return 3 * work


class Rows(Absolutes):
    """Of a layout that is not open."""

    layout: ClassVar[Layout] = Layout.ROWS


class Named(Absolutes):
    """Under a name that files cannot hold."""

    name = "../x"


class Powered(Absolutes):
    """Of a degree that the fixed point does not know."""

    degree = 9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Wide, r"must give the shape \(3, 2\), not \(3, 1\)"),
        (Means, "measuring a union must give the sum"),
        (Large, "the numbers of one sample of length .* but their length is"),
        (Rows, "its layout must be Layout.CLASS or Layout.GLOBAL"),
        (Named, "its name must be lower-case letters"),
        (Powered, "its degree must be a whole number from 0 to 4"),
        (int, "it must be a class made from fedmoments.Moment"),
        (ClassSums, "two moments call themselves 'sums'"),
    ],
)
def test_what_does_not_keep_the_laws_is_refused(given: Any, message: str) -> None:
    before = list(MOMENTS)
    with pytest.raises(InputError, match=message):
        fm.register_moment(given)
    assert list(MOMENTS) == before
