"""The scikit-learn wrapper: scikit-learn's own checks, and agreement with fedmoments.fit."""

import importlib
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

import fedmoments
from fedmoments.core.heads import make_head
from fedmoments.errors import InputError, MissingExtraError, NotEnoughDataError
from fedmoments.sklearn import FedMomentsClassifier

#: Scikit-learn's checks know no groups; that there is a warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:.*no groups were given:UserWarning")

#: They measure again behind what a first exchange gave.
EXCHANGED = ("deep-ridge", "fisher-rf", "qda-exchange")
HEADS = [name for name in fedmoments.head_names() if name not in EXCHANGED]
ADDITIVE = [name for name in HEADS if not make_head(name).needs.keeps_clients_apart]
ROWS = [name for name in HEADS if make_head(name).needs.keeps_clients_apart]
#: The paper's 5,000 random features would only make tests slow.
SMALL: dict[str, dict[str, Any]] = {"fed3r-rf": {"n_features": 64}}
NAMES = np.array(["ash", "birch", "cedar"])

Data = tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.int64]]


@pytest.fixture(name="data")
def fixture_data() -> Data:
    """Features (120, 6), labels of three unequal classes, and the client (of 8) of every sample."""
    rng = np.random.default_rng(7)
    labels = rng.choice(3, 120, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6)) + 3.0 * rng.normal(size=(3, 6))[labels] + 1.0
    return X, NAMES[labels], rng.integers(8, size=120)


def as_clients(X: NDArray[Any], y: NDArray[Any], groups: NDArray[Any]) -> dict[Any, Any]:
    """Return what fedmoments.fit takes."""
    labels = np.searchsorted(NAMES, y)
    return {int(g): (X[groups == g], labels[groups == g]) for g in np.unique(groups)}


def make(head: str, **settings: Any) -> FedMomentsClassifier:
    return FedMomentsClassifier(head, hyper=SMALL.get(head), **settings)


# ---------------------------------------------------------------------------------------------- scikit-learn's checks


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [
        *(make(head) for head in fedmoments.head_names()),
        FedMomentsClassifier("fed3r-rf", {"n_features": 64, "bandwidth": 2.0}),
        FedMomentsClassifier("fedncm", {"metric": "euclidean"}),
        FedMomentsClassifier("fed3r", {"intercept": True}),
        FedMomentsClassifier("fedcof", means_per_client=2, temperature=0.5),
        FedMomentsClassifier(make_head("gh-qda", shrinkage="blend:0.1"), random_state=None),
    ]
)
def test_passes_the_estimator_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_column_names_are_remembered_and_checked() -> None:
    pytest.importorskip("pandas")
    check_dataframe_column_names_consistency("FedMomentsClassifier", FedMomentsClassifier())


def test_tags_say_dense_multi_class_classifier() -> None:
    tags = get_tags(FedMomentsClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.classifier_tags.multi_class
    assert not tags.classifier_tags.multi_label
    assert not tags.classifier_tags.poor_score
    assert not tags.input_tags.sparse
    assert not tags.input_tags.allow_nan
    assert tags.target_tags.required
    assert not tags.non_deterministic


# -------------------------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize("head", fedmoments.head_names())
def test_agrees_with_fedmoments_fit(head: str, data: Data) -> None:
    X, y, groups = data
    ours = make(head).fit(X, y, groups=groups)
    reference = fedmoments.fit(head, as_clients(X, y, groups), n_classes=3, **SMALL.get(head, {}))
    np.testing.assert_allclose(ours.decision_function(X), reference.scores(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(X), reference.predict_proba(X), rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(ours.predict(X), NAMES[reference.predict(X)])
    assert ours.classifier_.class_names == tuple(NAMES)
    assert ours.classifier_.info["head"] == head
    assert ours.classifier_.info["settings"] == reference.info["settings"]


def test_agrees_with_fedmoments_fit_for_several_means_per_client(data: Data) -> None:
    X, y, groups = data
    ours = FedMomentsClassifier("fedcof", means_per_client=3, random_state=5).fit(X, y, groups=groups)
    reference = fedmoments.fit("fedcof", as_clients(X, y, groups), n_classes=3, means_per_client=3, seed=5)
    np.testing.assert_allclose(ours.decision_function(X), reference.scores(X), rtol=1e-10, atol=1e-10)
    other = FedMomentsClassifier("fedcof", means_per_client=3, random_state=6).fit(X, y, groups=groups)
    assert not np.allclose(ours.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("head", ADDITIVE)
def test_additive_heads_do_not_depend_on_groups(head: str, data: Data) -> None:
    X, y, groups = data
    apart, together = make(head).fit(X, y, groups=groups), make(head).fit(X, y)
    np.testing.assert_allclose(apart.decision_function(X), together.decision_function(X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("head", [head for head in ROWS if head != "auto-exact"])  # only its choice could differ
def test_heads_of_client_means_depend_on_groups(head: str, data: Data) -> None:
    X, y, groups = data
    apart, alone = make(head).fit(X, y, groups=groups), make(head).fit(X, y)
    assert not np.allclose(apart.decision_function(X), alone.decision_function(X))


@pytest.mark.parametrize(("free", "exact"), [("fedcof", "fedcof-oracle"), ("lda-free", "gh-lda"), ("nb-free", "gh-nb")])
def test_without_groups_the_free_covariance_is_the_sample_covariance(free: str, exact: str, data: Data) -> None:
    X, y, _ = data
    like = FedMomentsClassifier(exact, hyper={"priors": "balanced"} if exact == "gh-lda" else None)
    ours, theirs = make(free).fit(X, y).decision_function(X), like.fit(X, y).decision_function(X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_groups_may_be_names(data: Data) -> None:
    X, y, groups = data
    numbered, named = (
        make("fedcof").fit(X, y, groups=groups),
        make("fedcof").fit(X, y, groups=[f"s{g}" for g in groups]),
    )
    assert numbered.classifier_.digest() == named.classifier_.digest()


def test_groups_must_be_one_a_sample(data: Data) -> None:
    X, y, groups = data
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make("fedcof").fit(X, y, groups=groups[:-1])


# -------------------------------------------------------------------------------------------------- partial_fit


@pytest.mark.parametrize("head", ADDITIVE)
def test_partial_fit_over_batches_is_fit_on_everything(head: str, data: Data) -> None:
    X, y, _ = data
    hyper = {**SMALL.get(head, {}), **({"bandwidth": 3.0} if head == "fed3r-rf" else {})}
    whole, streamed = FedMomentsClassifier(head, hyper).fit(X, y), FedMomentsClassifier(head, hyper)
    for start in range(0, 120, 17):
        streamed.partial_fit(X[start : start + 17], y[start : start + 17], classes=NAMES)
    np.testing.assert_allclose(streamed.decision_function(X), whole.decision_function(X), rtol=1e-10, atol=1e-10)
    half = FedMomentsClassifier(head, hyper).partial_fit(X[:60], y[:60], classes=NAMES)
    assert not np.allclose(half.decision_function(X), whole.decision_function(X))


@pytest.mark.parametrize("head", ROWS)
@pytest.mark.parametrize("means_per_client", [1, 2])
def test_partial_fit_over_clients_is_fit_with_groups(head: str, means_per_client: int, data: Data) -> None:
    X, y, groups = data
    whole = make(head, means_per_client=means_per_client).fit(X, y, groups=groups)
    streamed = make(head, means_per_client=means_per_client)
    for client in np.unique(groups):
        streamed.partial_fit(X[groups == client], y[groups == client], classes=NAMES)
    np.testing.assert_allclose(streamed.decision_function(X), whole.decision_function(X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("head", ["gh-lda", "fedcof"])
def test_partial_fit_continues_after_fit_and_after_predict(head: str, data: Data) -> None:
    X, y, groups = data
    early = groups < 5
    model = make(head).fit(X[early], y[early], groups=groups[early])
    for client in range(5, 8):
        model.predict(X)
        model.partial_fit(X[groups == client], y[groups == client])
    whole = make(head).fit(X, y, groups=groups)
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-10, atol=1e-10)


def test_a_class_that_has_not_come_yet_has_probability_zero(data: Data) -> None:
    X, y, _ = data
    few = y != "cedar"
    model = make("gh-lda").partial_fit(X[few], y[few], classes=NAMES)
    np.testing.assert_array_equal(model.predict_proba(X)[:, 2], 0.0)
    assert set(model.predict(X)) <= {"ash", "birch"}


def test_one_client_of_fedcof_is_not_enough_yet(data: Data) -> None:
    X, y, _ = data
    model = make("fedcof").partial_fit(X[:60], y[:60], classes=NAMES)
    with pytest.raises(NotFittedError, match="cannot be used yet: automatic shrinkage"):
        model.predict(X)
    assert not hasattr(model, "classifier_")
    assert set(model.partial_fit(X[60:], y[60:]).predict(X)) <= set(NAMES)


def test_partial_fit_needs_classes_first(data: Data) -> None:
    with pytest.raises(InputError, match="first call of partial_fit needs classes"):
        make("gh-lda").partial_fit(data[0], data[1])


def test_partial_fit_refuses_other_classes_and_labels(data: Data) -> None:
    X, y, _ = data
    model = make("gh-lda").partial_fit(X, y, classes=NAMES)
    with pytest.raises(InputError, match="classes must stay what they were"):
        model.partial_fit(X, y, classes=["ash", "birch"])
    with pytest.raises(InputError, match=r"among the classes .* but .*elm.* arrived"):
        model.partial_fit(X[:1], ["elm"])


@pytest.mark.parametrize("change", [{"head": "gh-qda"}, {"hyper": {"shrinkage": "none"}}, {"means_per_client": 2}])
def test_partial_fit_refuses_a_head_that_changed(change: dict[str, Any], data: Data) -> None:
    X, y, _ = data
    model = make("fedcof").partial_fit(X, y, classes=NAMES).set_params(**change)
    with pytest.raises(InputError, match="call fit, or partial_fit on a clone"):
        model.partial_fit(X, y)


def test_partial_fit_is_not_offered_where_a_first_exchange_is_needed() -> None:
    for head in ("fed3r-rf", *EXCHANGED):
        assert not hasattr(FedMomentsClassifier(head), "partial_fit")
    assert hasattr(FedMomentsClassifier("fed3r-rf", {"bandwidth": 2.0}), "partial_fit")


def test_partial_fit_of_an_unknown_head_names_it(data: Data) -> None:
    with pytest.raises(InputError, match="unknown head 'gh-ldb': did you mean 'gh-lda'"):
        FedMomentsClassifier("gh-ldb").partial_fit(data[0], data[1], classes=NAMES)


# ---------------------------------------------------------------------------------------------- scikit-learn's manners


def test_binary_decision_function_is_the_second_score_less_the_first(data: Data) -> None:
    X, y, _ = data
    model = make("gh-lda").fit(X, y == "ash")
    scores = model.classifier_.scores(X)
    np.testing.assert_array_equal(model.decision_function(X), scores[:, 1] - scores[:, 0])
    assert model.classes_.dtype == bool


def test_one_class_is_always_predicted(data: Data) -> None:
    X = data[0]
    model = make("gh-lda").fit(X, ["only"] * 120)
    assert set(model.predict(X)) == {"only"}
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((120, 1)))


@pytest.mark.parametrize("head", fedmoments.head_names())
def test_float32_is_scored_in_float32(head: str, data: Data) -> None:
    X, y, groups = data
    model = make(head).fit(X.astype(np.float32), y, groups=groups)
    assert model.decision_function(X.astype(np.float32)).dtype == np.float32
    assert model.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert model.decision_function(X).dtype == np.float64
    wide = make(head).fit(X.astype(np.float32).astype(np.float64), y, groups=groups)
    assert wide.classifier_.digest() == model.classifier_.digest()


def test_temperature_softens_probabilities(data: Data) -> None:
    X, y, _ = data
    sharp, soft = make("gh-lda").fit(X, y), make("gh-lda", temperature=10.0).fit(X, y)
    assert soft.predict_proba(X).max() < sharp.predict_proba(X).max()
    np.testing.assert_array_equal(soft.predict(X), sharp.predict(X))


def test_sparse_features_are_refused(data: Data) -> None:
    with pytest.raises(TypeError, match=r"Sparse data was passed.*, but dense data is required"):
        make("gh-lda").fit(csr_array(data[0]), data[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "fedcov"}, "did you mean 'fedcof'"),
        ({"hyper": {"ridge": 1.0}}, "head 'gh-lda' has no hyper-parameter 'ridge'"),
        ({"head": make_head("gh-lda"), "hyper": {"shrinkage": 0.1}}, "hyper belongs to a head given by name"),
        ({"means_per_client": 0}, "means_per_client must be 1 or more, not 0"),
    ],
)
def test_wrong_parameters_are_refused_when_fitted(settings: dict[str, Any], message: str, data: Data) -> None:
    with pytest.raises(InputError, match=message):
        FedMomentsClassifier(**settings).fit(data[0], data[1])


def test_a_fit_that_fails_leaves_nothing_of_the_fit_before(data: Data) -> None:
    X, y, groups = data
    model = make("fedcof").fit(X, y, groups=groups)
    with pytest.raises(NotEnoughDataError):
        model.fit(X, y, groups=np.zeros(120, int))
    with pytest.raises(NotFittedError, match="cannot be used yet"):
        model.predict(X)


@pytest.mark.parametrize("head", fedmoments.head_names())
def test_pickled_models_predict_the_same_and_go_on(head: str, data: Data) -> None:
    X, y, groups = data
    model = make(head).fit(X, y, groups=groups)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    if hasattr(model, "partial_fit"):
        again.partial_fit(X[:30], y[:30])
        model.partial_fit(X[:30], y[:30])
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_clone_and_parameters_round_trip() -> None:
    model = FedMomentsClassifier("fedcof", {"shrinkage": "relative:0.5"}, means_per_client=2, temperature=3.0)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(head="gh-nb", hyper=None).head == "gh-nb"


def test_grid_search_over_heads_in_a_pipeline(data: Data) -> None:
    X, y, _ = data
    pipeline = make_pipeline(StandardScaler(), FedMomentsClassifier())
    heads = ["fedncm", "fed3r", "fedcof", "gh-lda", "gh-qda"]
    search = GridSearchCV(pipeline, {"fedmomentsclassifier__head": heads}, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_["fedmomentsclassifier__head"] in heads
    assert search.best_score_ > 0.8
    pipeline.fit(X, y, fedmomentsclassifier__groups=np.arange(120) % 4)
    assert pipeline.score(X, y) > 0.8


def test_cross_validation_routes_groups_to_the_split_and_to_the_head(data: Data) -> None:
    X, y, groups = data
    with config_context(enable_metadata_routing=True):
        model = FedMomentsClassifier("fedcof").set_fit_request(groups=True)
        routed = cross_val_score(model, X, y, cv=GroupKFold(4), params={"groups": groups}, error_score="raise")
    by_hand = [
        make("fedcof").fit(X[train], y[train], groups=groups[train]).score(X[test], y[test])
        for train, test in GroupKFold(4).split(X, y, groups)
    ]
    np.testing.assert_array_equal(routed, by_hand)


def test_a_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "fedmoments.sklearn")
    with pytest.raises(MissingExtraError, match=r"pip install 'fedmoments\[sklearn\]'"):
        importlib.import_module("fedmoments.sklearn")


def test_heads_that_depend_on_clients_warn_without_groups_and_others_do_not(data: Data) -> None:
    X, y, groups = data
    with pytest.warns(UserWarning, match=r"no groups were given: every sample counts as a client .* groups=sites"):
        FedMomentsClassifier("fedcof").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedMomentsClassifier("gh-lda").fit(X, y)
        FedMomentsClassifier("fedcof").fit(X, y, groups=groups)


@pytest.mark.parametrize("head", ["fedcof", "fed3r", "gh-lda", "fedncm"])
def test_new_labels_in_partial_fit_give_what_naming_all_at_first_gives(head: str) -> None:
    rng = np.random.default_rng(0)
    names = np.array(["bee", "dog", "ape", "cat"])
    y = names[np.arange(120) % 4]
    X = rng.normal(size=(120, 5)) + 4 * np.eye(5)[np.arange(120) % 4]
    first = np.isin(y, ["bee", "dog"])
    grown, whole = FedMomentsClassifier(head), FedMomentsClassifier(head)
    for k in range(3):
        rows = np.flatnonzero(first & (np.arange(120) // 4 % 3 == k))
        grown.partial_fit(X[rows], y[rows], classes=["bee", "dog"])
        whole.partial_fit(X[rows], y[rows], classes=names)
    with pytest.raises(ValueError, match="name it in classes"):
        grown.partial_fit(X[~first], y[~first])
    with pytest.raises(ValueError, match="or be more"):
        grown.partial_fit(X[first], y[first], classes=["ape", "bee"])
    for k in range(3):
        rows = np.flatnonzero(~first & (np.arange(120) // 4 % 3 == k))
        grown.partial_fit(X[rows], y[rows], classes=names)
        whole.partial_fit(X[rows], y[rows])
    assert grown.classes_.tolist() == whole.classes_.tolist() == sorted(names)
    np.testing.assert_allclose(grown.decision_function(X), whole.decision_function(X), rtol=1e-9, atol=1e-9)
    assert (grown.predict(X) == whole.predict(X)).all()


def test_groups_that_are_missing_and_masks_are_refused_and_tensors_taken() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]
    site = np.arange(60) % 4
    wanted = FedMomentsClassifier("fedcof").fit(X, y, groups=site).predict(X)
    tensor = torch.tensor(X, requires_grad=True)
    model = FedMomentsClassifier("fedcof").fit(tensor, torch.tensor(y), groups=torch.tensor(site))
    assert np.array_equal(model.predict(tensor), wanted)
    gaps: list[Any] = [np.where(site == 0, np.nan, site), [None if each == 0 else int(each) for each in site]]
    for groups in gaps:
        with pytest.raises(InputError, match="groups say of no client that it holds sample 0: 15 are missing"):
            FedMomentsClassifier("fedcof").fit(X, y, groups=groups)
    with pytest.raises(InputError, match="entries are masked"):
        FedMomentsClassifier().fit(np.ma.array(X, mask=X > 3), y)
