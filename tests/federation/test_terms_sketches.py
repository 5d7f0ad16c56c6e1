"""The plan of scatter sketches is part of the terms, and so of a federation's id."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmoments.core.maps import Directions
from fedmoments.core.statistics import SketchPlan, StatisticsSpec
from fedmoments.errors import FileFormatError, InputError, PolicyError, PrivacyError
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.fingerprint import Fingerprint

#: Id of the terms below without a sketch, as they were before there were any.
BEFORE = "3ad728c0133d7a3f6619730b37f3bcb6c927ef82efb582e17269d0cf2ed317fa"


def terms(*moments: str, sketch: SketchPlan | None = None, **more: Any) -> Terms:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    spec = StatisticsSpec.of(*moments, sketch=sketch)
    return Terms("pets", {"name": "identity", "options": {}}, fingerprint, 24, spec, nonce="fixed", **more)


def test_terms_without_sketches_have_the_id_that_they_always_had() -> None:
    plain = terms("client_means")
    assert "sketch" not in plain.to_dict()
    assert plain.id == BEFORE
    assert Terms.from_json(plain.to_json()) == plain


PLANS = (
    SketchPlan("means"),
    SketchPlan("means*2"),
    SketchPlan("50KB"),
    SketchPlan("means", share=0.125),
    SketchPlan("means", spare=9),
    SketchPlan(None, 3),
    SketchPlan(None, 4),
    SketchPlan(None, 3, "float16"),
    SketchPlan("means", rows="class"),
)


def test_law_every_field_of_the_plan_changes_the_id_and_is_read_again() -> None:
    made = [terms("scatter_sketch", sketch=plan) for plan in PLANS]
    assert len({each.id for each in made}) == len(made)
    for each, plan in zip(made, PLANS, strict=True):
        again = Terms.from_json(each.to_json())
        assert (again, again.id, again.spec.sketch) == (each, each.id, plan.settled(2))
        assert again.agreement == each.agreement


def test_a_plan_that_is_not_given_is_the_default_one_and_stands_in_the_terms() -> None:
    made = terms("scatter_sketch")
    plan = {"budget": "means", "rank": None, "code": "int8", "share": 0.25, "spare": 0, "rows": "pooled"}
    assert made.to_dict()["sketch"] == plan
    assert made.id == terms("scatter_sketch", sketch=SketchPlan()).id
    assert (made.rows, terms("scatter_sketch", sketch=SketchPlan(None, 3)).rows) == ("budget", "int64")


def test_no_more_directions_are_asked_for_than_classes_differ_in() -> None:
    for k in (1, 2):
        basis = Directions.of(np.eye(24, k))
        fingerprint = Fingerprint("none", "none", basis, ("cat", "dog"))
        fields = ("pets", {"name": "identity", "options": {}}, fingerprint, k, StatisticsSpec.of("class_grams"))
        if k < 2:
            made = Terms(*fields)
            assert Terms.from_json(made.to_json()) == made
            ClientPolicy(moments=("sums", "class_grams")).require(made)
            with pytest.raises(PolicyError, match="moments: the server asks for"):
                ClientPolicy(moments=("sums", "client_means")).require(made)
        else:
            with pytest.raises(InputError, match="2 classes differ in at most 1 directions, but the feature map"):
                Terms(*fields)


def test_rows_that_contradict_the_budget_are_refused() -> None:
    with pytest.raises(InputError, match="means travel in the code that it leaves them, but 'float16'"):
        terms("scatter_sketch", rows="float16")
    with pytest.raises(InputError, match="'budget' only beside scatter sketches"):
        terms("client_means", rows="budget")
    assert terms("scatter_sketch", sketch=SketchPlan(None, 3), rows="int8").agreement.rows == "int8"
    with pytest.raises(InputError, match="cannot hold 1 means in 24 dimensions"):
        terms("scatter_sketch", sketch=SketchPlan("means/8"))
    with pytest.raises(InputError, match="counts one mean a class"):
        replace(terms("scatter_sketch"), spec=StatisticsSpec.of("scatter_sketch", means_per_client=2))


@pytest.mark.parametrize("plan", [SketchPlan(), SketchPlan(None, 3)], ids=str)
def test_terms_that_hide_single_contributions_and_ask_for_sketches_are_refused(plan: SketchPlan) -> None:
    for secure in ("sums", "two-phase", "cohorts"):
        with pytest.raises(PrivacyError, match=f"scatter sketches and secure {secure} exclude each other"):
            terms("scatter_sketch", sketch=plan, privacy=Agreed(secure=secure, helper="ab" * 32))
    with pytest.raises(PrivacyError, match="scatter sketches and an epsilon of 2 exclude each other"):
        terms("scatter_sketch", sketch=plan, privacy=Agreed(epsilon=2.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": "much"}, "a budget is means, gram"),
        ({"budget": None}, "either a budget or a rank"),
        ({"rank": 3}, "either a budget or a rank"),
        ({"budget": None, "rank": 2.5}, "the rank of scatter sketches must not be 2.5"),
        ({"budget": None, "rank": True}, "must not be True"),
        ({"budget": None, "rank": -1}, "0 or more"),
        ({"budget": 50}, "the budget of scatter sketches must not be 50"),
        ({"code": "int2"}, "one of float64, float32"),
        ({"code": 8}, "the code of scatter sketches must not be 8"),
        ({"share": 2.0}, "from 0 to 1"),
        ({"share": "half"}, "the share of scatter sketches must not be 'half'"),
        ({"more": 1}, "the fields budget, rank, code, share, spare, rows and no others"),
    ],
)
def test_plans_that_make_no_sense_are_no_terms(change: dict[str, Any], words: str) -> None:
    value = json.loads(terms("scatter_sketch").to_json())
    value["sketch"] |= change
    with pytest.raises(FileFormatError, match=words):
        Terms.from_json(json.dumps(value))


def test_a_plan_stands_where_sketches_do_and_nowhere_else() -> None:
    value = json.loads(terms("scatter_sketch").to_json())
    plan = value.pop("sketch")
    with pytest.raises(FileFormatError, match="lack the plan of their size"):
        Terms.from_json(json.dumps(value))
    with pytest.raises(FileFormatError, match="has a meaning only with the moment 'scatter_sketch'"):
        Terms.from_json(json.dumps({**json.loads(terms("gram").to_json()), "sketch": plan}))
    with pytest.raises(FileFormatError, match="the fields budget"):
        Terms.from_json(json.dumps({**value, "sketch": None}))
