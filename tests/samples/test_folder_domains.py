"""A folder of domains that is read as one of classes is noticed."""

from pathlib import Path

import pytest

from fedmoments.errors import DataWarning
from fedmoments.samples.sources.folder import load_folder


def make(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


DOMAINS = [f"{domain}/{name}/{n}.jpg" for domain in ("photo", "sketch") for name in ("cat", "dog") for n in range(2)]


def test_folders_with_the_same_folders_in_them_are_noticed_as_domains(tmp_path: Path) -> None:
    where = make(tmp_path, *DOMAINS)
    with pytest.warns(DataWarning, match="photo, sketch hold the same folders"):
        noticed = [problem for problem in load_folder(where).train.problems if "--domains" in problem.why]
    assert len(noticed) == 1
    assert "photo, sketch hold the same folders (cat, dog)" in noticed[0].why
    assert not [problem for problem in load_folder(where, domains=True).train.problems if "--domains" in problem.why]


def test_classes_are_not_taken_for_domains(tmp_path: Path) -> None:
    for number, names in enumerate((["cat/1.jpg", "dog/1.jpg"], ["cat/a/1.jpg", "dog/b/1.jpg", "dog/a/2.jpg"])):
        data = load_folder(make(tmp_path / str(number), *names), test_share=0)
        assert not [problem for problem in data.train.problems if "--domains" in problem.why]
