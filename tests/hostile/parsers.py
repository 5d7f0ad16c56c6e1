"""Everything that is read from a file or a message of somebody else, fed with what somebody hostile would send.

Each entry of :data:`PARSERS` takes a random generator, makes one hostile input and reads it, as the product would.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.hostile.mutations import changed, changed_bytes, changed_tensors, changed_text

import fedmoments as fm
from fedmoments.core.classifier import load_bytes
from fedmoments.core.maps import Clip, RandomFourier, RandomProjection, from_description
from fedmoments.core.observations import Report, read_report
from fedmoments.core.observations.parts import Data
from fedmoments.core.statistics import load_statistics
from fedmoments.core.statistics.files import pack_statistics
from fedmoments.federation.keys.helper import make_helper, read_helper_card
from fedmoments.federation.keys.parties import make_client, read_card
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.terms import Terms
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.broadcast import KIND, Broadcast
from fedmoments.privacy.secure.cohort_draw import Roster
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.files import parse_toml

Rng = np.random.Generator
Read = Callable[[Rng], Any]
PARSERS: dict[str, Read] = {}


def parser(read: Read) -> Read:
    PARSERS[read.__name__] = read
    return read


def world() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 6)), np.arange(40) % 3


X, Y = world()
CLASSES = ("cat", "dog", "cow")


FINGERPRINT = Fingerprint("none", "none", Clip(4.0), CLASSES)


def terms(*moments: str, **agreed: Any) -> Terms:
    spec = fm.StatisticsSpec.of(*moments)
    privacy: dict[str, Any] = {"privacy": Agreed(**agreed)} if agreed else {}
    return Terms("pets", {"name": "identity", "options": {}}, FINGERPRINT, 6, spec, fm.FixedPoint(4.0, 1000), **privacy)


TERMS = [
    terms("scatter_sketch", "gram").to_json(),
    terms("gram", epsilon=2.0, clip=4.0).to_json(),
    terms("client_means", secure="two-phase", batch=4, helper="22" * 32).to_json(),
]
STATS = fm.Statistics.of(X, Y, fm.StatisticsSpec.of("class_grams"), n_classes=3)
HEADS = [fm.fit(name, {"a": (X, Y)}).to_bytes() for name in ("fedncm", "gh-nb", "gh-qda", "gh-dlr-qda")]
MAPS = [made.describe() for made in (RandomFourier(6, 8, 1.5, seed=3), RandomProjection(6, 4, seed=1), Clip(2.0))]


@parser
def terms_of_a_federation(rng: Rng) -> Any:
    read = Terms.from_json(changed_text(TERMS[rng.integers(len(TERMS))], rng))
    return read.id, read.agreement, read.context, read.privacy.mode, read.to_json()


@parser
def fingerprints(rng: Rng) -> Any:
    return Fingerprint.from_json(changed_text(FINGERPRINT.to_json(), rng)).digest


@parser
def feature_maps(rng: Rng) -> Any:
    return from_description(changed(MAPS[rng.integers(len(MAPS))], rng))


def _repacked(data: bytes, kind: str, rng: Rng) -> bytes:
    """Return a file whose arrays or header were changed and whose checksum is right again."""
    if rng.integers(4) == 0:
        return changed_bytes(data, rng)
    tensors, header = unpack_tensors(data, kind, "the file")
    if rng.integers(2):
        tensors = changed_tensors(tensors, rng)
    else:
        hostile = changed(header, rng)
        header = hostile if isinstance(hostile, dict) else header
    try:
        return pack_tensors(kind, tensors, header)
    except UnicodeEncodeError:  # half a surrogate pair cannot be written into a file
        return changed_bytes(data, rng)


@parser
def classifiers(rng: Rng) -> Any:
    classifier = load_bytes(_repacked(HEADS[rng.integers(len(HEADS))], "classifier", rng))
    return classifier.predict(np.zeros((2, 6)))


SAVED = pack_statistics(STATS, {"class_names": list(CLASSES)})


@parser
def statistics_files(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s")
        path.write_bytes(_repacked(SAVED, "statistics", rng))
        stats, _ = load_statistics(path)
        return stats.counts, stats.sums, stats.digest()


BROADCAST = Broadcast(
    3, np.arange(3), np.zeros((3, 6)), np.ones(3), 20, fm.FixedPoint(4.0, 1000)
).to_bytes()  # fmt: skip


@parser
def broadcasts(rng: Rng) -> Any:
    return Broadcast.from_bytes(_repacked(BROADCAST, KIND, rng)).digest


@parser
def requests_of_sums(rng: Rng) -> Any:
    request = SumRequest(Context("ab" * 32, 0, "cd" * 32), [], [(0, 5)])
    return SumRequest.from_bytes(changed_bytes(request.to_bytes(), rng))


@parser
def rosters(rng: Rng) -> Any:
    roster = Roster.of({"lab": "22" * 32, "clinic": "33" * 32})
    return Roster.from_bytes(changed_text(roster.to_bytes().decode(), rng).encode("utf-8", "surrogatepass")).digest


@parser
def receipts(rng: Rng) -> Any:
    receipt = Receipt("ab" * 32, "clinic", 1, "cd" * 32, 4, "ef" * 32, "joined", "2026-01-01T00:00:00Z")
    return Receipt.from_json(changed_text(receipt.to_json(), rng))


def _cards() -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return make_client(folder, "clinic").card.read_text(), make_helper(folder, "notary").card.read_text()


CARD, HELPER_CARD = _cards()


@parser
def cards(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "card")
        path.write_bytes(changed_text(CARD, rng).encode("utf-8", "surrogatepass"))
        return read_card(path)


@parser
def cards_of_helpers(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "card")
        path.write_bytes(changed_text(HELPER_CARD, rng).encode("utf-8", "surrogatepass"))
        return read_helper_card(path)


@parser
def settings_files(rng: Rng) -> Any:
    text = 'a = 1\n[b]\nc = ["x", 2.5]\nd = 2020-01-01\n'
    deep = ("a = " + "[" * 5000, "a." * 3000 + "b = 1", "a = " + "9" * 5000, "[" + "a." * 3000 + "b]")
    return parse_toml(
        deep[rng.integers(4)] if rng.integers(5) == 0 else changed_bytes(text.encode(), rng).decode("latin-1"), "it"
    )


REPORT = json.dumps(Report(data=Data("toy")).to_dict())


@parser
def results_files(rng: Rng) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.json")
        path.write_bytes(changed_text(REPORT, rng).encode("utf-8", "surrogatepass"))
        return read_report(path)
