"""``fedmoments server create``: draw up the terms of a federation, and make its ledger."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.agreements import Epsilon, HelperCard, Releases, agreed_from, privacy_rows
from fedmoments.cli.options import (
    Domains,
    Encoder,
    ImageColumn,
    Json,
    LabelColumn,
    Payload,
    Pooling,
    Size,
    TextColumn,
    existing_file,
    listed,
    writable_place,
)
from fedmoments.cli.output import print_json, print_line, print_table, readable_bytes
from fedmoments.cli.privacy_options import (
    Batch,
    ClientNorm,
    ClipNorm,
    Cohort,
    Contributors,
    Delta,
    Neighbours,
    NoiseShares,
    Secure,
    Unit,
)
from fedmoments.errors import FileFormatError, InputError

__all__ = ["create", "show_terms"]


def create(
    ledger: Annotated[Path, typer.Argument(help="The ledger to make; LEDGER.terms.json is written beside it.")],
    *,
    name: Annotated[str, typer.Option(help="What people call the federation.")],
    heads: Annotated[
        str, typer.Option(help="Clients are asked for the least that serves these heads; separated by commas.")
    ] = "fedcof",
    encoder: Encoder = None,
    size: Size = None,
    pooling: Pooling = None,
    classes: Annotated[
        str | None, typer.Option(help="File with one class a line, or names separated by commas, in order.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Take class names, and the dimension of features, from data like the clients'.")
    ] = None,
    text: TextColumn = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    domains: Domains = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of features, for the encoder 'identity'.")] = None,
    means: Annotated[int, typer.Option(help="Means that a client sends of each class, if a head needs any.")] = 1,
    budget: Payload = None,
    norm_bound: Annotated[float, typer.Option(help="Largest norm of a sample's features.")] = 1024.0,
    max_samples: Annotated[int, typer.Option(help="Most samples in the whole federation.")] = 2**24,
    rows: Annotated[str, typer.Option(help="Type of means: int64, float32, float16, bfloat16 or int8.")] = "int64",
    seed: Annotated[int, typer.Option(help="Public; deals samples to several means of a class.")] = 0,
    secure: Secure = None,
    helper: HelperCard = None,
    batch: Batch = None,
    cohort: Cohort = None,
    contributors: Contributors = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    neighbours: Neighbours = None,
    clip: ClipNorm = None,
    client_norm: ClientNorm = None,
    noise_shares: NoiseShares = None,
    releases: Releases = None,
    json: Json = False,
) -> None:
    """Draw up the terms of a federation and make its ledger. The terms are public; their hash is the federation's id.

    Every client reads them before it takes part: which moments it is asked for, of which features and classes, and what
    protects it. With --epsilon features are scaled to length 1, or clipped to --clip, and --norm-bound follows.
    """
    from fedmoments.deploy.helper_keys import read_helper_card
    from fedmoments.federation.store import FederationStore
    from fedmoments.files import write_whole
    from fedmoments.jobs.config import JobConfig
    from fedmoments.jobs.encoding import choose_encoder, read_data
    from fedmoments.jobs.terms import draw_up_terms
    from fedmoments.statistics import FixedPoint

    if secure is not None and helper is None:
        raise InputError("secure sums need a second server: --helper CARD, which 'fedmoments keys helper' made there")
    typed: dict[str, Any] = {"secure": secure, "batch": batch, "cohort": cohort, "contributors": contributors}
    typed |= {"epsilon": epsilon, "delta": delta, "unit": unit, "neighbours": neighbours, "clip": clip}
    typed |= {"client_norm": client_norm, "budget": noise_shares, "releases": releases}
    card = None if helper is None else read_helper_card(existing_file(helper))
    privacy = agreed_from({**typed, "helper": None if card is None else card.key})
    place = writable_place(ledger)
    public = writable_place(ledger.with_name(f"{ledger.name}.terms.json"))
    chosen = listed(heads, str, "--heads")
    names = _classes(classes) if classes else ()
    given = {"text": text, "image": image, "label": label, "domains": domains, "size": size, "pooling": pooling}
    job = JobConfig(data=data or "digits", encoder=encoder, seed=seed, **given)  # type: ignore[arg-type]
    modality = "features"
    if data:
        found = read_data(job)
        names, modality = names or found.class_names, found.modality
        dim = found.train.items.shape[1] if modality == "features" else dim  # type: ignore[union-attr]
    elif encoder is None:
        raise InputError("say which encoder all clients use: --encoder NAME, or --data DATA to take its kind's default")
    elif encoder == "identity" and dim is None:
        raise InputError("say how many dimensions the features have: --dim D, or --data DATA that holds features")
    if not names:
        raise InputError("say which classes there are, in order: --classes FILE_OR_LIST, or --data DATA that has them")
    terms = draw_up_terms(
        name,
        job,
        choose_encoder(job, modality, dim),
        names,
        chosen,
        means_per_client=means,
        fixed_point=FixedPoint(norm_bound, max_samples),
        rows=rows,
        budget=budget,
        privacy=privacy,
    )
    with FederationStore.create(place, terms) as store:
        store.note("created for", heads=list(chosen))
        if card is not None:
            store.note("helper", name=card.name, key=card.key, node_key=card.node_key)
    write_whole(public, f"{terms.to_json()}\n".encode())
    if json:
        print_json({"ledger": str(ledger), "terms_file": str(public), "id": terms.id, **terms.to_dict()})
        return
    show_terms(terms)
    print_line(f"wrote {ledger} and {public}, which every client reads before it takes part")


def _classes(text: str) -> tuple[str, ...]:
    """Return class names from a file, one a line, or from a list with commas."""
    path = Path(text)
    if path.is_file():
        try:
            return tuple(line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip())
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{path} is not in UTF-8 (byte {error.start}): save it as UTF-8") from error
    if "," not in text:
        raise InputError(f"--classes takes a file with one class a line, or names with commas; '{text}' is neither")
    return tuple(listed(text, str, "--classes"))


def show_terms(terms: Any) -> None:
    """Print the terms of a federation, readably."""
    options = ", ".join(f"{key} {value}" for key, value in terms.encoder["options"].items())
    shown = {
        "federation": terms.name,
        "id": terms.id,
        "encoder": " ".join(filter(None, [terms.encoder["name"], options])),
        "fingerprint": terms.fingerprint.digest,
        "dimension": f"{terms.dim:,}",
        "classes": f"{len(terms.classes):,}: {', '.join(terms.classes[:8])}{' …' if len(terms.classes) > 8 else ''}",
        "each client sends": str(terms.spec),
        "means of a class": str(terms.spec.means_per_client),
        "means travel as": terms.rows,
        "largest norm": f"{terms.fixed_point.norm_bound:g}",
        "most samples": f"{terms.fixed_point.max_samples:,}",
        "largest contribution": readable_bytes(terms.max_bytes),
        **privacy_rows(terms),
    }
    print_table(["what", "value"], [[what, value] for what, value in shown.items()])
