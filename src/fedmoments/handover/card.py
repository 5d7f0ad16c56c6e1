"""The model card: what a person must know before a model is used, made from what the run recorded.

What a run cannot know (what the model is for, where it must not be used) is left to be filled in, and marked so.
Parties have numbers for names: the card leaves the house with the model. Every word that a file brought (names of
classes, heads, encoders, what protects) is shown as it is: none can be a heading or markup of the card.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.version import version_of
from fedmoments.core.observations import Report
from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.interval import wilson
from fedmoments.handover.evidence import Evidence
from fedmoments.pages.formats import plain_words
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.registry import encoders

__all__ = ["TO_FILL_IN", "model_card"]

#: Marks what a person must write.
TO_FILL_IN = "*To be filled in by a person before use.*"
ORIGIN = (
    "Made by fedmoments: parties measured moments of frozen features and sent them once; this classifier was solved "
    "from their sums. No sample left a party."
)
#: Class names, parties and sites that the card lists; the rest is counted.
LISTED = 30


def model_card(classifier: Classifier, encoder: Encoder | None = None, evidence: Evidence | None = None) -> str:
    """Return a model card in Markdown.

    Parameters
    ----------
    classifier
        Its notes say how it was made.
    encoder
        The encoder before it, if it is part of the model.
    evidence
        What the report of its run says of it: parties, protection, tests. Without it these are "not recorded".

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> print(model_card(fm.fit("fedncm", parties)).splitlines()[0])
    # Model card: fedncm, 2 classes
    """
    head = plain_words(classifier.info.get("head", f"a {classifier.kind} classifier"))
    report = evidence.report if evidence else None
    sections = {
        "What it is": _bullets(_facts(classifier, encoder, head)),
        "Classes": _classes(classifier),
        "Who took part": _parties(classifier.info, report),
        "Privacy": _protection(classifier.info, report),
        "How good it is": _tested(classifier, evidence),
        "Intended use": TO_FILL_IN,
        "Where it must not be used, known limits": TO_FILL_IN,
    }
    title = f"# Model card: {head}, {classifier.n_classes} classes"
    return "\n\n".join([title, ORIGIN, *(f"## {name}\n\n{text}" for name, text in sections.items())]) + "\n"


#: What a classifier notes as a mapping: its encoder, and the hyper-parameters of its head.
_NOTED = ("encoder", "settings")


def _facts(classifier: Classifier, encoder: Encoder | None, head: str) -> dict[str, str]:
    noted, settings = (info if isinstance(info := classifier.info.get(key), Mapping) else {} for key in _NOTED)
    name = encoder.name if encoder else noted.get("name", "unknown")
    chosen = ", ".join(f"{key} = {value}" for key, value in settings.items())
    facts = {
        "Head": head + (f" ({plain_words(chosen)})" if chosen else ""),
        **_version_facts(classifier),
        "Encoder": plain_words(name),
        "Licence of the encoder": _licence(name),
        "Feature map": plain_words(classifier.feature_map) if classifier.feature_map else "none",
        "Features": f"{classifier.dim} dimensions",
        "Temperature": f"{classifier.temperature:.4g}",
        "Digest": f"`{classifier.digest()}`",
    }
    return {key: value for key, value in facts.items() if value}


def _version_facts(classifier: Classifier) -> dict[str, str]:
    """Return which version it is, and from which entry of which ledger it came; nothing where that was not noted."""
    version = version_of(classifier)
    if not version:
        return {}
    ledger = f"federation `{plain_words(version.federation)}`, entry {version.entry}" if version.federation else ""
    parent = f"`{plain_words(version.parent)}`" if version.parent else ""
    return {"Version": plain_words(version), "Version before": parent, "Ledger": ledger}


def _licence(name: str) -> str:
    entry = next((found for found in encoders().values() if found.name.rstrip(":") == name.partition(":")[0]), None)
    return entry.licence if entry is not None and entry.licence else "unknown: ask the people who gave it to you"


def _classes(classifier: Classifier) -> str:
    names = [
        plain_words(name) + ("" if there else " (no training sample: never predicted)")
        for name, there in zip(classifier.class_names, classifier.present, strict=True)
    ]
    return "\n".join(f"- {name}" for name in _some(names))


def _some(entries: Sequence[str]) -> list[str]:
    more = [] if len(entries) <= LISTED else [f"and {len(entries) - LISTED:,} more"]
    return [*entries[:LISTED], *more]


def _parties(info: Mapping[str, Any], report: Report | None) -> str:
    clients = report.rows[0].setting.clients if report and report.rows else info.get("clients")
    samples, holders = (report.data.train, report.holders) if report else (info.get("samples"), None)
    clients = clients or (holders.n_clients if holders else None)
    facts = {**_run(report), "Parties": _counted(clients), "Samples": _counted(samples)}
    if holders is None or not len(holders.cells):
        return _bullets(facts)
    rows = [
        (f"party {place + 1}", f"{int(mine[:, 2].sum()):,}", str(len(mine)))
        for place in range(holders.n_clients)
        if len(mine := holders.cells[holders.cells[:, 0] == place])
    ]
    return _bullets(facts) + "\n\n" + _table(("Party", "Samples", "Classes"), rows)


def _counted(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else "not recorded"


def _run(report: Report | None) -> dict[str, str]:
    if report is None:
        return {}
    name = report.federation.name if report.federation else ""
    return {
        "Run": f"the federation {plain_words(name)}" if name else "a simulation on one machine: parties were played"
    }


def _protection(info: Mapping[str, Any], report: Report | None) -> str:
    card = report.privacy if report else None
    if card is None:
        return plain_words(info.get("protection") or "Not recorded.")
    known = {"Contributions travelled as": card.mode, **dict(card.facts)}
    parts = [_bullets({plain_words(name): plain_words(value) for name, value in known.items()})]
    for title, entries in (
        ("Who learns what", [f"{who}: {what}" for who, what in card.sees]),
        ("Assumptions", card.assumptions),
        ("Not promised", card.not_promised),
    ):
        if entries:
            parts.append(f"{title}:\n\n" + "\n".join(f"- {plain_words(entry)}" for entry in entries))
    return "\n\n".join(parts)


def _tested(classifier: Classifier, evidence: Evidence | None) -> str:
    if evidence is None or not evidence.outcome[1]:
        return "Not tested: no report of a test lies beside this classifier."
    facts = {"Accuracy": _interval(*evidence.outcome)}
    calibration, figures = evidence.detail.calibration, evidence.detail.figures
    if calibration is not None and calibration.confidence is not None:
        facts["Mean confidence"] = f"{calibration.confidence:.1%} at temperature {classifier.temperature:.3g}"
    if calibration is not None and calibration.ece is not None:
        facts["Expected calibration error"] = (
            f"{100 * calibration.ece:.1f} points at temperature {classifier.temperature:.3g}"
        )
    means = (
        ()
        if figures is None
        else (
            ("Macro-F1", figures.macro_f1),
            ("Macro-AUC", figures.macro_auc),
            ("AUC of all classes together", figures.micro_auc),
        )
    )
    facts |= {name: f"{value:.3f}" for name, value in means if value is not None}
    classes = _by_class(classifier, evidence)
    return "\n\n".join([_bullets(facts), *_sites(evidence), classes])


def _by_class(classifier: Classifier, evidence: Evidence) -> str:
    """Return the table of classes, those that are found least first, and what rounding does to it."""
    detail, names, rows = evidence.detail, classifier.class_names, []
    tested = np.flatnonzero(detail.tested).tolist()
    for label in sorted(tested, key=lambda label: (detail.accuracies[label], names[label])):
        rounding = detail.figures.rounding if detail.figures else 0.0
        found = _interval(int(detail.found[label]), int(detail.tested[label]), rounding)
        spared, area = ("–", "–") if detail.figures is None else _of_others(detail.figures, label)
        rows.append((plain_words(names[label]), found, spared, area))
    table = _table(("Class", "Sensitivity: found (95 % interval)", "Specificity", "AUC"), rows)
    if not evidence.is_rounded:
        return table
    told = (
        f"Clients tell {int(detail.tested.sum()):,} of {evidence.outcome[1]:,} samples by class and round right answers"
    )
    how = "by chance so that none tells of few samples: right on average, within these intervals"
    hidden = detail.figures is not None and "| – |" in table
    dashes = " A dash stands for a figure that would be mostly this rounding." if hidden else ""
    return f"{told} {how}.{dashes}\n\n{table}"


def _of_others(figures: ClassFigures, label: int) -> tuple[str, str]:
    """Return the specificity of a class and its area under the ROC curve, in words."""
    area = figures.areas[label]
    return _share(figures.specificities[label]), "–" if np.isnan(area) else f"{area:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.1%}"


def _sites(evidence: Evidence) -> list[str]:
    """Return the table of accuracies by site, where the run's report has them."""
    sites = zip(evidence.sites, evidence.alone, strict=True)
    rows = [(f"site {place}", _interval(*site), _share(alone)) for place, (site, alone) in enumerate(sites, 1)]
    columns = ("Site that tested it", "Accuracy (95 % interval)", "Of a head on its own samples alone")
    return [_table(columns, rows)] if rows else []


def _interval(right: int, samples: int, rounding: float = 0.0) -> str:
    low, high = wilson(right, samples, rounding)
    return f"{right / samples:.1%} ({low:.1%} to {high:.1%}), {right:,} of {samples:,} samples"


def _bullets(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- **{name}**: {value}" for name, value in facts.items())


def _table(columns: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows[:LISTED]]
    written = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return written + (f"\n\n… and {len(rows) - LISTED:,} more" if len(rows) > LISTED else "")
