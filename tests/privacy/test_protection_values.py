"""What protects a federation is checked before anything is measured: a mistyped rule must not be a missing one."""

from dataclasses import fields
from typing import Any

import pytest

from fedmoments.errors import InputError, PrivacyError, UnknownNameError
from fedmoments.privacy.protection import Agreed, Protection
from fedmoments.privacy.sweep import read_protections

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"secure": "sum"}, "did you mean 'sums'"),
    ({"unit": "patient"}, "unknown value of 'unit'"),
    ({"neighbours": "swap"}, "unknown value of 'neighbours'"),
    ({"batch": 1}, "batch must be a whole number of 2 or more"),
    ({"batch": True}, "batch must be"),
    ({"contributors": 0}, "contributors must be"),
    ({"contributors": 5}, "leave contributors out"),
    ({"contributors": 5}, "leave contributors out"),
    ({"secure": "sums", "epsilon": 1.0, "contributors": 5}, "Leave contributors out"),
    ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
    ({"epsilon": float("nan")}, "epsilon must be"),
    ({"epsilon": "2"}, "epsilon must be"),
    ({"epsilon": True}, "epsilon must be"),
    ({"delta": 0.0}, "delta is the chance that the promise fails"),
    ({"delta": 0.9}, "at most 0.01"),
    ({"secure": "cohorts", "cohort": 2, "batch": 3}, "can never be a batch of 3"),
    ({"secure": "cohorts", "epsilon": 1.0}, "noise cannot protect client means"),
    ({"secure": "two-phase", "epsilon": 1.0}, "noise cannot protect client means"),
    ({"epsilon": 1.0, "unit": "client"}, "needs a public bound"),
    ({"epsilon": 1.0, "client_norm": 3.0}, "needs a public bound"),
]


@pytest.mark.parametrize(("given", "why"), WRONG)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Agreed(**given)


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'epsilon'"):
        Agreed.from_dict({"epsilom": 1.0})


def test_the_table_of_what_was_agreed_on_says_all_that_differs() -> None:
    given = Agreed(secure="sums", batch=7, helper="ab" * 32, epsilon=2.0, neighbours="replace", clip=3.0, releases=2)
    assert Agreed.from_dict(given.to_dict()) == given
    assert Agreed().to_dict() == {}
    assert set(Agreed(secure="sums").to_dict()) == {"secure"}


def test_filters_and_secure_sums_exclude_each_other() -> None:
    for rule in ({"robust": "mad"}, {"max_samples": 10}):
        with pytest.raises(InputError, match="sees sums only"):
            Protection(Agreed(secure="sums"), **rule)


def test_words_differ_where_protections_do() -> None:
    some = [
        Protection(),
        Protection(min_count=5),
        Protection(obfuscation="laplace:0.5"),
        Protection(robust="mad"),
        Protection(Agreed(epsilon=1.0)),
        Protection(Agreed(epsilon=1.0, neighbours="replace")),
        Protection(Agreed(secure="sums")),
    ]
    assert len({protection.description for protection in some}) == len(some)
    assert [each.acts_after_measuring for each in some] == [False, False, True, True, True, True, True]


def test_epsilon_and_obfuscation_are_swept() -> None:
    found = read_protections({"epsilon": [0.5, 2, float("inf")], "clip": 2.0})
    assert [(each.agreed.epsilon, each.agreed.clip) for each in found] == [(0.5, 2.0), (2.0, 2.0), (None, None)]
    blurred = read_protections({"obfuscation": ["none", "laplace:0.5", "uniform:0.5"], "min_count": 3})
    assert [(each.obfuscation, each.min_count) for each in blurred] == [
        (None, 3),
        ("laplace:0.5", 3),
        ("uniform:0.5", 3),
    ]


@pytest.mark.parametrize(
    "rule", [{"min_count": 5}, {"obfuscation": "laplace:0.5"}, {"max_samples": 10}, {"robust": "mad"}]
)
def test_rules_that_look_at_the_data_are_refused_beside_noise(rule: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError, match="exclude each other"):
        read_protections({"epsilon": 1.0, **rule})


def test_rules_of_a_noise_that_is_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="clip of the privacy say how noise is drawn, but there is none"):
        read_protections({"clip": 2.0})


def test_every_rule_but_the_helper_can_be_simulated() -> None:
    known = {field.name for field in fields(Agreed)} | {field.name for field in fields(Protection)}
    for name in known - {"agreed", "helper"}:
        with pytest.raises((InputError, UnknownNameError)) as error:
            read_protections({name: object()})
        assert "unknown rule" not in str(error.value)


@pytest.mark.parametrize("table", [{"batch": 5}, {"cohort": 5}, {"contributors": 3}, {"secure": "sums", "cohort": 5}])
def test_rules_of_masks_that_are_not_there_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"belong to secure sums|give secure = 'cohorts'"):
        read_protections(table)
    assert read_protections({**table, "secure": "cohorts"})[0].agreed.secure == "cohorts"
