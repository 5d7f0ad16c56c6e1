"""The report says of the advised head what ``fedmoments audit`` says of every client."""

import numpy as np
import pytest

from fedmoments.core.heads import make_head
from fedmoments.federation.audit import asked_for
from fedmoments.federation.policy import ClientPolicy
from fedmoments.pages import render
from fedmoments.privacy.leaks import TITLES
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job


@pytest.mark.parametrize("head", ["fedcof", "gh-qda"])
def test_the_report_adds_up_what_an_audit_says_of_every_client(features_file: str, head: str) -> None:
    config = StudySettings(data=features_file, heads=(head,), clients=(6,), seeds=1, splits=("dirichlet:0.1",))
    outcome = run_job(config)
    [detail] = outcome.report.details
    holders = outcome.report.holders
    assert holders is not None
    with np.load(features_file.removeprefix("npz:")) as arrays:
        dim = arrays["x_train"].shape[1]
    expected: dict[str, list[int]] = {}
    for client in range(6):
        mine = holders.cells[holders.cells[:, 0] == client]
        labels = np.repeat(mine[:, 1], mine[:, 2])
        for finding in asked_for(labels, make_head(head).needs, dim, ClientPolicy()).findings:
            line = expected.setdefault(f"{finding.severity}: {TITLES[finding.kind]}", [0, 0])
            line[0] += 1
            line[1] += finding.samples
    assert {f"{line.severity}: {line.text}": [line.clients, line.samples] for line in detail.audit} == expected
    assert len({line.severity for line in detail.audit}) > 1, "a split this uneven exposes something"
    page = render(outcome.document)
    assert f"What a contribution for <b>{head}</b> reveals" in page


def test_nothing_is_said_of_what_no_server_reads(features_file: str) -> None:
    config = StudySettings(data=features_file, heads=("fedncm",), clients=(6,), seeds=1, privacy={"secure": "sums"})
    outcome = run_job(config)
    assert outcome.report.details[0].audit == ()
    assert "What a contribution for" not in render(outcome.document)
