"""``fedmoments audit``: what a contribution would reveal, and what the client's policy withholds of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.joining import read_terms
from fedmoments.cli.measure import spec_of
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line, print_table
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.privacy.sketch_leaks import SketchOutline
from fedmoments.settings.measuring import MeasureSettings
from fedmoments.settings.policy import PolicyRules
from fedmoments.settings.study import StudySettings

__all__ = ["EXPOSES", "audit"]

EXAMPLE = example(
    "fedmoments audit --data runs/demo/digits.npz --head fedcof",
    "fedmoments measure runs/demo/digits.npz --head fedcof --client clinic --out clinic.stats",
    "fedmoments audit clinic.stats",
)
#: Exit code when something about a single sample would leave exactly.
EXPOSES = 3
#: What is asked of data that are audited.
OF_DATA = (
    "data", "encoder", "size", "pooling", "text", "image", "label", "domains", "test", "test_share", "strict", "seed",
)  # fmt: skip
COLUMNS = ["severity", "what it reveals", "classes", "samples"]


@dataclass(frozen=True)
class _Contribution:
    """One contribution: whose it is, what it reveals without and with the policy, and what that withholds."""

    client: str
    before: Any
    after: Any
    withheld: Any
    policy: Any

    def to_dict(self) -> dict[str, Any]:
        kept_back = {"classes": self.withheld.classes, "samples": self.withheld.samples}
        reports = {"before": self.before.to_dict(), "after": self.after.to_dict()}
        return {"client": self.client, **reports, "withheld": kept_back}


@command("audit", EXAMPLE)
def audit(
    statistics: Annotated[
        Path | None, positional(help="A statistics file that 'fedmoments measure' wrote; or --data, or --config.")
    ] = None,
    *,
    study: Annotated[Given[StudySettings], Taken(only=OF_DATA, help={"seed": "Chooses the samples to test on."})],
    policy: Annotated[Given[PolicyRules], Taken(only=("min_count", "small_classes", "sketch_share", "sketch_spare"))],
    asked: Annotated[
        Given[MeasureSettings],
        Taken(
            help={
                "head": "Instead of terms: the fewest moments that serve this head; may be repeated.",
                "moments": "Instead of terms: gram,client_means,…",
                "budget": "Instead of terms: bytes for means and scatter sketch, as means/2 or 50KB.",
                "project": "Project features to K dimensions before measuring.",
            },
        ),
    ],
    config: Annotated[
        Path | None, typed(help="A client.toml with data and rules of a client; needs --terms.", metavar="FILE")
    ] = None,
    terms: Annotated[Path | None, typed(help="The federation's terms: what it asks for.", metavar="FILE")] = None,
    json: Json = False,
) -> None:
    """Show what a contribution would reveal to its reader, and what the client's policy withholds.

    A statistics file is already measured, so nothing in it can be withheld. Data are not measured; if features are
    available, a scatter sketch of them is assessed. Nothing leaves this machine. Exit code 3: something about a single
    sample (its features, or its presence) would leave exactly; 0: nothing would.
    """
    if sum(given is not None for given in (statistics, study.values.get("data"), config)) != 1:
        raise InputError("nothing to audit: give a statistics file, --data DATA or --config FILE, one of them")
    if statistics is not None:
        _require_none([*study.names, *asked.names, *(["--terms"] if terms else [])], str(statistics))
        _of_file(statistics, policy.values, json=json)
        return
    agreed = read_terms(terms)
    if (agreed is None) == (not asked.values):
        raise InputError("no upload to audit: give --terms FILE, or --head NAME or --moments gram,…, not both")
    if config is not None:
        _require_none([*study.names, *asked.names, *policy.names], str(config))
        contributions = _of_client(config, agreed)
    else:
        contributions = [_of_data(study.build(), policy.values, agreed, asked.build())]
    _show(contributions, agreed, json=json)


def _require_none(names: list[str], what: str) -> None:
    if names:
        raise InputError(f"{', '.join(names)}: {what} says that itself: leave it out")


# -------------------------------------------------------------------------------------------------- what is audited


def _of_file(path: Path, rules: Mapping[str, Any], *, json: bool) -> None:
    """Audit what was measured already."""
    from fedmoments.cli.notes import Contribution
    from fedmoments.core.maps import from_description
    from fedmoments.federation.audit import fewest
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.privacy.leaks import LeakReport
    from fedmoments.privacy.map_leaks import MapOutline
    from fedmoments.privacy.outline import Outline

    part = Contribution(path)
    policy = ClientPolicy.from_dict(rules)
    behind = MapOutline.of(from_description(part.feature_map), part.stats.dim) if part.feature_map else None
    outline = Outline.of(part.stats, behind)
    report = LeakReport.of(outline, min_count=fewest(policy), class_names=part.class_names)
    kept = report.outline.without_small(policy.min_count)
    classes = len(report.outline.counts) - len(kept.counts)
    samples = report.outline.n_samples - kept.n_samples
    if json:
        document = {"file": str(path), "clients": part.clients, "exposes": report.exposes}
        would = {"policy": policy.to_dict(), "would_withhold": {"classes": classes, "samples": samples}}
        print_json({**document, "reveals": report.to_dict(), **would})
    else:
        print_line(f"{path}: {part.stats.spec} of {plural(part.stats.n_samples, 'sample')}, d = {part.stats.dim}")
        print_table(COLUMNS, report.rows(), right=COLUMNS[2:])
        if classes:
            print_line(
                f"a client whose policy has min_count = {policy.min_count} would withhold {plural(classes, 'class')}, "
                f"{plural(samples, 'sample')} of it: 'fedmoments client' does; this file is measured already"
            )
    _end(exposes=report.exposes)


def _of_data(study: StudySettings, rules: Mapping[str, Any], agreed: Any, asked: MeasureSettings) -> Any:
    """Audit data, from their labels alone."""
    from fedmoments.core.maps import table_of
    from fedmoments.federation.audit import Audit
    from fedmoments.federation.own_data import label_table
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.samples.reading import choose_encoder, read_data

    data = read_data(study, None if agreed is None else table_of(agreed.map_or_none))
    if agreed is not None:
        labels = label_table(data.class_names, agreed.classes)[data.train.labels]
        spec, dim, names, behind = agreed.spec, agreed.dim, agreed.classes, agreed.map_outline
    else:
        spec = spec_of(asked, asked.project)
        given = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
        dim = asked.project or choose_encoder(study, data.modality, given).dim
        labels, names, behind = data.train.labels, data.class_names, None  # a projection of ours is linear
    features = shown = None
    chosen = ClientPolicy.from_dict(rules)
    if data.modality == "features" and _tells_more(spec, behind) and asked.project is None:
        features, shown = (_behind_map(data.train.items, labels, agreed, spec, n) for n in (1, chosen.min_count))
    report = Audit.of(labels, spec, dim, chosen, names, features=features, shown=shown, behind=behind)
    return _Contribution(study.data, report.before, report.after, report.withheld, report.policy)


def _tells_more(spec: Any, behind: Any) -> bool:
    """Say whether features tell more of what a contribution reveals than its labels do."""
    return bool(spec.has_sketch or {"class_grams", "gram"} & spec.moments or (behind and behind.counted))


def _behind_map(X: Any, y: Any, terms: Any, spec: Any, fewest: int) -> Any:
    """Return features as they are measured under these terms, if there are any, without values that fewer have."""
    from fedmoments.privacy.rare_values import Shown

    feature_map = None if terms is None else terms.fingerprint.feature_map
    return Shown(X, y, feature_map, spec.moments, fewest)[:]


def _of_client(path: Path, terms: Any) -> list[_Contribution]:
    """Audit what a client would measure under these terms, with its own rules."""
    from fedmoments.federation.audit import asked_for, leaving
    from fedmoments.federation.flower.choosing import Chooser
    from fedmoments.federation.flower.holdings import made_holdings
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.settings.client import ClientSettings
    from fedmoments.wire import Withheld

    settings = ClientSettings.load(existing_file(path))
    policy = ClientPolicy.from_dict(settings.policy)
    policy.require(terms)
    holdings = made_holdings(settings, terms)
    chooser, contributions = Chooser(holdings, policy, terms), []
    for client in holdings.clients:
        chosen, own = chooser.choose(client), holdings.train(client)
        asked = (terms.spec, terms.dim, policy, terms.classes)
        X = [None, None]
        if _tells_more(terms.spec, terms.map_outline):
            pairs = ((own, 1), (chosen.held, policy.min_count))
            X = [_behind_map(samples.X, samples.y, terms, terms.spec, fewest) for samples, fewest in pairs]
        before = asked_for(own.y, *asked, features=X[0], behind=terms.map_outline)
        after = leaving(chosen.held.y, *asked, features=X[1], behind=terms.map_outline)
        kept_back = Withheld(**chosen.notes["kept_back"])
        contributions.append(_Contribution(client, before, after, kept_back, policy))
    return contributions


# -------------------------------------------------------------------------------------------------- showing it


def _show(contributions: list[_Contribution], terms: Any, *, json: bool) -> None:
    secure = None if terms is None else terms.privacy.secure
    hidden = "" if terms is None else terms.privacy.mode.hides
    exposes = any(contribution.after.exposes for contribution in contributions) and not hidden
    if json:
        documents = [contribution.to_dict() for contribution in contributions]
        print_json({"exposes": exposes, "secure": secure, "contributions": documents})
    elif len(contributions) == 1:
        _show_one(contributions[0])
    else:
        _show_many(contributions)
    if hidden and not json:
        print_line(hidden)
    _end(exposes=exposes)


def _show_one(contribution: _Contribution) -> None:
    from fedmoments.core.observations import plain_moments

    outline = contribution.before.outline
    print_line(
        f"{contribution.client}: {plural(outline.n_samples, 'sample')} of {plural(len(outline.counts), 'class')}, "
        f"d = {outline.dim}; to send: {plain_moments(str(outline.spec))}"
    )
    if outline.behind is not None and outline.behind.name != "none":
        print_line(f"behind the feature map {outline.behind.text}")
    print_line("\nwithout a policy, it would reveal:")
    print_table(COLUMNS, contribution.before.rows(), right=COLUMNS[2:])
    kept = "nothing"
    if contribution.withheld.samples:
        kept = f"{plural(contribution.withheld.classes, 'class')}, {plural(contribution.withheld.samples, 'sample')}"
    print_line(f"\nthe policy (min_count = {contribution.policy.min_count}) withholds {kept}; the upload then reveals:")
    if contribution.after.findings:
        print_table(COLUMNS, contribution.after.rows(), right=COLUMNS[2:])
    else:
        print_line("nothing: no sample is sent")
    asked, sent = contribution.before.outline.sketches, contribution.after.outline.sketches
    if asked and sent:
        rules = (
            f"sketch_share = {contribution.policy.sketch_share:g}, sketch_spare = {contribution.policy.sketch_spare}"
        )
        print_line(
            f"of the sketch's {_rank(asked)} rows, {_rank(sent)} would be sent ({rules}); "
            f"{sum(sketch.spare for sketch in sent)} would describe its samples completely"
        )


def _show_many(contributions: list[_Contribution]) -> None:
    columns = ["client", "samples", "exposed", "withheld", "exposed then", "weak then"]
    kinds = ("sample", "pair", "alone", "values", "inversion", "membership")
    rows = [
        [
            contribution.client,
            f"{contribution.before.outline.n_samples:,}",
            f"{_exposed(contribution.before, kinds):,}",
            f"{contribution.withheld.samples:,}",
            f"{_exposed(contribution.after, kinds):,}",
            f"{contribution.after.about('few'):,}",
        ]
        for contribution in contributions
    ]
    if any(contribution.after.outline.sketches for contribution in contributions):
        columns.append("sketch rows")
        for row, contribution in zip(rows, contributions, strict=True):
            sent = contribution.after.outline.sketches
            row.append(f"{_rank(sent)} of {sum(sketch.spare for sketch in sent)}" if sent else "none")
    print_table(columns, rows, right=columns[1:])


def _rank(sketches: tuple[SketchOutline, ...]) -> int:
    return sum(sketch.rank for sketch in sketches)


def _exposed(report: Any, kinds: tuple[str, ...]) -> int:
    """Return of how many samples something leaves exactly; each sample counts once."""
    exposed = sum(n for kind, n in report.summary().get("exposed", {}).items() if kind in kinds)
    return int(min(exposed, report.outline.n_samples))


def _end(*, exposes: bool) -> None:
    if exposes:
        raise click.exceptions.Exit(EXPOSES)
