"""``fedmoments costs`` prices heads on scatter sketches by their budget."""

import json
from typing import Any

FEDERATION = ("--dim", "512", "--classes", "10", "--clients", "100", "--present", "500")


def priced(run: Any, *arguments: str) -> dict[str, float]:
    found = json.loads(run("costs", *arguments, *FEDERATION, "--json").stdout)
    return {row["method"]: row["up_bytes_per_upload"] for row in found["methods"]}


def test_sketches_cost_what_their_budget_allows(run: Any) -> None:
    usual = priced(run)
    assert {"sketch", "lda-sketch", "fedcof"} <= set(usual)
    assert usual["fedcof"] == 10240
    assert 9216 < usual["sketch"] == usual["lda-sketch"] <= 10240
    assert 4608 < priced(run, "sketch", "--budget", "means/2")["sketch"] <= 5120
    assert priced(run, "sketch", "--budget", "50KB")["sketch"] <= 50_000
    assert priced(run, "sketch", "--means-per-client", "2")["sketch"] == usual["sketch"]


def test_a_small_budget_holds_behind_a_projection(run: Any) -> None:
    refused = run("costs", "sketch", "--budget", "means/8", *FEDERATION, code=2).stderr
    assert "cannot hold 5 means in 512 dimensions" in refused
    assert priced(run, "sketch", "--budget", "means/8", "--map-dimension", "240")["sketch"] <= 1280
