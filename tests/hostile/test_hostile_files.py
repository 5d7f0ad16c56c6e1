"""Hostile files and messages are answered with our errors, never with those of numbers, lists, texts or memory."""

import ast
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.hostile import databases
from tests.hostile.parsers import HEADS, PARSERS, SAVED, TERMS

import fedmoments
from fedmoments.core.classifier import load_bytes
from fedmoments.core.statistics.files import pack_statistics, unpack_statistics
from fedmoments.errors import FedMomentsError, FileFormatError, reading
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.settings.files import parse_toml


@pytest.mark.parametrize("name", PARSERS)
def test_what_was_changed_is_read_or_refused(name: str) -> None:
    refused = 0
    for seed in range(40 if PARSERS[name].__module__ == databases.__name__ else 150):
        try:
            PARSERS[name](np.random.default_rng([seed, 3]))
        except FedMomentsError:
            refused += 1
    assert refused > 10  # not everything is harmless


def test_what_nobody_changed_is_used(tmp_path: Path) -> None:
    """Else all that the changed ones are refused for might be the trial itself."""
    room, rng = databases.laid_out(tmp_path), np.random.default_rng(0)
    decided = {"ward": "out"}
    with FederationStore.restore(
        room / "snap", room / "again", journal=room / "ledger.journal", departed=decided
    ) as store:
        databases.use(store, rng)


@pytest.mark.parametrize(
    "change",
    ["SET version = 0", "SET version = 2", "SET version = 'x'", "SET client = 'w4rd'", "SET seq = 3", "DELETE"],
)
def test_a_departure_that_was_changed_lets_nobody_back(tmp_path: Path, change: str) -> None:
    """One flipped bit makes version 1 version 0, and what the client sent before it left would be taken in again."""
    room = databases.laid_out(tmp_path)
    with closing(sqlite3.connect(room / "ledger")) as connection:
        query = "DELETE FROM departures" if change == "DELETE" else f"UPDATE departures {change}"
        connection.execute(query)
        connection.commit()
    with FederationStore.open(room / "ledger") as store:
        with pytest.raises(FedMomentsError, match="the ledger is damaged"):
            store.submit(databases.world()["sent"])
        assert [party.client for party in store.status().contributors] == ["clinic", "lab"]


@pytest.mark.parametrize("field", ["max_samples", "norm_bound", "dim", "seed", "max_bytes", "means_per_client"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e308, 10**400, True, "5", [5], None, -(10**30)])
def test_terms_hold_numbers_that_can_be_computed_with(field: str, value: object) -> None:
    with pytest.raises(FileFormatError, match="not terms of a federation"):
        Terms.from_json(json.dumps(json.loads(TERMS[0]) | {field: value}))


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_settings_that_exhaust_the_reader_are_refused(text: str) -> None:
    with pytest.raises(FileFormatError, match="the file is not TOML"):
        parse_toml(text, "the file")


def test_a_classifier_whose_arrays_do_not_fit_is_refused_when_it_is_read() -> None:
    for data in HEADS:
        tensors, header = unpack_tensors(data, "classifier", "it")
        for name in set(tensors) - {"present"}:
            for wrong in (tensors[name][..., :-1].copy(), tensors[name].astype(bool)):
                with pytest.raises(FileFormatError, match="does not hold a valid classifier"):
                    load_bytes(pack_tensors("classifier", {**tensors, name: wrong}, header))
        for field, value in (("class_names", [1, 2, 3]), ("info", []), ("feature_map", {"kind": []})):
            with pytest.raises(FileFormatError):
                load_bytes(pack_tensors("classifier", tensors, {**header, field: value}))


@pytest.mark.parametrize("classes", [2**40, 3.0, True])
def test_statistics_of_more_classes_than_there_is_memory_are_refused(classes: object) -> None:
    tensors, header = unpack_tensors(SAVED, "statistics", "it")
    data = pack_tensors("statistics", tensors, {**header, "n_classes": classes})
    with pytest.raises(FileFormatError, match="valid statistics"):
        unpack_statistics(data, "the file")
    assert pack_statistics(unpack_statistics(SAVED, "it"))


def test_our_own_refusals_pass_as_they_are() -> None:
    with pytest.raises(FileFormatError, match=r"^said before$"), reading("it is wrong"):
        raise FileFormatError("said before")
    with pytest.raises(FileFormatError, match=r"^it is wrong: "), reading("it is wrong"):
        raise OverflowError("too large")


def test_no_module_that_reads_what_arrives_unpickles() -> None:
    """Nothing is unpickled or compiled where files and messages are read; ``study`` has workers on one machine."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    found = []
    files = Path(fedmoments.__file__).parent.rglob("*.py")
    for file in sorted(file for file in files if "study" not in file.parts):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                found += [f"{file}: {name}" for name in names if name.partition(".")[0] in forbidden]
            if isinstance(node, ast.Call):
                called, options = ast.unparse(node.func), {option.arg: option.value for option in node.keywords}
                loads = called in ("np.load", "numpy.load", "torch.load")
                safe = {"np.load": ("allow_pickle", False), "torch.load": ("weights_only", True)}.get(called)
                value = options.get(safe[0]) if safe else None
                if called in ("eval", "exec", "compile", "joblib.load", "yaml.load", "__import__") or (
                    loads and not (safe and isinstance(value, ast.Constant) and value.value is safe[1])
                ):
                    found.append(f"{file}:{node.lineno}: {called}")
    assert found == []
