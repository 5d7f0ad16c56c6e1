"""Laws of a client's policy: no rule changes nothing, twice is once, and nothing below the minimum is ever measured."""

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import MOMENTS, FixedPoint
from fedmoments.errors import InputError, PolicyError, UnknownNameError, in_full
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.small_classes import merge_rows
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.policy import SMALL_CLASSES
from fedmoments.wire import Withheld

C = 6
ALL = StatisticsSpec.of(*MOMENTS)
LABELS = st.lists(st.integers(0, C - 1), max_size=60)


@st.composite
def policies(draw: st.DrawFn) -> ClientPolicy:
    least = draw(st.integers(1, 8))
    most = draw(st.none() | st.integers(least, 30))
    small = draw(st.sampled_from(SMALL_CLASSES))
    told = draw(st.booleans())
    return ClientPolicy(min_count=least, max_per_class=most, report_withheld=told, small_classes=small)


def terms_of(spec: StatisticsSpec) -> Terms:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    return Terms("pets", {"name": "identity", "options": {}}, fingerprint, 3, spec)


def measured(labels: list[int] | np.ndarray[Any, Any], shares: int, policy: ClientPolicy, seed: int = 0) -> Statistics:
    X = np.random.default_rng(7).normal(size=(len(labels), 3))
    spec = StatisticsSpec(ALL.moments, shares)
    found = Statistics.of(X, np.asarray(labels, np.int64), spec, n_classes=C, seed=seed)
    return merge_rows(found, policy.min_count) if policy.merges else found


@given(LABELS, st.integers(1, 9))
def test_a_policy_without_rules_changes_nothing(labels: list[int], shares: int) -> None:
    mask, withheld = ClientPolicy(min_count=1).select(labels, shares)
    assert mask.shape == (len(labels),)
    assert mask.all()
    assert withheld == Withheld()


@given(policies(), LABELS, st.integers(1, 9))
def test_twice_is_once(policy: ClientPolicy, labels: list[int], shares: int) -> None:
    mask, _ = policy.select(labels, shares)
    again, withheld = policy.select(np.array(labels, int)[mask], shares)
    assert again.all()
    assert withheld == Withheld()


@given(policies(), LABELS, st.integers(1, 9), st.integers(0, 99))
def test_no_measured_class_or_row_is_below_the_minimum_or_above_the_cap(
    policy: ClientPolicy, labels: list[int], shares: int, seed: int
) -> None:
    mask, _ = policy.select(labels, shares)
    found = measured(np.array(labels, int)[mask], shares, policy, seed)
    assert (found.class_counts >= policy.min_count).all()
    assert (found.row_counts >= policy.min_count).all()
    if policy.max_per_class is not None:
        assert (found.class_counts <= policy.max_per_class).all()


@given(policies(), LABELS, st.integers(1, 9))
def test_no_more_than_necessary_is_withheld(policy: ClientPolicy, labels: list[int], shares: int) -> None:
    """A class is withheld whole or measured up to the cap from its first sample; withheld ones would break the rule."""
    mask, _ = policy.select(labels, shares)
    for label in set(labels):
        held = np.flatnonzero(np.array(labels) == label)
        allowed = held if policy.max_per_class is None else held[: policy.max_per_class]
        chosen = held[mask[held]]
        if len(chosen):
            np.testing.assert_array_equal(chosen, allowed)
        else:
            rows = measured([label] * len(allowed), shares, policy).row_counts
            assert rows.min() < policy.min_count


@given(policies(), LABELS, st.integers(1, 9))
def test_what_is_withheld_is_told_as_the_policy_says(policy: ClientPolicy, labels: list[int], shares: int) -> None:
    mask, withheld = policy.select(labels, shares)
    if policy.report_withheld:
        gone = set(labels) - set(np.array(labels, int)[mask].tolist())
        assert withheld == Withheld(classes=len(gone), samples=int((~mask).sum()))
    else:
        assert withheld == Withheld()


def test_a_class_that_would_be_split_too_thin_is_withheld_and_a_smaller_one_is_not() -> None:
    """Ten samples would be five rows of two; nine stay one row, for a class of fewer than twice five is not split."""
    policy = ClientPolicy(min_count=3)
    assert not policy.select([0] * 10, 5)[0].any()
    assert policy.select([0] * 9, 5)[0].all()
    assert policy.select([0] * 15, 5)[0].all()


def test_by_default_a_class_of_fewer_than_five_samples_is_withheld() -> None:
    mask, withheld = ClientPolicy().select([0] * 4 + [1] * 5)
    assert mask.tolist() == [False] * 4 + [True] * 5
    assert withheld == Withheld(classes=1, samples=4)


def test_a_class_that_would_be_split_too_thin_is_sent_as_one_mean_by_a_policy_that_merges() -> None:
    policy = ClientPolicy(min_count=3, small_classes="merge")
    mask, withheld = policy.select([0] * 10 + [1] * 2, 5)
    assert mask.tolist() == [True] * 10 + [False] * 2
    assert withheld == Withheld(classes=1, samples=2)
    assert measured([0] * 10, 5, policy).row_counts.tolist() == [10]


def test_labels_of_the_wrong_kind_are_refused() -> None:
    for wrong in ([0.5, 1.0], [[0, 1]], ["cat"]):
        with pytest.raises(InputError, match="one whole number a sample"):
            ClientPolicy().select(wrong)
    with pytest.raises(InputError, match="means_per_client must be 1 or more, not 0"):
        ClientPolicy().select([1], 0)


# ---------------------------------------------------------------------------------------------- what is asked


@given(st.sets(st.sampled_from(sorted(MOMENTS))), st.sets(st.sampled_from(sorted(MOMENTS))))
def test_exactly_the_moments_that_follow_from_allowed_ones_may_leave(allowed: set[str], asked: set[str]) -> None:
    policy, terms = ClientPolicy(moments=tuple(allowed)), terms_of(StatisticsSpec.of(*asked))
    if StatisticsSpec.of(*asked) <= StatisticsSpec.of(*allowed):
        policy.require(terms)
    else:
        with pytest.raises(PolicyError, match="the federation 'pets' asks for what this client's policy forbids: mom"):
            policy.require(terms)


def test_every_broken_rule_is_named_with_what_was_asked_and_what_is_allowed() -> None:
    terms = terms_of(StatisticsSpec.of("client_means", "gram", means_per_client=4))
    ClientPolicy(moments=("client_means", "class_grams"), max_means=4).require(terms)
    with pytest.raises(PolicyError) as refused:
        ClientPolicy(moments=("client_means",), max_means=3).require(terms)
    assert "moments: the server asks for gram, allowed are client_means, sums" in str(refused.value)
    assert "max_means: the server asks for 4 means of a class, allowed are 3" in str(refused.value)
    assert "nothing was measured" in str(refused.value)


def test_counts_cannot_be_obfuscated_beside_a_gram() -> None:
    policy = ClientPolicy(obfuscate="laplace:0.5")
    policy.require(terms_of(StatisticsSpec.of("client_means")))
    with pytest.raises(PolicyError, match="obfuscate: counts cannot be obfuscated beside the moment 'gram'"):
        policy.require(terms_of(StatisticsSpec.of("gram")))


def test_a_contribution_may_have_as_many_bytes_as_allowed_and_not_one_more() -> None:
    ClientPolicy().require_size(2**40)
    ClientPolicy(max_bytes=10).require_size(10)
    with pytest.raises(PolicyError, match="max_bytes: the contribution has more bytes than the 10 allowed") as caught:
        ClientPolicy(max_bytes=10).require_size(11)
    assert "11" not in str(caught.value)
    assert "it has 11 bytes" in in_full(caught.value)


# ---------------------------------------------------------------------------------------------- as a table


def test_an_obfuscation_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="typed as KIND:EPSILON"):
        ClientPolicy(obfuscate="laplace")
    with pytest.raises(UnknownNameError, match="'laplac': did you mean 'laplace'"):
        ClientPolicy.from_dict({"obfuscate": "laplac:0.5"})


@given(policies(), st.none() | st.lists(st.sampled_from(sorted(MOMENTS))), st.none() | st.integers(1, 9))
def test_a_table_says_it_all(policy: ClientPolicy, moments: list[str] | None, number: int | None) -> None:
    table = {**policy.to_dict(), "moments": moments, "max_means": number, "max_bytes": number}
    given = ClientPolicy.from_dict({name: value for name, value in table.items() if value is not None})
    assert ClientPolicy.from_dict(given.to_dict()) == given
    assert hash(given) == hash(ClientPolicy.from_dict(given.to_dict()))


def test_a_toml_file_is_read() -> None:
    text = 'min_count = 5\nmax_per_class = 100\nmax_bytes = 65536\nmoments = ["gram", "client_means"]\nmax_means = 1'
    expected = ClientPolicy(5, 100, 65536, ("client_means", "gram"), 1)
    assert ClientPolicy.from_dict(tomllib.loads(text)) == expected
    assert ClientPolicy.from_dict({}) == ClientPolicy()


def test_a_mistyped_rule_is_refused_and_not_ignored() -> None:
    with pytest.raises(UnknownNameError, match="'min_counts': did you mean 'min_count'"):
        ClientPolicy.from_dict({"min_counts": 5})
    with pytest.raises(UnknownNameError, match="unknown moment 'grams'"):
        ClientPolicy.from_dict({"moments": ["grams"]})


@pytest.mark.parametrize(
    "table",
    [
        {"min_count": 0},
        {"min_count": True},
        {"min_count": None},
        {"min_count": 2.0},
        {"max_per_class": "100"},
        {"max_bytes": -1},
        {"max_means": 0},
        {"moments": "gram"},
        {"moments": [1]},
        {"report_withheld": 1},
        {"min_count": 5, "max_per_class": 4},
        {"max_per_class": 4},
        {"small_classes": "hide"},
        {"small_classes": None},
        [("min_count", 5)],
    ],
)
def test_wrong_values_are_refused(table: Any) -> None:
    with pytest.raises(InputError, match="polic"):
        ClientPolicy.from_dict(table)


@pytest.mark.parametrize(
    ("agreed", "rules"),
    [
        (Agreed(epsilon=2.0), {"min_count": 5}),
        (Agreed(epsilon=2.0), {"min_count": 1, "max_per_class": 9}),
        (Agreed(epsilon=2.0), {"min_count": 1, "obfuscate": "laplace:0.5"}),
        (Agreed(epsilon=2.0), {"min_count": 1, "small_classes": "merge"}),
        (Agreed(epsilon=2.0, unit="client", client_norm=9.0), {"small_classes": "merge"}),
    ],
)
def test_rules_that_the_noise_is_not_made_for_are_refused(agreed: Agreed, rules: dict[str, Any]) -> None:
    fingerprint = Fingerprint("none", "none", Normalize(), ("cat", "dog"))
    spec, form = StatisticsSpec(), FixedPoint(1.0, 10**4)
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, 3, spec, form, privacy=agreed)
    with pytest.raises(PolicyError, match=r"noise: .* exclude each other"):
        ClientPolicy(**rules).require(terms)
    ClientPolicy(min_count=5 if agreed.unit == "client" else 1).require(terms)
