"""The page of a federation: what happened in its rounds, and every trouble by name."""

from typing import Any

from fedmoments.core.observations import Outcome, Row, Setting
from fedmoments.pages import render


def results(**changes: Any) -> dict[str, Any]:
    refusal = {"node": 4, "client": "lab", "reason": "bad-signature", "sentence": "the key is <another>"}
    report = {
        "number": 1,
        "asked": [1, 2, 4],
        "accepted": 7,
        "refused": [refusal],
        "declined": [{"node": 2, "client": "ward", "why": "too few samples"}],
        "failures": [{"node": "1", "code": 2, "reason": "no disk", "kind": "query.contribute"}],
        "bytes": 123_456,
        "seconds": 2.5,
    }
    federation = {"id": "ab" * 32, "name": "pets", "state": "cd" * 32, "rounds": [report], "failures": []}
    row = Row("fedcof", Setting(7), "counts + client_means", {}, (Outcome(0, 0.9, 7, 0, 0, 0.1, coded_bytes=7000),))
    return {"rows": [row.to_dict()], "federation": {**federation, **changes}}


def test_rounds_and_troubles_are_told_and_escaped() -> None:
    page = render(results())
    assert "What happened" in page
    assert "Client lab was refused: the key is &lt;another&gt;" in page
    assert "Client ward declined: too few samples" in page
    assert "Node 1 failed: no disk" in page
    assert "123 kB" in page.replace("\u202f", " ").replace("\xa0", " ")
    assert "<another>" not in page


def test_many_troubles_are_cut_short_with_a_word() -> None:
    failures = [{"node": str(k), "reason": "gone"} for k in range(50)]
    page = render(results(rounds=[], failures=failures))
    assert page.count("did not evaluate: gone") == 20
    assert "… and 30 more" in page


def test_a_simulation_has_no_such_section_and_a_federation_no_frontier() -> None:
    simulation = {"rows": results()["rows"]}
    assert "What happened" not in render(simulation)
    assert "Accuracy for bytes" in render(simulation)
    assert "Accuracy for bytes" not in render(results())
