"""The terms of a federation on one machine: those of a study's first settings, behind the maps that were requested."""

from pathlib import Path
from typing import Any

from fedmoments.core.maps import FeatureMap
from fedmoments.core.tables import table_after
from fedmoments.errors import InputError
from fedmoments.federation.drawing_up import directions_after, draw_up_terms
from fedmoments.federation.results import source_of
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.feature_maps import chosen_map, stacked_map
from fedmoments.samples.raw_tables import is_draft
from fedmoments.samples.reading import choose_encoder
from fedmoments.settings.server import ServerSettings, TermsSettings
from fedmoments.settings.study import StudySettings

__all__ = ["local_terms"]


def local_terms(
    config: StudySettings,
    server: ServerSettings,
    data: DataSet,
    privacy: Agreed,
    *,
    after: Path | None,
    maps: TermsSettings,
) -> Terms:
    """Return the terms of a study's first settings."""
    dim = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
    encoder = choose_encoder(config, data.modality, dim)
    if after is None:
        feature_map = _map(config, maps, server.heads, encoder, data)
    elif config.projections or config.feature_map or maps.normalize or maps.fourier:
        raise InputError(
            "a second exchange is behind the map of the first: leave --map and --project out, and --normalize and "
            "--fourier, too"
        )
    else:
        with FederationStore.open(after) as store:
            feature_map = directions_after(store.terms, source_of(store).statistics)
    return draw_up_terms(
        config.data,
        config,
        encoder,
        data.class_names,
        server.heads,
        hyper=server.hyper,
        means_per_client=config.means_per_client[0],
        budget=config.budgets[0] if config.budgets else None,
        feature_map=feature_map,
        privacy=privacy,
        seed=config.seed,
        names=config.names,
    )


def _map(
    config: StudySettings,
    maps: TermsSettings,
    heads: tuple[str, ...],
    encoder: Encoder,
    data: DataSet,
) -> FeatureMap | None:
    """Return the public maps of a federation, one after the other; None where there is none."""
    shown: tuple[Any, ...] = (data.train.items, data.train.labels) if data.modality == "features" else ()
    table = data.table
    if table is not None and is_draft(config.table):  # as after a first exchange of all clients
        table = table_after(table, *shown, n_classes=len(data.class_names))
    words = [word for word in config.projections[:1] if word != "full"]
    if words and not words[0].isdigit():
        raise InputError(f"--project takes a number of dimensions, or full, not '{words[0]}'")
    return stacked_map(
        encoder.dim,
        first=chosen_map(config.feature_map, heads, encoder.name, *shown, table=table),
        normalize=maps.normalize,
        project=int(words[0]) if words else None,
        fourier=maps.fourier,
        bandwidth=maps.bandwidth,
        seed=config.seed,
    )
