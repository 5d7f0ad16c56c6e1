"""Tuned encoders as files, which ``--encoder tuned:FILE`` loads; see ``samples.encoders.families.tuned``."""

import os

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.tuned import write_tuned
from fedmoments.tuning.engine import AVERAGED, Arrays

__all__ = ["save_encoder"]

_PREFIX = "encoder/"


def save_encoder(path: str | os.PathLike[str], encoder: Encoder, arrays: Arrays) -> None:
    """Write the encoder that tuning has found; the head's arrays are left out.

    Parameters
    ----------
    path
        The file; it appears whole or not at all.
    encoder
        The encoder that was tuned.
    arrays
        Parameters as an engine takes them: ``encoder/…``, and ``averaged/encoder/…`` where running values are averaged.

    Raises
    ------
    InputError
        When there is nothing of an encoder among the arrays, or something of another one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> changed = {"encoder/conv1.bias": encoder.model.body.conv1.bias.numpy() + 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_encoder(Path(folder, "mine.safetensors"), encoder, changed)
    ...     tuned = load_encoder(f"tuned:{folder}/mine.safetensors", threads=1)
    >>> tuned.preprocessing == encoder.preprocessing, tuned.fingerprint == encoder.fingerprint
    (True, False)
    """
    names = {name: name.removeprefix(AVERAGED) for name in arrays}
    state = {bare.removeprefix(_PREFIX): arrays[name] for name, bare in names.items() if bare.startswith(_PREFIX)}
    if not state:
        raise InputError(
            f"nothing of the encoder '{encoder.name}' was tuned: no name of the {len(arrays)} begins with '{_PREFIX}' "
            "(stage lp trains the head alone)"
        )
    write_tuned(path, encoder, state)
