"""What a release leaves on disk, for later releases to open: a ledger, its parties and a helper after some days.

    python -m tests.data.write_files /srv/pets && tar -cJf tests/data/written-by-VERSION.tar.xz -C /srv/pets .

Run it once a release, from the top of the repository at its commit (paths of the folder stand in two settings files, so
let it be a neutral one). ``tests/federation/test_former_files.py`` opens every archive. The keys in it are good for
nothing else.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.federation.flower.secure_trials import SUMS, run
from tests.federation.living import Party, ask, enrol, new_ledger, write_features

import fedmoments as fm
from fedmoments.federation.deploy.local import prepare_local
from fedmoments.federation.enrolment.invitations import Invitations
from fedmoments.federation.enrolment.kit import Kit
from fedmoments.federation.keys import make_authority
from fedmoments.federation.outbox.answers import Answers
from fedmoments.federation.own_memory import forget
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings


def write_plain(folder: Path) -> dict[str, Any]:
    """Write a federation with a party that deleted samples, one under amended terms, one that left, one revoked."""
    folder.mkdir()
    ledger = folder / "fed.ledger"
    new_ledger(ledger, ("cat", "dog", "yak"), ("fedcof", "fed3r"))
    counts = {
        "clinic": {"cat": 9, "dog": 8, "yak": 7},
        "lab": {"cat": 6, "dog": 6, "emu": 8},
        "ward": {"cat": 9, "yak": 7},
        "old": {"dog": 9, "yak": 7},
    }
    parties = {
        name: Party(name, folder / name, str(write_features(folder / f"{name}.npz", own, seed)))
        for seed, (name, own) in enumerate(counts.items())
    }
    clinic, lab = parties["clinic"], parties["lab"]
    lab.changes |= {"ignore_unknown": True}
    enrol(ledger, *parties.values())
    ask(ledger, clinic)
    forget(clinic.settings, [f"train sample {place}" for place in range(3)])
    for one in parties.values():
        ask(ledger, one)
    with FederationStore.open(ledger) as store:
        _invite(folder, store)
        Answers(clinic.folder).give("clinic", "q1", store.terms.id, 2, lambda spent: b"former")
        store.snapshot(folder / "copy.db")
        store.leave("ward")
        store.revoke("old")
        amended = store.amend(("emu",))
    lab.changes |= {"federation": amended.id, "accepted": amended.digest}
    ask(ledger, lab)
    for name in ("clinic", "lab"):
        own = replace(parties[name].settings, folder=name, data=f"npz:{name}.npz")
        (folder / f"{name}.toml").write_text(own.to_toml())
    for name in ("ward", "old"):
        shutil.rmtree(folder / name)
        (folder / f"{name}.npz").unlink()
    return facts_of(ledger, folder / "head.safetensors")


def _invite(folder: Path, store: FederationStore) -> None:
    with Invitations(store.path, store.terms.id) as invitations:
        token, _ = invitations.invite("guest", days=14)
    root = make_authority(folder / "authority", ["localhost"]).root.read_text()
    shutil.rmtree(folder / "authority")
    kit = Kit("guest", "localhost:9092", "localhost:9093", root, store.terms, token, "2999-01-01T00:00:00+00:00")
    (folder / "guest.kit").write_bytes(kit.to_bytes())


def write_secure(folder: Path) -> dict[str, Any]:
    """Write a federation whose batch was added up with a helper."""
    rng = np.random.default_rng(7)
    y = np.arange(390) % 3
    X = (rng.normal(size=(390, 6)) + 3.0 * np.eye(3, 6)[y]).astype(np.float32)
    data = folder.parent / "toy.npz"
    np.savez(data, x_train=X[:300], y_train=y[:300], x_test=X[300:], y_test=y[300:])
    server = ServerSettings("ledger", heads=("fed3r", "fedncm"), deadline=20.0)
    config = StudySettings(data=f"npz:{data}", clients=(6,), splits=("iid",))
    plan = prepare_local(folder, config, server, nodes=2, engine="memory", policy={"min_count": 1}, privacy=SUMS)
    run(plan)
    return facts_of(plan.folder / "ledger.db", folder.parent / "secure.safetensors")


def facts_of(ledger: Path, head: Path) -> dict[str, Any]:
    """Return what a ledger says, and fit a head of it."""
    with FederationStore.open(ledger) as store:
        assert store.verify().whole
        fitted = fm.fit("fed3r", store.statistics(), class_names=list(store.terms.classes))
        fitted.save(head)
        return {
            "federation": store.terms.id,
            "terms": store.terms.digest,
            "statistics": store.statistics().digest(),
            "in": {each.client: [each.version, each.digest] for each in store.status().contributors},
            "log": [[entry.event, entry.hash] for entry in store.audit()],
            "head": fitted.digest(),
        }


def main(folder: Path) -> None:
    """Write all of it into a folder that is not there yet."""
    folder.mkdir()
    facts = {
        "version": fm.__version__,
        "plain": write_plain(folder / "plain"),
        "secure": write_secure(folder / "secure"),
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
