"""A head of one's own: given as it is, beside names; one that fails, or fits nonsense, costs its own row only."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.samples.features import Features, Samples
from fedmoments.study.baselines import make_baseline
from fedmoments.study.simulation import simulate


@dataclass(frozen=True)
class Tempered(fm.Head):
    """Nearest mean whose scores are divided by something."""

    by: float = 1.0

    @property
    def needs(self) -> fm.StatisticsSpec:
        return NearestMean().needs

    def solve(self, stats: Statistics) -> Classifier:
        nearest = NearestMean("euclidean").fit(stats)
        assert isinstance(nearest, LinearClassifier)
        return LinearClassifier(weights=nearest.weights / self.by, bias=nearest.bias / self.by, present=nearest.present)


class Broken(Tempered):
    def solve(self, stats: Statistics) -> Classifier:
        raise KeyError(f"no key for {stats.n_classes} classes")


class Nonsense(Tempered):
    def solve(self, stats: Statistics) -> Classifier:
        return LinearClassifier(
            weights=np.full((stats.dim, stats.n_classes), np.nan),
            bias=np.zeros(stats.n_classes),
            present=stats.counts > 0,
        )


@pytest.fixture
def features() -> Features:
    y = np.arange(60) % 3
    part = Samples(np.eye(3)[y] + np.random.default_rng(0).normal(scale=0.1, size=(60, 3)), y)
    return Features("toy", 3, part, part)


def run(features: Features, heads: Any, **more: Any) -> dict[str, Any]:
    result = simulate(features, heads, clients=[4], splits=["iid"], seeds=1, **more)
    return {row.head: row for row in result.rows}


def test_heads_and_baselines_are_taken_as_they_are(features: Features) -> None:
    given = [Tempered(), Tempered(by=2.0), "fedncm", fm.make_head("gh-lda"), make_baseline("ensemble")]
    rows = run(features, given)
    assert list(rows) == ["tempered", "tempered(by=2.0)", "fedncm", "gh-lda", "ensemble"]
    assert rows["tempered(by=2.0)"].hyper == {"by": 2.0}
    assert rows["tempered"].outcomes[0].accuracy == 1.0
    assert rows["gh-lda"].outcomes[0].accuracy == run(features, ["gh-lda"])["gh-lda"].outcomes[0].accuracy
    assert rows["ensemble"].baseline


def test_a_head_of_ones_own_works_on_the_short_way(features: Features) -> None:
    clients = {"a": (features.train.X, features.train.y)}
    assert fm.spec_for(Tempered()) == fm.spec_for("fedncm")
    classifier = fm.fit(Tempered(by=3.0), clients)
    assert classifier.info["head"] == "tempered(by=3.0)"
    assert (classifier.predict(features.test.X) == features.test.y).all()


def test_two_of_one_name_and_hyper_parameters_of_an_object_are_refused(features: Features) -> None:
    with pytest.raises(InputError, match="two different heads are called 'fedncm'"):
        run(features, ["fedncm", fm.make_head("fedncm")])
    with pytest.raises(InputError, match="'tempered', which is a head that has its own already"):
        choose_heads([Tempered()], {"tempered": {"by": 2.0}})
    with pytest.raises(InputError, match="'fedcof', which is not among the heads: tempered"):
        choose_heads([Tempered()], {"fedcof": {}})


def test_an_exception_in_a_head_is_a_row_with_the_traceback_in_the_log(
    features: Features, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "fedmoments"):
        rows = run(features, [Broken(), "fedncm"])
    assert rows["fedncm"].outcomes[0].accuracy == 1.0
    (outcome,) = rows["broken"].outcomes
    assert outcome.accuracy is None
    assert outcome.reason == (
        "Broken raised KeyError: 'no key for 3 classes' (its traceback is in the log 'fedmoments')"
    )
    assert "in solve" in caplog.text
    assert "Broken failed" in caplog.text


def test_a_head_that_cannot_say_what_it_needs_is_named(features: Features) -> None:
    class Lost(Tempered):
        @property
        def needs(self) -> fm.StatisticsSpec:
            return fm.StatisticsSpec.of("class_sums")

    with pytest.raises(InputError, match=r"the head '.*[Ll]ost.*' cannot say which statistics .* moment 'class_sums'"):
        run(features, [Lost()])


def test_a_lone_name_is_one_head(features: Features) -> None:
    assert list(run(features, "fedncm")) == ["fedncm"]


def test_nan_from_a_head_is_the_head_s_fault(features: Features) -> None:
    (outcome,) = run(features, [Nonsense()])["nonsense"].outcomes
    assert outcome.accuracy is None
    assert outcome.reason is not None
    assert outcome.reason.startswith("the head 'Nonsense' scores sample 0 as NaN though its features are finite")
    fitted = fm.fit(Nonsense(), {"a": (features.train.X, features.train.y)})
    with pytest.raises(InputError, match="the head 'nonsense' scores sample 0 as NaN"):
        fitted.predict(features.test.X)
    with pytest.raises(InputError, match="features must be finite, but sample 1 holds NaN"):
        fm.fit("fedncm", {"a": (features.train.X, features.train.y)}).predict([[0.0, 0.0, 1.0], [0.0, np.nan, 1.0]])
