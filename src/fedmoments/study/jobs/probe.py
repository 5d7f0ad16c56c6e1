"""Measure a tuned encoder by heads in closed form, compare them with the head that was trained, and keep the refits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedmoments
from fedmoments.core.classifier import Classifier, load
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations.codec import to_plain
from fedmoments.core.observations.parts import Data
from fedmoments.errors import InputError
from fedmoments.handover.model import encoder_of
from fedmoments.samples import Split
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.tuned import base_of as tuned_from
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.study import StudySettings
from fedmoments.study.checks import check_study
from fedmoments.study.jobs.encoding import Encoded, Progress, encode_data
from fedmoments.study.probing import ProbeResult, probe
from fedmoments.study.simulation.methods import all_names
from fedmoments.study.simulation.points import make_split

__all__ = ["ENCODER", "HEAD", "ProbeJob", "Tuned", "base_of", "find_tuned", "run_probe"]

#: Files in the folder of a tuned model: its encoder, where that was tuned, and its head.
ENCODER, HEAD = "encoder.safetensors", "head.safetensors"

_PREFIX = "tuned:"


@dataclass(frozen=True)
class Tuned:
    """Where a tuned model is.

    Parameters
    ----------
    encoder
        Name of its encoder: ``tuned:FILE``, or the one that a head was tuned behind; None where the head names it.
    head
        File of the head that was trained, or None.

    Examples
    --------
    >>> Tuned("tuned:mine.safetensors").was_encoder, Tuned("minilm", Path("head.safetensors")).was_encoder
    (True, False)
    """

    encoder: str | None = None
    head: Path | None = None

    @property
    def was_encoder(self) -> bool:
        """Whether the encoder was tuned, not only a head behind it."""
        return self.encoder is not None and self.encoder.startswith(_PREFIX)


@dataclass(frozen=True, eq=False)
class ProbeJob:
    """What a probe found.

    Parameters
    ----------
    result
        Accuracies, and the refitted heads.
    data
        What was measured, behind the encoder as it is now.
    base
        The encoder before; None where it was not tuned.
    head
        File of the trained head.
    split
        Who held the samples; None where any split gives the same.
    config, command
        What was asked for.
    files
        What was written.
    """

    result: ProbeResult
    data: Data
    base: Mapping[str, Any] | None
    head: Path | None
    split: Split | None
    config: StudySettings
    command: str | None
    files: list[Path]

    @property
    def document(self) -> dict[str, Any]:
        """Everything but the heads, ready for JSON."""
        return {
            "format": 1,
            "version": fedmoments.__version__,
            "command": self.command,
            "data": to_plain(self.data),
            "config": self.config.to_dict(),
            "probe": {
                "tuned": self.base is not None,
                "encoder": self.data.encoder,
                "base": self.base or self.data.encoder,
                "head": None if self.head is None else str(self.head),
                "split": self.split and {"scheme": self.split.scheme, "clients": self.split.n_clients},
                **self.result.to_dict(),
            },
            "files": [str(path) for path in self.files],
        }


def find_tuned(place: Path) -> Tuned:
    """Return what a folder of a tuned model holds, or the encoder that a file is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "head.safetensors").touch()
    ...     find_tuned(Path(folder)).encoder is None
    True
    """
    if place.is_file():
        beside = place.parent / HEAD
        return Tuned(f"{_PREFIX}{place.resolve()}", beside if beside.is_file() and beside != place else None)
    if not place.is_dir():
        raise InputError(f"{place} does not exist: name the folder of a tuned model, or an encoder file in it")
    encoder, head = place / ENCODER, place / HEAD
    if not encoder.is_file() and not head.is_file():
        raise InputError(
            f"{place} holds neither {ENCODER} nor {HEAD}: name the folder of one tuned model, as 'fedmoments tune' "
            "leaves it"
        )
    return Tuned(f"{_PREFIX}{encoder.resolve()}" if encoder.is_file() else None, head if head.is_file() else None)


def base_of(name: str, **run: Any) -> Encoder:
    """Return the encoder that a tuned one began with, preprocessing included.

    Parameters
    ----------
    name
        ``tuned:FILE``.
    run
        Device, threads, batch size, and what is trusted.
    """
    path = Path(name.removeprefix(_PREFIX)).expanduser()
    if not name.startswith(_PREFIX) or not path.is_file():
        raise InputError(f"the encoder '{name}' does not say what it was tuned from: name the other one as the base")
    return tuned_from(path, **run)


def run_probe(
    config: StudySettings,
    tuned: Tuned,
    *,
    base: str | None = None,
    dealt: bool = False,
    out: Path | None = None,
    command: str = "",
    cache_dir: Any = None,
    progress: Progress | None = None,
) -> ProbeJob:
    """Encode data before and after tuning, fit heads in closed form on both, and test them and the trained head.

    Parameters
    ----------
    config
        Data, how to run encoders, heads with hyper-parameters, split and seed; the first split and number of clients.
        Its encoder is not used.
    tuned
        What was tuned.
    base
        Name of the encoder to compare with; by default the one that the tuned encoder names. Where only a head was
        tuned, there is none, and all heads are tested on the same features.
    dealt
        Whether the split was requested. If not, it is made only for heads from client means.
    out
        Folder for the refitted heads, a classifier file each; nothing is written without one.
    command
        What the user typed.
    cache_dir
        Folder of the feature cache; the user's by default, False does without.
    progress
        Called while samples are encoded.
    """
    config = replace(config, seeds=1)
    check_study(config)
    softmax = load(tuned.head) if tuned.head else None
    after = _after(config, tuned, softmax, cache_dir, progress)
    before = _before(config, tuned, base, cache_dir, progress) if base or tuned.was_encoder else after
    split = _split(config, after, dealt=dealt)
    probed = probe(
        before.features,
        after.features,
        all_names(config.heads),
        split=split,
        softmax=softmax,
        hyper=config.hyper,
        seed=config.seed,
        memory_limit=config.memory_limit * 1e9,
    )
    refits = {name: _noted(made, after, config) for name, made in probed.refits.items()}
    files = _write(out, refits) if out else []
    before_it = None if after is before else before.describe().encoder
    probed = replace(probed, refits=refits)
    return ProbeJob(probed, after.describe(), before_it, tuned.head, split, config, command, files)


def _after(
    config: StudySettings, tuned: Tuned, softmax: Classifier | None, cache_dir: Any, progress: Progress | None
) -> Encoded:
    """Return features of the tuned encoder; where only a head was tuned, of the encoder that it was tuned behind."""
    if tuned.encoder is not None:
        return encode_data(replace(config, encoder=tuned.encoder), cache_dir=cache_dir, progress=progress)
    noted = softmax.info.get("encoder") if softmax is not None else None
    encoder: Encoder | None = None
    if softmax is not None and isinstance(noted, dict) and noted.get("name") != "identity":
        run: dict[str, Any] = {"runtime": config.runtime, "device": config.device, "threads": config.threads}
        encoder = encoder_of(softmax, trusted=config.trust, **run)
    return encode_data(config, cache_dir=cache_dir, progress=progress, encoder=encoder)


def _before(
    config: StudySettings, tuned: Tuned, base: str | None, cache_dir: Any, progress: Progress | None
) -> Encoded:
    if base is not None:
        return encode_data(replace(config, encoder=base), cache_dir=cache_dir, progress=progress)
    run = {"device": config.device, "threads": config.threads, "batch_size": config.batch_size}
    given = {name: value for name, value in run.items() if value is not None}
    encoder = base_of(tuned.encoder or "", trusted=config.trust, **given)
    return encode_data(config, cache_dir=cache_dir, progress=progress, encoder=encoder)


def _split(config: StudySettings, encoded: Encoded, *, dealt: bool) -> Split | None:
    """Return who holds what, where it was requested or a head depends on it."""
    heads = choose_heads(all_names(config.heads), config.hyper)
    if not dealt and not any(head.needs.keeps_clients_apart for head in heads.values()):
        return None
    scheme = config.splits[0]
    clients = config.clients[0] if config.clients else None if finds_clients(scheme) else CLIENTS
    return make_split(encoded.features, clients, scheme, config.seed)


def _noted(classifier: Classifier, encoded: Encoded, config: StudySettings) -> Classifier:
    """Return a refit that says which encoder it stands behind, so that it can be used for predictions."""
    about = encoded.describe().encoder
    return classifier.noting(encoder=about, fingerprint=encoded.measured_as().digest, data=config.data)


def _write(folder: Path, refits: dict[str, Classifier]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, classifier in refits.items():
        classifier.save(folder / f"{name}.safetensors")
    return [folder / f"{name}.safetensors" for name in refits]
