"""``hf:NAME_OR_PATH``: a data set of the Hugging Face hub, or one that ``save_to_disk`` wrote."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.columns import Columns, choose_columns
from fedmoments.samples.sources.items import text_cell
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.sources.stored_images import StoredImages, chosen_images, place_cell
from fedmoments.samples.sources.table import Record, read_rows
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_hub"]

#: Parts that may be the test part, best first; the hub's test parts are sometimes withheld.
_TEST_PARTS = ("test", "validation", "valid", "dev")


def load_hub(
    argument: str,
    *,
    config: str | None = None,
    train: str = "train",
    test: str | None = None,
    text: str | None = None,
    image: str | None = None,
    label: str | None = None,
    client: str | None = None,
    domain: str | None = None,
    group: str | None = None,
    test_share: float = 0.2,
    seed: Seed = 0,
    strict: bool = False,
) -> DataSet:
    """Load a data set with the package ``datasets``; images are read when they are encoded.

    Parameters
    ----------
    argument
        A name on the hub, or the folder that ``save_to_disk`` wrote.
    config
        Which configuration of a data set on the hub.
    train, test
        Names of the parts; ``test`` is the first there is of test, validation, valid and dev by default, and held out
        of the training part if there is none.
    text, image, label
        Columns; guessed from their types (``ClassLabel``, ``Image``) and names when not given.
    client, domain
        Columns of who holds a sample and where it is from, if there are.
    group
        Column of what must stay together, such as a patient.
    test_share, seed
        For holding out a test part.
    strict
        Whether to stop at the first problem.
    """
    library = require("datasets", "The data source 'hf'", "hub", "datasets")
    parts = _open(library, argument, config)
    test = _test_part(argument, parts, train, test)
    features = parts[train].features
    guesses = _guess(features, text=text, image=image, label=label)
    columns = choose_columns(f"hf:{argument}", list(features), **guesses, client=client, domain=domain, group=group)
    classes = getattr(features[columns.label], "names", None) or ()
    problems = Problems(strict=strict)
    rows = {part: _rows(library, parts[part], part, columns, problems) for part in dict.fromkeys((train, test)) if part}
    return assemble(
        f"hf:{argument}",
        rows[train],
        rows[test] if test else None,
        "image" if columns.is_image else "text",
        problems,
        test_share=test_share,
        seed=seed,
        class_names=classes,
    )


def _test_part(argument: str, parts: Mapping[str, Any], train: str, test: str | None) -> str | None:
    """Return the name of the test part, None without one; refuse parts that are not there."""
    if train not in parts:
        raise InputError(f"hf:{argument} has no part '{train}' to train on: its parts are {', '.join(parts)}")
    if test is not None and test not in parts:
        raise InputError(f"hf:{argument} has no part '{test}' to test on: its parts are {', '.join(parts)}")
    return test or next((name for name in _TEST_PARTS if name in parts and name != train), None)


def _open(library: Any, argument: str, config: str | None) -> Mapping[str, Any]:
    path = Path(argument).expanduser()
    try:
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            loaded = library.load_from_disk(str(path))
        else:
            loaded = library.load_dataset(argument, config)
    except (OSError, ValueError) as error:  # not found, no network, damaged, a script that is refused
        raise InputError(f"hf:{argument} cannot be loaded ({type(error).__name__}: {error})") from error
    return {"train": loaded} if isinstance(loaded, library.Dataset) else dict(loaded)


def _guess(
    features: Mapping[str, Any], *, text: str | None, image: str | None, label: str | None
) -> dict[str, str | None]:
    """Guess columns by type where exactly one has it; `choose_columns` guesses the rest by name."""

    def only(kind: str) -> str | None:
        names = [name for name, feature in features.items() if type(feature).__name__ == kind]
        return names[0] if len(names) == 1 else None

    label = label or only("ClassLabel")
    if text is None and image is None:
        image = only("Image")
    if text is None and image is None:
        strings = [
            name
            for name, feature in features.items()
            if getattr(feature, "dtype", "") in {"string", "large_string"} and name != label
        ]
        text = strings[0] if len(strings) == 1 else None
    return {"text": text, "image": image, "label": label}


def _rows(library: Any, part: Any, name: str, columns: Columns, problems: Problems) -> Rows:
    stored = part.cast_column(columns.item, library.Image(decode=False)) if columns.is_image else part
    cell = place_cell if columns.is_image else text_cell
    rows = read_rows(name, _records(part, columns), columns, problems, cell)["train"]
    if columns.is_image:
        images = StoredImages(lambda place: stored[place][columns.item], len(part))
        rows.items = chosen_images(images, rows.items)
    return rows


def _records(part: Any, columns: Columns) -> Iterator[Record]:
    values = {name: part[name][:] for name in columns.all if name != columns.item or not columns.is_image}
    names = getattr(part.features[columns.label], "names", None)
    if names:
        values[columns.label] = [
            names[label] if label is not None and 0 <= label < len(names) else None for label in values[columns.label]
        ]
    if columns.is_image:
        values[columns.item] = [True] * len(part)
    for row in zip(*values.values(), strict=True):
        yield dict(zip(values, row, strict=True))


SOURCES = (Source("hf", "NAME_OR_PATH", "a data set of the Hugging Face hub, or one saved to disk", load_hub),)
