"""Personalisation without training at one client: its own classifier, from a file that the server broadcast."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, load
from fedmoments.core.heads import Head, make_head
from fedmoments.core.maps import FeatureMap, from_description
from fedmoments.core.statistics import Statistics, load_statistics
from fedmoments.errors import FileFormatError, InputError, reading
from fedmoments.handover.model import encoder_of
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.features import Samples
from fedmoments.samples.reading import choose_encoder, read_data
from fedmoments.samples.samples import Samples as DataSamples
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs.encoding import Progress
from fedmoments.study.simulation import evaluate
from fedmoments.tuning.blending import Blend, blend, means_of, read_beta
from fedmoments.tuning.personal import mask_to_labels, weigh_by_shares

__all__ = ["Broadcast", "Personal", "personalise", "read_broadcast"]


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What a server hands to its clients: a classifier, or merged statistics.

    Parameters
    ----------
    path
        The file.
    classifier, stats
        One of them.
    class_names
        C names, or none.
    feature_map
        Behind which statistics were measured; a classifier applies its own.
    """

    path: Path
    classifier: Classifier | None = None
    stats: Statistics | None = None
    class_names: tuple[str, ...] = ()
    feature_map: FeatureMap | None = None

    @property
    def n_classes(self) -> int:
        """C."""
        held = self.classifier or self.stats
        return held.n_classes if held is not None else 0


@dataclass(frozen=True, eq=False)
class Personal:
    """A client's own classifier, and how it was made.

    Parameters
    ----------
    classifier
        To be saved.
    document
        What is told of it, ready for JSON.
    """

    classifier: Classifier
    document: dict[str, Any]


def read_broadcast(path: Path) -> Broadcast:
    """Read a classifier file or a statistics file, whichever it is."""
    kind = _kind(path)
    if kind == "classifier":
        made = load(path)
        return Broadcast(path, classifier=made, class_names=made.class_names)
    if kind != "statistics":
        raise FileFormatError(
            f"{path} holds {kind!r}, but a classifier ('fedmoments fit') or merged statistics ('fedmoments merge') are "
            "what a client's own classifier is made from"
        )
    stats, notes = load_statistics(path)
    described = notes.get("feature_map")
    with reading(f"{path} holds notes that no statistics have"):
        made_map = from_description(described) if described else None
        names = tuple(str(name) for name in notes.get("class_names") or ())
        return Broadcast(path, stats=stats, class_names=names, feature_map=made_map)


def personalise(
    config: StudySettings,
    path: Path,
    *,
    beta: float | str | None = None,
    head: str | None = None,
    own_labels: bool = True,
    shares: bool = False,
    newcomer: bool = False,
    hyper: Mapping[str, Any] | None = None,
    cache_dir: Any = None,
    progress: Progress | None = None,
) -> Personal:
    """Make a client's own classifier from what the server broadcast and the client's samples, which stay here.

    Parameters
    ----------
    config
        The client's data and encoder. Training samples personalise; test samples, if there are any, tell how it was
        before and after.
    path
        A classifier, which is restricted to the client's labels; or, for a blend, merged statistics or a nearest-mean
        classifier of the Euclidean rule.
    beta
        Weight of the client's own class means, from 0 to 1, or ``auto``; None does not blend.
    head, hyper
        What is fitted from blended statistics, ``fedncm`` by default, and its hyper-parameters.
    own_labels
        Whether only labels that the client has are predicted.
    shares
        Whether these are predicted as often as the client has them. Of a classifier that weighs classes by their shares
        in the federation (LDA with priors of the data), those stay unless statistics were broadcast, which tell them.
    newcomer
        Whether the client's samples are not among the federation's.
    cache_dir
        Folder of the feature cache; the user's by default, False does without.
    progress
        Called while samples are encoded.
    """
    source = read_broadcast(path)
    solver = _solver(source, head, hyper or {})
    _require_sense(source, beta, head, own_labels=own_labels, shares=shares)
    data = read_data(config)
    encoder = _encoder(config, source, data)

    def say(done: int, total: int) -> None:
        if progress:
            progress(done, total, "encoding samples")

    how: dict[str, Any] = {"cache_dir": cache_dir, "readers": config.readers, "progress": say, "strict": config.strict}
    train, test = (_own(source, part, encoder, how) for part in (data.train, data.test))
    blended = None if beta is None else _blended(source, train, beta, newcomer=newcomer)
    before = _global(source, solver)
    personal = before if blended is None else _fitted(blended, solver, before)
    if shares:
        personal = weigh_by_shares(personal, train.X, train.y, totals=_weighed_by(source, solver))
    elif own_labels:
        personal = mask_to_labels(personal, train.y.tolist())
    notes = {} if isinstance(personal.info.get("encoder"), dict) else {"encoder": _about(config, encoder)}
    personal = personal.noting(**notes, **_origin(source, head, solver))
    return Personal(personal, _told(source, train, test, (before, personal), blended))


def _solver(source: Broadcast, head: str | None, hyper: Mapping[str, Any]) -> Head | None:
    """Return the head that is fitted from what was broadcast; None where a classifier was and none is requested."""
    return None if head is None and source.stats is None else make_head(head or "fedncm", **hyper)


def _weighed_by(source: Broadcast, solver: Head | None) -> NDArray[np.int64] | None:
    """Return the counts whose shares the federation's scores hold already, as far as they were broadcast."""
    return source.stats.counts if source.stats is not None and getattr(solver, "priors", None) == "data" else None


def _kind(path: Path) -> str:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            envelope = json.loads((file.metadata() or {}).get("fedmoments", "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a valid fedmoments file ({error})") from error
    return str(envelope.get("kind")) if isinstance(envelope, dict) else "something else"


def _require_sense(
    source: Broadcast, beta: float | str | None, head: str | None, *, own_labels: bool, shares: bool
) -> None:
    """Refuse what would do nothing, or what was not broadcast."""
    if beta is not None:
        read_beta(beta)
    if shares and not own_labels:
        raise InputError(
            "labels that a client does not have have no share: weigh by shares, or predict all labels, not both"
        )
    if beta is None and not own_labels:
        raise InputError("nothing would be personal: blend class means (beta), or keep to the client's own labels")
    if source.classifier is not None and head is not None:
        raise InputError(
            f"{source.path} is a classifier, which is not fitted again: a head is for statistics; leave it out"
        )


def _encoder(config: StudySettings, source: Broadcast, data: DataSet) -> Encoder:
    """Return the encoder that the broadcast was made behind, as far as it says so."""
    if data.modality == "features":
        return choose_encoder(config, data.modality, data.train.items.shape[1])  # type: ignore[union-attr]
    noted = source.classifier.info.get("encoder") if source.classifier is not None else None
    if source.classifier is not None and isinstance(noted, dict) and noted.get("name") != "identity":
        run: dict[str, Any] = {"runtime": config.runtime, "device": config.device, "threads": config.threads}
        return encoder_of(source.classifier, config.encoder, trusted=config.trust, **run)
    return choose_encoder(config, data.modality)


def _own(source: Broadcast, part: DataSamples, encoder: Encoder, how: dict[str, Any]) -> Samples:
    """Return features and labels of a part, labels as the federation counts them."""
    if not len(part):
        return Samples(np.zeros((0, encoder.dim)), np.zeros(0, np.int64))
    table = _label_table(source, part.class_names, np.unique(part.labels))
    encoded = encode_samples(encoder, part, **how)
    return Samples(encoded.features, table[encoded.labels])


def _label_table(source: Broadcast, mine: Sequence[str], held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the federation's label of every own class; names decide, or the order where the federation has none."""
    numbers = tuple(str(label) for label in range(source.n_classes))
    names = source.class_names or numbers
    if (names, len(mine)) == (numbers, source.n_classes):
        return np.arange(len(mine), dtype=np.int64)
    places = {name: label for label, name in enumerate(names)}
    unknown = [mine[label] for label in held if mine[label] not in places]
    if unknown:
        listed = ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
        raise InputError(
            f"the data hold classes that {source.path} does not have: {', '.join(unknown[:5])}; its classes are "
            f"{listed}: rename or leave out those samples"
        )
    return np.array([places.get(name, -1) for name in mine], np.int64)


def _blended(source: Broadcast, train: Samples, beta: float | str, *, newcomer: bool) -> Blend:
    if source.stats is not None:
        X = source.feature_map(train.X) if source.feature_map else train.X
        return blend(source.stats, X, train.y, beta=beta, included=not newcomer)
    made = _global(source, None)
    X = made.feature_map(train.X) if made.feature_map else train.X
    return blend(means_of(made), X, train.y, beta=beta)


def _global(source: Broadcast, solver: Head | None) -> Classifier:
    """Return the federation's own classifier."""
    if source.classifier is not None:
        return source.classifier
    if source.stats is None or solver is None:
        raise InputError(f"{source.path} holds neither a classifier nor statistics with a head to fit from them")
    fitted = solver.fit(source.stats).mapped(source.feature_map)
    return fitted.named(source.class_names) if source.class_names else fitted


def _fitted(blended: Blend, solver: Head | None, before: Classifier) -> Classifier:
    """Return the head on blended means, under the names and behind the map of the federation's own."""
    made = solver or make_head("fedncm", metric="euclidean")
    fitted = blended.fit(made)
    return fitted.mapped(before.feature_map).named(before.class_names).noting(**{**before.info, **fitted.info})


def _origin(source: Broadcast, head: str | None, solver: Head | None) -> dict[str, Any]:
    notes: dict[str, Any] = {"broadcast": source.path.name}
    if solver is not None:
        notes |= {"head": head or "fedncm", "settings": solver.settings()}
    return notes


def _about(config: StudySettings, encoder: Encoder) -> dict[str, Any]:
    options = {name: getattr(config, name) for name in ("size", "pooling") if getattr(config, name) is not None}
    return encoder.note(options)


def _told(
    source: Broadcast, train: Samples, test: Samples, pair: tuple[Classifier, Classifier], blended: Blend | None
) -> dict[str, Any]:
    before, after = pair
    labels = np.unique(train.y)
    lost = [after.class_names[label] for label in labels if not before.present[label]]
    accuracies = [evaluate(head, test).accuracy if len(test) else None for head in pair]
    notes = after.info.get("blend") if blended is not None else None
    return {
        "broadcast": str(source.path),
        "samples": len(train),
        "labels": len(labels),
        "classes": after.n_classes,
        "predicts": [after.class_names[label] for label in np.flatnonzero(after.present)],
        "unknown": lost,
        "blend": notes,
        "shares": bool(after.info.get("own_shares")),
        "tests": len(test),
        "before": accuracies[0],
        "after": accuracies[1],
        "digest": after.digest(),
    }
