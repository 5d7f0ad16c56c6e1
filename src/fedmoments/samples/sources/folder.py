"""``folder:PATH``: images or sounds in folders named after their classes.

=========================================  ==========================================================
PATH/CLASS/…                               all images, or all WAV files, below CLASS, however deep
PATH/train/CLASS/…, PATH/test/CLASS/…      the same, with the test part given
PATH/DOMAIN/CLASS/…                        with ``domains=True``; also below train and test
=========================================  ==========================================================

Hidden files are not looked at, files that are neither are reported; where there are both, the fewer are. Links are
followed, but no folder is read twice within a class.
"""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedmoments.errors import DataWarning, InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.natural_order import natural_key, sorted_names
from fedmoments.samples.samples import Modality
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.splits.draws import Seed

__all__ = ["IMAGE_ENDINGS", "SOUND_ENDINGS", "SOURCES", "files_below", "load_folder"]

#: Files with these endings, in any case, are taken for images.
IMAGE_ENDINGS = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff"),
        *(".pbm", ".pgm", ".ppm", ".pnm", ".dcm", ".dicom"),
    }
)
#: The same, for sounds.
SOUND_ENDINGS = frozenset({".wav", ".wave"})
_ENDINGS: dict[Modality, frozenset[str]] = {"image": IMAGE_ENDINGS, "audio": SOUND_ENDINGS}
_OF_THE_SYSTEM = frozenset({"desktop.ini", "thumbs.db"})

_Folder = tuple[int, int]  # device and inode


def load_folder(
    argument: str, *, domains: bool = False, test_share: float = 0.2, seed: Seed = 0, strict: bool = False
) -> DataSet:
    """Load a folder of class folders.

    Parameters
    ----------
    argument
        The folder.
    domains
        Whether the class folders are in folders of domains.
    test_share, seed
        For holding out a test part, when there are no folders ``train`` and ``test``.
    strict
        Whether to stop at the first problem.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/10.jpg"):
    ...         Path(place, name).parent.mkdir(exist_ok=True)
    ...         Path(place, name).touch()
    ...     data = load_folder(place, test_share=0.5)
    >>> data.class_names, len(data.train), len(data.test)
    (('cat', 'dog'), 2, 2)
    """
    root = Path(argument).expanduser()
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: folder:PATH needs one, with a folder for each class")
    problems = Problems(strict=strict)
    parts = _parts(root, problems)
    if not domains:
        _notice_domains(root, parts["train"], problems)
    modality = _modality(parts["train"])
    rows = {name: _part(root, path, problems, modality, with_domains=domains) for name, path in parts.items()}
    if not rows["train"][1]:
        where = "images or sounds must be in PATH/CLASS/, or in PATH/DOMAIN/CLASS/"
        raise InputError(f"{root} holds no class folders: {where}")
    return assemble(
        f"folder:{argument}",
        rows["train"][0],
        rows["test"][0] if "test" in rows else None,
        modality,
        problems,
        test_share=test_share,
        seed=seed,
        class_names=sorted_names(rows["train"][1]),
    )


def _subfolders(root: Path) -> list[Path]:
    return [entry for entry in root.iterdir() if entry.is_dir()]


def _notice_domains(root: Path, part: Path, problems: Problems) -> None:
    """Note that what looks like classes may be domains: several folders that hold the same folders and no image."""
    folders = [folder for folder in _subfolders(part) if not folder.name.startswith(".")]
    inside = [{folder.name for folder in _subfolders(outer)} for outer in folders]
    is_same = min(len(folders), *map(len, inside), 2) > 1 and inside.count(inside[0]) == len(inside)
    if is_same and not any(map(_holds_images, folders)):
        sentence = (
            f"{', '.join(sorted_names({folder.name for folder in folders})[:4])} hold the same folders "
            f"({', '.join(sorted_names(inside[0])[:4])}): if the former are domains and the latter are classes, add "
            "--domains"
        )
        problems.add(_name(root, part) or str(root), sentence)
        warnings.warn(f"in {part}, {sentence}", DataWarning, stacklevel=2)  # now, not after hours of encoding


def _holds_images(folder: Path) -> bool:
    return any(entry.suffix.lower() in IMAGE_ENDINGS | SOUND_ENDINGS for entry in folder.iterdir())


def _modality(part: Path) -> Modality:
    """Say what most files below a folder are."""
    counts = Counter(path.suffix.lower() for _, _, names in os.walk(part) for path in map(Path, names))
    sounds, images = (sum(counts[ending] for ending in endings) for endings in (SOUND_ENDINGS, IMAGE_ENDINGS))
    return "audio" if sounds > images else "image"


def _parts(root: Path, problems: Problems) -> dict[str, Path]:
    """Return the folders of ``train`` and ``test`` where there are such; else all is to train on."""
    folders = {path.name: path for path in _folders(root, root, problems, tell_files=False)}
    if not ({"train", "test"} <= set(folders) or set(folders) == {"train"}):
        return {"train": root}
    parts: dict[str, Path] = {name: folders[name] for name in ("train", "test") if name in folders}
    for other in sorted_names(set(folders) - set(parts)):
        problems.add(other, "this folder beside 'train' and 'test' is not used")
    return parts


def _part(
    root: Path, part: Path, problems: Problems, modality: Modality, *, with_domains: bool
) -> tuple[Rows, set[str]]:
    """Return the rows of a part, and the names of all its class folders."""
    items: list[Path] = []
    rows, names = Rows(items), set[str]()
    above = {_identity(root), _identity(part)}
    for domain in _folders(root, part, problems) if with_domains else [part]:
        for folder in _folders(root, domain, problems):
            names.add(folder.name)
            for image in _files(root, folder, problems, above | {_identity(domain)}, modality):
                items.append(image)
                rows.labels.append(folder.name)
                rows.sources.append(_name(root, image))
                if with_domains:
                    rows.domains.append(domain.name)
    return rows, names


def _folders(root: Path, parent: Path, problems: Problems, *, tell_files: bool = True) -> Iterator[Path]:
    """Yield the folders in a folder, in natural order; files there are problems."""
    for entry in _entries(root, parent, problems):
        if entry.is_dir():
            yield entry
        elif tell_files:
            problems.add(_name(root, entry), "it is not in the folder of a class")


def files_below(folder: Path, problems: Problems, modality: Modality) -> Iterator[Path]:
    """Yield all images or sounds below a folder, however deep, in natural order; other files are problems."""
    return _files(folder, folder, problems, set(), modality)


def _files(root: Path, folder: Path, problems: Problems, seen: set[_Folder], modality: Modality) -> Iterator[Path]:
    """Yield the images or sounds below a folder, in natural order."""
    here = _identity(folder)
    if here in seen:
        problems.add(_name(root, folder), "it is a link to a folder that is read already")
        return
    seen.add(here)
    for entry in _entries(root, folder, problems):
        if entry.is_dir():
            yield from _files(root, entry, problems, seen, modality)
        elif entry.suffix.lower() not in _ENDINGS[modality]:
            what = "an image" if modality == "image" else "a sound"
            problems.add(_name(root, entry), f"a file that ends in '{entry.suffix}' is not taken for {what}")
        else:
            yield entry


def _entries(root: Path, folder: Path, problems: Problems) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError as error:
        problems.add(_name(root, folder), f"the folder cannot be read ({error.strerror})")
        return []
    shown = (name for name in names if not name.startswith(".") and name.lower() not in _OF_THE_SYSTEM)
    return [folder / name for name in sorted(shown, key=natural_key)]


def _identity(folder: Path) -> _Folder:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


SOURCES = (Source("folder", "PATH", "images, or sounds (WAV), in folders named after their classes", load_folder),)
