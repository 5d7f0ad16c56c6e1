"""Values show themselves in notebooks, and nobody's name becomes markup there."""

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.observations import Observation, Results
from fedmoments.errors import InputError
from fedmoments.samples.features import Features, Samples

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, size=90)
X = RNG.normal(size=(90, 4)) + 3 * np.eye(3, 4)[Y]
PARTIES = {"<script>": (X[:40], Y[:40]), "lab": (X[40:], Y[40:])}
RESULTS = Results(
    tuple(
        Observation({"head": head, "clients": clients, "split": "iid"}, values, seeds=(0, 1))
        for head, clients, values in (
            ("a", 10, (0.5, 0.7)),
            ("b", 10, (0.4, 0.6)),
            ("a", 20, (0.6, 0.8)),
            ("b", 20, (0.1, 0.3)),
        )
    )
)


def test_score_is_the_share_of_right_labels() -> None:
    classifier = fm.fit("fedncm", PARTIES)
    assert classifier.score(X, Y) == (classifier.predict(X) == Y).mean()
    with pytest.raises(InputError, match="90 samples need 90 labels"):
        classifier.score(X, Y[:5])


def test_a_ledger_shows_who_holds_how_much_and_escapes_names() -> None:
    shown = fm.measure(PARTIES, fm.spec_for("fedncm"))._repr_html_()
    assert "<script>" not in shown
    assert "<td>&lt;script&gt;</td><td>40</td><td>3</td>" in shown
    assert "<td>lab</td><td>50</td><td>3</td>" in shown


def test_statistics_show_samples_by_class() -> None:
    shown = fm.measure(PARTIES, fm.spec_for("fedncm")).pool()._repr_html_()
    assert all(f"<td>{label}</td><td>{np.count_nonzero(label == Y)}</td>" in shown for label in range(3))


def test_a_classifier_shows_its_head_and_escapes_class_names() -> None:
    shown = fm.fit("fedncm", PARTIES, class_names=["<b>", "c", "d"])._repr_html_()
    assert "<td>&lt;b&gt;, c, d</td>" in shown
    assert "<td>3 of 3</td>" in shown


def test_results_show_what_differs_and_nothing_else() -> None:
    shown = RESULTS._repr_html_()
    assert "<tr><th>head</th><th>clients</th><th>accuracy</th></tr>" in shown
    assert "<td>a</td><td>10</td><td>60.00 ± 14.14</td>" in shown


def test_a_pivot_shows_its_cells() -> None:
    assert (
        "<tr><td>b</td><td>50.00 ± 14.14</td><td>20.00 ± 14.14</td></tr>"
        in RESULTS.pivot("head", "clients")._repr_html_()
    )


def test_many_rows_are_cut_with_their_number() -> None:
    many = dict.fromkeys(range(30), (X, Y))
    assert "… and 10 more" in fm.measure(many, fm.spec_for("fedncm"))._repr_html_()


def test_plot_draws_means_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    axes = RESULTS.plot("clients")
    assert [line.get_label() for line in axes.containers] == ["a", "b"]
    assert [list(container[0].get_ydata()) for container in axes.containers] == [
        pytest.approx([60, 70]),
        pytest.approx([50, 20]),
    ]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "20"]
    with pytest.raises(InputError, match="nothing was measured over 'month'; there is clients, head, split"):
        RESULTS.plot("month")


def test_a_report_shows_accuracy_bytes_and_what_is_sent() -> None:
    features = Features("toy", 3, train=Samples(X[:60], Y[:60]), test=Samples(X[60:], Y[60:]))
    report = fm.simulate(features, ["fedncm", "fed3r"], clients=[2, 5], splits=["iid"], seeds=2)
    shown = report._repr_html_()
    assert "<th>head</th><th>clients</th><th>accuracy</th>" in shown
    for row in report.rows:
        assert row.accuracy is not None
        assert f"<td>{row.accuracy:.2%} ± {100 * (row.accuracy_std or 0.0):.2f}</td><td><svg" in shown
        assert f"<td>{row.up_bytes_per_client:,.0f}</td>" in shown
    assert "<td>counts, class sums, one matrix</td>" in shown
    assert repr(report) == "Report(fedncm, fed3r in 2 settings, 2 seeds, on toy)"


def test_values_print_as_one_line() -> None:
    """The representation that a dataclass makes prints every array and every row."""
    many = {f"client {k}": (X, Y) for k in range(9)}
    ledger = fm.measure(many, fm.spec_for("auto"))
    classifier = fm.fit("auto", ledger)
    assert repr(classifier) == "LinearClassifier(auto (lda-sketch), 4 features, 3 of 3 classes: 0, 1, 2)"
    assert repr(ledger).startswith("Ledger(counts + client_means + scatter_sketch")
    assert repr(ledger).endswith("9 clients, 3 classes, d=4)")
    assert all("array" not in repr(fm.fit(head, many)) for head in ("gh-qda", "gh-nb", "gh-dlr-qda", "mixture-sketch"))


def test_diagnoses_and_tuned_heads_show_themselves() -> None:
    found = fm.diagnose(fm.measure(PARTIES, fm.spec_for("fedcof")))
    assert repr(found).startswith("Diagnostics(90 samples, d=4; cautions: ")
    assert "<td>not known: " in found._repr_html_()
    tuned = fm.tune(PARTIES, "fedncm", fm.TuningPlan(rounds=2, lr=0.1), test=(X, Y))
    assert tuned._repr_html_().count("<tr>") == 4
    assert f"<td>{tuned.points[2].accuracy:.2%}</td>" in tuned._repr_html_()
    assert len(repr(tuned)) < 200
    assert repr(RESULTS) == "Results(4 observations of a, b)"
