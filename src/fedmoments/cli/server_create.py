"""``fedmoments server create``: draw up the terms of a federation, and make its ledger."""

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.agreements import agreed_from
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table, readable_bytes
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.cli.texts import listed
from fedmoments.errors import FileFormatError, InputError
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.samples import Columns, EncoderChoice, Running, SampleSource
from fedmoments.settings.server import TermsSettings

__all__ = ["CREATE", "class_names", "create", "show_terms"]

#: The word for the table of a first exchange.
AFTER = "after"
CREATE = "fedmoments server create trial.ledger --name trial --data runs/demo/digits.npz --heads fedcof,fed3r"
SECURE = "fedmoments server create secure.ledger --name secure --data runs/demo/digits.npz --heads fed3r --secure sums"
EXAMPLE = example("fedmoments keys helper keys --name notary", f"{SECURE} --helper keys/notary.helper.card", CREATE)


@command("create", EXAMPLE)
def create(
    ledger: Annotated[Path, positional(help="The ledger to make; LEDGER.terms.json is written beside it.")],
    settings: Annotated[TermsSettings, Taken(without=("privacy.helper",), tables={"privacy": (Agreed,)}, file=True)],
    *,
    helper: Annotated[
        Path | None,
        typed(help="With --secure: the helper's card, of 'fedmoments keys helper'.", metavar="CARD", group="Privacy"),
    ] = None,
    json: Json = False,
) -> None:
    """Write the terms of a federation and create its ledger. Terms are public; their hash is the federation's id.

    Clients read the terms before they take part: which moments are requested, of which features and classes, and what
    protects them. With --epsilon, features are scaled to length 1, or clipped to --clip, which sets --norm-bound.
    """
    from fedmoments.federation.drawing_up import usual_heads
    from fedmoments.federation.keys.helper import read_helper_card
    from fedmoments.federation.store import FederationStore
    from fedmoments.federation.store.showing import make_signing_key
    from fedmoments.files import write_whole

    _require_sense(settings, helper)
    card = None if helper is None else read_helper_card(existing_file(helper))
    privacy = agreed_from({**settings.privacy, **({} if card is None else {"helper": card.key})})
    place = writable_place(ledger)
    public = writable_place(ledger.with_name(f"{ledger.name}.terms.json"))
    heads = settings.heads or usual_heads(privacy, means_per_client=settings.means_per_client, rows=settings.rows)
    settings = replace(settings, heads=heads)
    terms = replace(_drawn_up(settings, privacy), server=make_signing_key(place).public.hex)
    with FederationStore.create(place, terms) as store:
        store.note("created for", heads=list(settings.heads))
        if card is not None:
            store.note("helper", name=card.name, key=card.key, node_key=card.node_key)
    write_whole(public, f"{terms.to_json()}\n".encode())
    if json:
        print_json({"ledger": str(ledger), "terms_file": str(public), "id": terms.id, **terms.to_dict()})
        return
    show_terms(terms)
    print_line(f"wrote {ledger} and {public}, which every client reads before it takes part")


def _require_sense(settings: TermsSettings, helper: Path | None) -> None:
    if not settings.name:
        raise InputError("the federation needs a name: give --name NAME")
    if settings.after and settings.feature_map and "fed3r-rf" not in settings.heads and not settings.fourier:
        raise InputError("--after takes the first exchange's map and then its directions: leave --map out")
    if "secure" in settings.privacy and helper is None:
        raise InputError("secure sums need a second server: --helper CARD, which 'fedmoments keys helper' made there")


def _drawn_up(settings: TermsSettings, privacy: Agreed) -> Any:
    """Return the terms, with what data like the clients' tell of classes and features."""
    from fedmoments.core.statistics import FixedPoint
    from fedmoments.federation.drawing_up import draw_up_terms

    names, modality, dim, shown, table = _features_of(settings)
    encoder = _encoder(settings, modality, dim)
    return draw_up_terms(
        settings.name,
        settings,
        encoder,
        names,
        settings.heads,
        means_per_client=settings.means_per_client,
        fixed_point=FixedPoint(settings.norm_bound, settings.max_samples),
        rows=settings.rows,
        budget=settings.budget,
        feature_map=_map(settings, encoder, shown, table),
        privacy=privacy,
        seed=settings.seed,
        names=settings.names,
    )


def _encoder(settings: TermsSettings, modality: str, dim: int | None) -> Any:
    """Return the encoder that the terms name; one that is known as it stands is not loaded, and need not be here."""
    from fedmoments.samples.encoders.known import known_encoder
    from fedmoments.samples.reading import DEFAULTS, choose_encoder

    plain = settings.pooling is None and not settings.names  # names must be encoded
    known = known_encoder(settings.encoder or DEFAULTS[modality], settings.size) if plain else None
    return known or choose_encoder(Running().with_encoder(**_fields_of(settings, EncoderChoice)), modality, dim)


def _map(settings: TermsSettings, encoder: Any, shown: tuple[Any, ...], table: Any) -> Any:
    """Return the map that all parties measure behind: as it was typed, or as a first exchange says."""
    from fedmoments.federation.drawing_up import bandwidth_after, directions_after, table_bandwidth_after
    from fedmoments.samples.feature_maps import chosen_map, stacked_map

    n_features = settings.fourier or _fourier_features(settings.heads)
    if settings.after and not n_features and table is None:
        return directions_after(*_first_exchange(settings.after))
    first = chosen_map(settings.feature_map, settings.heads, encoder.name, *shown, table=table)
    stacked = partial(
        stacked_map, encoder.dim, first=first, normalize=settings.normalize, project=settings.project,
        seed=settings.seed,
    )  # fmt: skip
    if not n_features or settings.bandwidth is not None:
        return stacked(fourier=n_features, bandwidth=settings.bandwidth)
    if settings.table == AFTER:
        width = table_bandwidth_after(*_first_exchange(settings.after))
    elif settings.after:
        width = bandwidth_after(*_first_exchange(settings.after), stacked(fourier=None, bandwidth=None))
    else:
        raise InputError("Fourier features need a kernel width: --bandwidth S, or --after LEDGER of a first exchange")
    return stacked(fourier=n_features, bandwidth=width)


def _fourier_features(heads: tuple[str, ...]) -> int | None:
    """Return how many Fourier features the heads are fitted behind; None: no head is."""
    from fedmoments.core.heads.choosing import choose_heads
    from fedmoments.core.heads.ridge import FourierRidge

    mapped = [head for head in choose_heads(heads, {}).values() if isinstance(head, FourierRidge)]
    return mapped[0].n_features if mapped else None


def _first_exchange(ledger: str) -> tuple[Any, Any]:
    """Return terms and statistics of a first exchange."""
    from fedmoments.federation.results import source_of
    from fedmoments.federation.store import FederationStore

    with FederationStore.open(existing_file(Path(ledger))) as store:
        return store.terms, source_of(store).statistics


def _table_of(settings: TermsSettings, data: Any) -> Any:
    """Return what codes clients' raw tables: of data like theirs, of a file, or of a first exchange; None without."""
    from fedmoments.core.maps import table_of
    from fedmoments.federation.drawing_up import table_after_exchange
    from fedmoments.samples.raw_tables import is_draft, read_map

    if settings.table is None:
        return None
    if settings.table == AFTER:
        if not settings.after:
            raise InputError("--table after takes the table of a first exchange: say of which ledger, --after LEDGER")
        return table_after_exchange(*_first_exchange(settings.after))
    if data is not None:
        return data.table
    if is_draft(settings.table):
        raise InputError("a draft is seen in data like the clients': give --data, or a file of 'fedmoments table'")
    table = table_of(read_map(Path(settings.table).expanduser()))
    if table is None:
        raise InputError(f"{settings.table} holds no table: 'fedmoments table' writes one")
    return table


def _features_of(settings: TermsSettings) -> tuple[tuple[str, ...], str, int | None, tuple[Any, ...], Any]:
    """Return class names, kind of samples, dimension, features with labels where these are given, and the table."""
    names = class_names(settings.classes) if settings.classes else ()
    table = None if settings.data and settings.table != AFTER else _table_of(settings, None)
    if table is not None:
        names = names or _names_after(settings)
        settings = replace(settings, table=None, encoder="identity", dim=len(table.names))
    if settings.data:
        return _features_in_data(settings, names, table)
    dim = _given_dim(settings)
    return _named(names), "features", dim, (), table


def _names_after(settings: TermsSettings) -> tuple[str, ...]:
    """Return the class names of a first exchange; none without one."""
    return _first_exchange(settings.after)[0].classes if settings.after else ()


def _features_in_data(
    settings: TermsSettings, names: tuple[str, ...], table: Any
) -> tuple[tuple[str, ...], str, int | None, tuple[Any, ...], Any]:
    """Return the same of data like the clients'; names and a table that were given go before those of the data."""
    from fedmoments.samples.reading import read_data

    data = read_data(SampleSource(**_fields_of(settings, Columns)))
    names, table = _named(names or data.class_names), table or data.table
    if data.modality != "features":
        return names, data.modality, settings.dim, (), table
    X: Any = data.train.items
    return names, data.modality, X.shape[1], (X, data.train.labels), table


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise InputError("the classes are missing: give --classes FILE_OR_LIST, in order, or --data DATA that has them")
    return names


def _given_dim(settings: TermsSettings) -> int | None:
    """Return the number of dimensions where no data say it; None where the encoder does."""
    if settings.encoder is None:
        raise InputError(
            "the clients' encoder is missing: give --encoder NAME, or --data DATA to take its kind's default"
        )
    if settings.encoder == "identity" and settings.dim is None:
        raise InputError("the number of dimensions is missing: give --dim D, or --data DATA that holds features")
    return settings.dim


def _fields_of(settings: TermsSettings, part: Any) -> dict[str, Any]:
    """Return the settings that a smaller settings class has, too."""
    return {declared.name: getattr(settings, declared.name) for declared in fields(part)}


def class_names(text: str, *, alone: bool = False) -> tuple[str, ...]:
    """Return class names from a file, one a line, or from a list with commas.

    Parameters
    ----------
    text
        As it was typed.
    alone
        Whether one name without a comma will do; what looks like a file that is not there does not.

    Examples
    --------
    >>> class_names("cat, dog"), class_names("yak", alone=True)
    (('cat', 'dog'), ('yak',))
    """
    path = Path(text)
    if path.is_file():
        try:
            return tuple(line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip())
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{path} is not in UTF-8 (byte {error.start}): save it as UTF-8") from error
    if "," not in text and not (alone and text.strip() and not {".", "/", "\\"} & set(text)):
        raise InputError(f"--classes takes a file with one class a line, or names with commas; '{text}' is neither")
    return tuple(listed(text, str, "--classes"))


def show_terms(terms: Any) -> None:
    """Print the terms of a federation, readably."""
    from fedmoments.core.observations import plain_moments

    options = ", ".join(f"{key} {value}" for key, value in terms.encoder["options"].items())
    shown = {
        "federation": terms.name,
        "id": terms.id,
        **({"amended": f"{len(terms.amended)} times; the current terms are {terms.digest}"} if terms.amended else {}),
        "encoder": " ".join(filter(None, [terms.encoder["name"], options])),
        "fingerprint": terms.fingerprint.digest,
        "feature map": terms.map_outline.text,
        "dimension": f"{terms.dim:,}",
        "classes": f"{len(terms.classes):,}: {', '.join(terms.classes[:8])}{' …' if len(terms.classes) > 8 else ''}",
        "each client sends": f"{plain_moments(str(terms.spec))} ({terms.spec})",
        **({"class names": "count as one sample each"} if terms.names else {}),
        "means of a class": str(terms.spec.means_per_client),
        "means are encoded as": terms.rows,
        "largest norm": f"{terms.fixed_point.norm_bound:g}",
        "most samples": f"{terms.fixed_point.max_samples:,}",
        "largest contribution": readable_bytes(terms.max_bytes),
        "log signed by": terms.server or "a key that clients note when they first connect",
        **terms.privacy.mode.rows(),
    }
    print_table(["what", "value"], [[what, value] for what, value in shown.items()])
