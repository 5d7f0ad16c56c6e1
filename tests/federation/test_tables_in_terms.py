"""Raw tables in a federation: a first exchange behind a draft, then everything behind its means and deviations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")
pytest.importorskip("click")

from click.testing import CliRunner
from tests.federation.living import Party, ask, enrol, held
from tests.raw_tables import clinic, write_clinic

from fedmoments.cli.app import app
from fedmoments.core.maps import Categories, Numbers, RandomFourier, TableMap, table_of
from fedmoments.errors import OwnDataError, in_full
from fedmoments.federation.audit import Audit
from fedmoments.federation.drawing_up import draw_up_terms
from fedmoments.federation.own_data import read_own
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.raw_tables import write_map
from fedmoments.settings.samples import EncoderChoice

DRAFT = TableMap(
    (Numbers("age", scale=128.0), Numbers("score", scale=2048.0), Categories("ward", ("west", "east", "north")))
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    write_map(tmp_path / "draft.json", DRAFT)

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def parties(tmp_path: Path, ledger: str) -> list[Party]:
    """Return two enrolled clinics with raw tables."""
    made = []
    for seed, name in enumerate(["north", "south"]):
        path = write_clinic(tmp_path / f"{name}.csv", 150, seed)
        own = {"label": "outcome", "group": "patient", "policy": {"min_count": 5}}
        made.append(Party(name, tmp_path / f"{name}-{ledger}", f"csv:{path}", own))
    enrol(tmp_path / ledger, *made)
    return made


def terms_of(tmp_path: Path, ledger: str) -> Terms:
    with FederationStore.open(tmp_path / ledger) as store:
        return store.terms


def first_exchange(run: Any, tmp_path: Path) -> None:
    run(
        "server",
        "create",
        "first",
        "--name",
        "first",
        "--table",
        "draft.json",
        "--classes",
        "ill,well",
        "--heads",
        "gh-nb",
    )
    for party in parties(tmp_path, "first"):
        ask(tmp_path / "first", party)


def test_two_exchanges_give_a_model_of_raw_tables(run: Any, tmp_path: Path) -> None:
    first_exchange(run, tmp_path)
    run("server", "create", "second", "--name", "second", "--table", "after", "--after", "first", "--heads", "gh-lda")
    table = table_of(terms_of(tmp_path, "second").map_or_none)
    assert table is not None
    age, score, ward = table.columns
    sums = held(tmp_path / "first")
    assert isinstance(score, Numbers)
    assert score.center == pytest.approx(2048 * sums.sums[:, 2].sum() / sums.n_samples)
    assert isinstance(ward, Categories)
    assert ward.other  # the attic, on which nobody agreed
    assert age.missing
    assert not score.missing
    assert terms_of(tmp_path, "second").classes == ("ill", "well")
    for party in parties(tmp_path, "second"):
        ask(tmp_path / "second", party)
    with FederationStore.open(tmp_path / "second") as store:
        (fitted,) = fit_heads(store, ["gh-lda"]).values()
    fresh: Any = clinic(300, 9)
    predicted = np.array(fitted.classifier.class_names)[fitted.classifier.predict(fresh)]
    assert (predicted == np.array(fresh["outcome"])).mean() > 0.9


def test_what_a_party_sends_is_what_it_measures_behind_the_table(run: Any, tmp_path: Path) -> None:
    first_exchange(run, tmp_path)
    terms = terms_of(tmp_path, "first")
    audit = ("audit", "--config", str(config(tmp_path, "north")), "--terms", "first.terms.json")
    shown = run(*audit).stdout
    assert "table: 9 columns, 7 of them counts of categories and gaps" in shown
    found = json.loads(run(*audit, "--json").stdout)
    before, after = (
        " ".join(finding["sentence"] for finding in found["contributions"][0][when]["findings"])
        for when in ("before", "after")
    )
    assert "how many samples of each class have each of 7 categories and gaps" in after
    assert "that somebody of a class has a rare category" in before  # the attic
    assert "rare category" not in after
    sent = held(tmp_path / "first")  # of both clinics, each of which hides its own
    for counts, n in zip(sent.sums[:, list(terms.map_outline.counted)].round().tolist(), sent.counts, strict=True):
        assert all(count in (0, n) or 5 <= count <= n - 5 for count in counts)
    assert terms.map_outline.counted == (1, 3, 4, 5, 6, 7, 8)
    assert not terms.map_outline.expands


def config(tmp_path: Path, name: str) -> Path:
    place = tmp_path / f"{name}.toml"
    (tmp_path / f"{name}-audit").mkdir(exist_ok=True)
    place.write_text(
        f'data = "csv:{tmp_path / name}.csv"\nlabel = "outcome"\ngroup = "patient"\nname = "{name}"\n'
        f'key_seed = "trial"\n'
        f'folder = "{tmp_path / name}-audit"\n'
    )
    return place


def test_random_features_behind_the_table_take_their_width_from_the_same_exchange(run: Any, tmp_path: Path) -> None:
    first_exchange(run, tmp_path)
    options = ("--table", "after", "--after", "first", "--heads", "fed3r-rf", "--fourier", "64")
    run("server", "create", "rf", "--name", "rf", *options)
    terms = terms_of(tmp_path, "rf")
    assert terms.map_or_none is not None
    assert isinstance(terms.map_or_none.maps[-1], RandomFourier)  # type: ignore[attr-defined]
    # three columns are the unknowns of a row, and 64 sums tell more than that
    assert (terms.map_outline.before, terms.map_outline.after, terms.map_outline.expands) == (3, 64, True)
    (one, _) = parties(tmp_path, "rf")
    assert "maps" in one.offer(terms).declined[0]["why"]


def test_a_table_passes_the_policy_on_maps_unless_only_linear_ones_are_allowed(run: Any, tmp_path: Path) -> None:
    first_exchange(run, tmp_path)
    terms = terms_of(tmp_path, "first")
    ClientPolicy().require(terms)
    with pytest.raises(Exception, match="allowed are linear maps"):
        ClientPolicy(maps="linear").require(terms)


def test_a_party_says_which_columns_may_be_read(run: Any, tmp_path: Path) -> None:
    hostile = TableMap((*DRAFT.columns, Categories("patient", tuple(f"p0-{place}" for place in range(40)))))
    write_map(tmp_path / "draft.json", hostile)
    run(
        "server", "create", "spy", "--name", "spy", "--table", "draft.json", "--classes", "ill,well", "--heads", "gh-nb"
    )
    (one, other) = parties(tmp_path, "spy")
    for party in (one, other):  # a column that says whose rows they are is never a feature
        with pytest.raises(OwnDataError) as refused:
            read_own(party.settings, terms_of(tmp_path, "spy"))
        assert "patient" not in str(refused.value)
        assert "no column 'patient' that may be a feature" in in_full(refused.value)
        assert party.offer(terms_of(tmp_path, "spy")).declined
    one.changes |= {"group": None, "features": "age,score,ward"}
    with pytest.raises(OwnDataError):
        read_own(one.settings, terms_of(tmp_path, "spy"))


def test_drafts_need_to_be_seen_somewhere_and_first_exchanges_to_be_of_a_table(run: Any, tmp_path: Path) -> None:
    common = ("--name", "x", "--classes", "ill,well")
    assert "give --data" in run("server", "create", "x", *common, "--table", "draft", code=2).stderr
    assert "--after LEDGER" in run("server", "create", "x", *common, "--table", "after", code=2).stderr
    run("server", "create", "plain", *common, "--encoder", "identity", "--dim", "3", "--heads", "gh-nb")
    said = run("server", "create", "x", *common, "--table", "after", "--after", "plain", code=2).stderr
    assert "behind its draft alone" in said
    write_clinic(tmp_path / "like.csv")
    run(
        "server", "create", "seen", "--name", "seen", "--data", "csv:like.csv", "--label", "outcome", "--table", "draft"
    )
    seen = table_of(terms_of(tmp_path, "seen").map_or_none)
    assert seen is not None
    assert "ward" in seen.names


def test_an_audit_counts_rare_categories_of_single_clients() -> None:
    X = DRAFT.code({"age": [40] * 12, "score": [1] * 12, "ward": ["west"] * 9 + ["attic"] * 2 + [None]})
    terms = draw_up_terms("t", EncoderChoice(), load_encoder("identity", dim=3), ["ill"], ["gh-nb"], feature_map=DRAFT)
    report = Audit.of([0] * 12, terms.spec, terms.dim, features=DRAFT(X), behind=terms.map_outline).after
    rare = next(finding for finding in report.findings if finding.kind == "rare")
    assert rare.samples == 3  # two in the attic, one without a ward
    assert "2 of these counts are of fewer than 5 samples" in rare.sentence
    assert rare.severity == "weak"
