"""``fedmoments encode``: any data source → features file. Runs at the client."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_problems, progress_bar, readable_bytes
from fedmoments.cli.places import writable_place
from fedmoments.errors import InputError
from fedmoments.settings.samples import Encoding, SampleSource

__all__ = ["encode", "encoded_source"]

EXAMPLE = example("fedmoments encode digits --encoder squeezenet-1.1 --out digits.npz")
#: What to do with data that come in one part, unless a share is named.
HELP = {
    "data": "What to encode: folder:PATH, csv:PATH, hf:NAME …",
    "test_share": "Share to hold out as x_test; data in one part are all for training unless this is given.",
    "seed": "Seed that chooses this share.",
}
ASK = "nothing to encode: give folder:PATH, csv:PATH or another source"


@command("encode", EXAMPLE)
def encode(
    source: Annotated[SampleSource, Taken(argument="data", help=HELP, ask=ASK)],
    encoding: Annotated[Encoding, Taken()],
    *,
    out: Annotated[Path, typed("--out", "-o", help="Features file (.npz) to write.", common=1)],
    json: Json = False,
) -> None:
    """Encode samples into a features file; 'measure', 'evaluate' and 'simulate' then need no samples."""
    from fedmoments.samples.features import save_features

    place = writable_place(out)
    if place.suffix != ".npz":
        raise InputError(f"a features file ends in .npz, by which other commands know it: write to {place}.npz")
    parts, encoder, note = encoded_source(source, encoding)
    save_features(place, parts, note)
    problems = dict.fromkeys(problem for part in parts.values() for problem in part.problems)
    sizes = {name: len(part) for name, part in parts.items()}
    if json:
        unread = [str(problem) for problem in problems]
        size = place.stat().st_size
        print_json(
            {
                "out": str(place),
                "bytes": size,
                "encoder": note,
                "dim": encoder.dim,
                "samples": sizes,
                "problems": unread,
            }
        )
        return
    counts = " and ".join(f"{size:,} to {'train on' if name == 'train' else name}" for name, size in sizes.items())
    print_line(f"{counts}, encoded by {encoder.name}: d = {encoder.dim}")
    print_problems(list(problems), "all with --json")
    print_line(f"wrote {place} ({readable_bytes(place.stat().st_size)}): it is as private as the samples")


def encoded_source(source: SampleSource, encoding: Encoding) -> tuple[Any, Any, dict[str, Any] | None]:
    """Return the encoded parts of a source, the encoder, and its note, which features that are given do not have.

    Data in one part are all to train on. Raw tables give features behind their map.
    """
    from fedmoments.samples.raw_tables import is_draft
    from fedmoments.samples.reading import choose_encoder, encode_parts, read_data

    if is_draft(source.table):
        raise InputError(
            "features of a raw table are those behind the map that all parties agreed on: give --table a file that "
            "'fedmoments table --after' wrote"
        )
    data = read_data(replace(source, test_share=source.test_share or 0.0))
    given = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
    encoder = choose_encoder(encoding, data.modality, given)
    with progress_bar("encoding") as move:
        parts = encode_parts(
            data, encoder, move, cache_dir=encoding.cache, readers=encoding.readers, batch_size=encoding.batch_size,
            strict=source.strict,
        )  # fmt: skip
    if data.table is not None:
        parts = {name: replace(part, features=_behind(data.table, part.features)) for name, part in parts.items()}
    options = {name: getattr(encoding, name) for name in ("size", "pooling") if getattr(encoding, name) is not None}
    return parts, encoder, None if encoder.name == "identity" else encoder.note(options)


def _behind(table: Any, codes: Any) -> Any:
    """Return the features of coded rows (n, columns), in float32 like those of any encoder."""
    import numpy as np

    return table(codes).astype(np.float32)
