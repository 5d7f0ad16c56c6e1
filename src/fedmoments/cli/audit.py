"""``fedmoments audit``: what a contribution would reveal, and what the client's policy keeps back of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import (
    Domains,
    Encoder,
    ImageColumn,
    Json,
    LabelColumn,
    Pooling,
    Size,
    Strict,
    TestFile,
    TestShare,
    TextColumn,
    example,
    existing_file,
    listed,
)
from fedmoments.cli.output import plural, print_json, print_line, print_table
from fedmoments.errors import InputError

__all__ = ["EXPOSES", "audit_command"]

EXAMPLE = example(
    "fedmoments audit --data runs/demo/digits.npz --head fedcof",
    "fedmoments measure runs/demo/digits.npz --head fedcof --client clinic --out clinic.stats",
    "fedmoments audit clinic.stats",
)
#: Exit code when something about a single sample would leave exactly.
EXPOSES = 3
COLUMNS = ["severity", "what it reveals", "classes", "samples"]


@dataclass(frozen=True)
class _Contribution:
    """One contribution: whose it is, what it reveals without and with the policy, and what that keeps back."""

    client: str
    before: Any
    after: Any
    withheld: Any
    policy: Any

    def to_dict(self) -> dict[str, Any]:
        kept_back = {"classes": self.withheld.classes, "samples": self.withheld.samples}
        reports = {"before": self.before.to_dict(), "after": self.after.to_dict()}
        return {"client": self.client, **reports, "withheld": kept_back}


def audit_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("audit", cls=PlainCommand, short_help="Say what a contribution would reveal.", epilog=EXAMPLE)(_audit)


def _audit(
    statistics: Annotated[
        Path | None, typer.Argument(help="A statistics file that 'fedmoments measure' wrote; or --data, or --config.")
    ] = None,
    *,
    data: Annotated[str | None, typer.Option(help="digits, folder:PATH, csv:PATH, npz:PATH … or a path.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A client.toml: data and rules of a client; with --terms.")
    ] = None,
    terms: Annotated[Path | None, typer.Option(help="A federation's terms: what it asks for.")] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="Instead of terms: the least that serves this head; may be repeated.")
    ] = None,
    moments: Annotated[str | None, typer.Option(help="Instead of terms: gram,client_means,…")] = None,
    means_per_client: Annotated[int, typer.Option(help="Means to send of each class (client_means).")] = 1,
    budget: Annotated[
        str | None, typer.Option(help="Instead of terms: bytes for means and scatter sketch, as means/2 or 50KB.")
    ] = None,
    project: Annotated[int | None, typer.Option(metavar="K", help="Measured behind a map to K dimensions.")] = None,
    min_count: Annotated[
        int | None, typer.Option(help="The policy: withhold a class with fewer samples; 5 by default.")
    ] = None,
    small_classes: Annotated[
        str | None, typer.Option(help="The policy: withhold, or merge, classes and means of too few samples.")
    ] = None,
    sketch_share: Annotated[
        float | None, typer.Option(help="The policy: part of n − |C| that a sketch may span; 0.25 by default.")
    ] = None,
    sketch_spare: Annotated[
        int | None, typer.Option(help="The policy: no sketch rows with fewer than so many n − |C|; 20 by default.")
    ] = None,
    encoder: Encoder = None,
    size: Size = None,
    pooling: Pooling = None,
    text: TextColumn = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    domains: Domains = None,
    test: TestFile = None,
    test_share: TestShare = None,
    strict: Strict = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the samples to test on.")] = None,
    json: Json = False,
) -> None:
    """Say what a contribution would reveal to whoever reads it, and what the client's policy keeps back.

    Of a file that is measured already, nothing can be kept back any more. Of data nothing is measured but, where
    features are at hand, what a scatter sketch would tell of them; and nothing leaves. Exit code 3 says that something
    about a single sample (its features, or that it was there) would leave exactly; 0, that nothing would.
    """
    of_data: dict[str, Any] = {
        "encoder": encoder,
        "size": size,
        "pooling": pooling,
        "text": text,
        "image": image,
        "label": label,
    }
    of_data |= {"domains": domains, "test": test, "test_share": test_share, "strict": strict, "seed": seed}
    typed = {name: value for name, value in of_data.items() if value is not None}
    rules = {"min_count": min_count, "small_classes": small_classes}
    rules |= {"sketch_share": sketch_share, "sketch_spare": sketch_spare}  # type: ignore[dict-item]
    rules = {name: value for name, value in rules.items() if value is not None}
    asked = {"head": head, "moments": moments, "project": project, "budget": budget}
    asked = {name: value for name, value in asked.items() if value is not None}
    if means_per_client != 1:
        asked["means_per_client"] = means_per_client
    if sum(given is not None for given in (statistics, data, config)) != 1:
        raise InputError("say what to audit: a statistics file, --data DATA, or --config FILE; one of them")
    if statistics is not None:
        _require_none({**typed, **asked, **({"terms": terms} if terms else {})}, str(statistics))
        _of_file(statistics, rules, json=json)
        return
    agreed = _terms(terms)
    if (agreed is None) == (not asked):
        raise InputError("say what is asked for: --terms FILE, or --head NAME or --moments gram,…; one of both")
    if config is not None:
        _require_none({**typed, **asked, **rules}, str(config))
        found = _of_client(config, agreed)
    else:
        found = [_of_data(str(data), typed, rules, agreed, asked)]
    _show(found, agreed, json=json)


def _require_none(given: dict[str, Any], what: str) -> None:
    if given:
        options = ", ".join(f"--{name}".replace("_", "-") for name in given)
        raise InputError(f"{options}: {what} says that itself: leave it out")


def _terms(path: Path | None) -> Any:
    from fedmoments.federation.terms import Terms

    return None if path is None else Terms.from_json(existing_file(path).read_text("utf-8", errors="replace"))


# -------------------------------------------------------------------------------------------------- what is audited


def _of_file(path: Path, rules: dict[str, Any], *, json: bool) -> None:
    """Audit what was measured already."""
    from fedmoments.cli.notes import Contribution
    from fedmoments.federation.audit import fewest
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.privacy.leaks import LeakReport

    part = Contribution(path)
    policy = ClientPolicy.from_dict(rules)
    report = LeakReport.of(part.stats, min_count=fewest(policy), class_names=part.class_names)
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


def _of_data(data: str, typed: dict[str, Any], rules: dict[str, Any], agreed: Any, asked: dict[str, Any]) -> Any:
    """Audit data, from their labels alone."""
    from fedmoments.cli.measure import spec_of
    from fedmoments.federation.audit import Audit
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.flower.holdings import label_table
    from fedmoments.jobs import JobConfig
    from fedmoments.jobs.encoding import choose_encoder, read_data

    job = JobConfig().changed({"data": data, **typed}, "the command line")
    found = read_data(job)
    if agreed is not None:
        labels = label_table(found.class_names, agreed.classes)[found.train.labels]
        spec, dim, names = agreed.spec, agreed.dim, agreed.classes
    else:
        moments = listed(asked["moments"], str, "--moments") if "moments" in asked else []
        several, budget = asked.get("means_per_client", 1), asked.get("budget")
        spec = spec_of(asked.get("head", []), moments, several, asked.get("project"), budget=budget)
        given = found.train.items.shape[1] if found.modality == "features" else None  # type: ignore[union-attr]
        dim = asked.get("project") or choose_encoder(job, found.modality, given).dim
        labels, names = found.train.labels, found.class_names
    features = None
    if found.modality == "features" and spec.has_sketch and "project" not in asked:
        features = _behind_map(found.train.items, agreed)
    audit = Audit.of(labels, spec, dim, ClientPolicy.from_dict(rules), names, features=features)
    return _Contribution(data, audit.before, audit.after, audit.withheld, audit.policy)


def _behind_map(X: Any, terms: Any) -> Any:
    """Return features as they are measured under these terms, if there are any."""
    feature_map = None if terms is None else terms.fingerprint.feature_map
    return feature_map(X) if feature_map else X


def _of_client(path: Path, terms: Any) -> list[_Contribution]:
    """Audit what a client would measure under these terms, with its own rules."""
    from fedmoments.federation.audit import asked_for, leaving
    from fedmoments.flower.choosing import Chooser
    from fedmoments.flower.holdings import Holdings
    from fedmoments.flower.settings import ClientSettings
    from fedmoments.wire import Withheld

    settings = ClientSettings.load(existing_file(path))
    policy = settings.own_policy
    policy.require(terms)
    holdings = Holdings(settings, terms)
    chooser, found = Chooser(holdings, policy, terms), []
    for client in holdings.clients:
        chosen, own = chooser.choose(client), holdings.train(client)
        asked = (terms.spec, terms.dim, policy, terms.classes)
        X = [_behind_map(each.X, terms) if terms.spec.has_sketch else None for each in (own, chosen.held)]
        before = asked_for(own.y, *asked, features=X[0])
        after = leaving(chosen.held.y, *asked, features=X[1])
        kept_back = Withheld(**chosen.notes["kept_back"])
        found.append(_Contribution(client, before, after, kept_back, policy))
    return found


# -------------------------------------------------------------------------------------------------- showing it


def _show(found: list[_Contribution], terms: Any, *, json: bool) -> None:
    secure = None if terms is None else terms.privacy.secure
    exposes = any(each.after.exposes for each in found) and secure is None
    if json:
        print_json({"exposes": exposes, "secure": secure, "contributions": [each.to_dict() for each in found]})
    elif len(found) == 1:
        _show_one(found[0])
    else:
        _show_many(found)
    if secure and not json:
        print_line(
            f"these terms add up securely ({secure}): the server reads sums over {terms.privacy.batch} clients or more,"
            " and what stands above only together with the helper"
        )
    _end(exposes=exposes)


def _show_one(each: _Contribution) -> None:
    outline = each.before.outline
    print_line(
        f"{each.client}: {plural(outline.n_samples, 'sample')} of {plural(len(outline.counts), 'class')}, "
        f"d = {outline.dim}; asked are {outline.spec}"
    )
    print_line("\nwithout a policy it would reveal")
    print_table(COLUMNS, each.before.rows(), right=COLUMNS[2:])
    kept = "nothing"
    if each.withheld.samples:
        kept = f"{plural(each.withheld.classes, 'class')}, {plural(each.withheld.samples, 'sample')}"
    print_line(f"\nthe policy (min_count = {each.policy.min_count}) keeps back {kept}; what leaves reveals")
    if each.after.findings:
        print_table(COLUMNS, each.after.rows(), right=COLUMNS[2:])
    else:
        print_line("nothing: no sample leaves")
    for asked, sent in zip(each.before.outline.sketches, each.after.outline.sketches, strict=False):
        rules = f"sketch_share = {each.policy.sketch_share:g}, sketch_spare = {each.policy.sketch_spare}"
        print_line(
            f"of the {asked.rank} asked rows of its scatter sketch, {sent.rank} leave ({rules}); {sent.spare} would "
            "span its samples"
        )


def _show_many(found: list[_Contribution]) -> None:
    columns = ["client", "samples", "exposed", "withheld", "exposed then", "weak then"]
    kinds = ("sample", "pair", "values", "membership")
    rows = [
        [
            each.client,
            f"{each.before.outline.n_samples:,}",
            f"{_exposed(each.before, kinds):,}",
            f"{each.withheld.samples:,}",
            f"{_exposed(each.after, kinds):,}",
            f"{each.after.about('few'):,}",
        ]
        for each in found
    ]
    if any(each.after.outline.sketches for each in found):
        columns.append("sketch rows")
        for row, each in zip(rows, found, strict=True):
            row.append(", ".join(f"{s.rank} of {s.spare}" for s in each.after.outline.sketches) or "none")
    print_table(columns, rows, right=columns[1:])


def _exposed(report: Any, kinds: tuple[str, ...]) -> int:
    """Return how many samples something exact is told of, each once."""
    told = sum(n for kind, n in report.summary().get("exposed", {}).items() if kind in kinds)
    return int(min(told, report.outline.n_samples))


def _end(*, exposes: bool) -> None:
    if exposes:
        raise typer.Exit(EXPOSES)
