"""What ``fedmoments client --plan`` shows: all that would be sent, measured and signed, but kept here."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmoments.cli.client_folder import TERMS
from fedmoments.cli.ledger import withheld_text
from fedmoments.cli.output import SHOWN, fail, plural, print_json, print_line, print_table, readable_bytes
from fedmoments.errors import FedMomentsError
from fedmoments.settings.client import ClientSettings

__all__ = ["show_plan"]


def show_plan(path: Path, settings: ClientSettings, terms: Any, *, json: bool) -> None:
    """Measure and sign as if the server had asked, keep nothing, and show what it would get."""
    from fedmoments.federation.own_data import accepted_terms, own_classes
    from fedmoments.federation.policy import ClientPolicy

    policy = ClientPolicy.from_dict(settings.policy)
    sent, notes = _signed(settings, terms, policy)
    if not json:
        _show(path, settings, terms, policy, [(each, notes[each.client]) for each in sent])
        return
    contributions = [
        {
            "client": contribution.client,
            "bytes": _size(contribution, terms),
            "samples": contribution.statistics.n_samples,
            "classes": _held(contribution, terms),
            "withheld": {
                "classes": contribution.withheld.classes,
                "samples": contribution.withheld.samples,
                "class_names": notes[contribution.client].get("classes_kept_back", []),
                "unreadable": notes[contribution.client].get("unreadable", {"samples": 0, "names": []}),
            },
        }
        for contribution in sent
    ]
    document = {"settings": str(path), "federation": terms.id, "moments": list(terms.spec.sent)}
    document["unknown"] = own_classes(settings, accepted_terms(settings, terms)).unknown
    document["tuning"] = "none" if terms.privacy.mode.promise else policy.tuning
    print_json({**document, "contributions": contributions})


def _signed(settings: ClientSettings, terms: Any, policy: Any) -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """Return the contributions that would be sent, and what each client's own record would note."""
    from fedmoments.federation.flower.choosing import Chooser
    from fedmoments.federation.flower.holdings import holdings_of
    from fedmoments.federation.flower.node import Node, identity_of
    from fedmoments.wire import decode, unpack_bundle

    unsent = replace(settings, folder="", memory=settings.memory or settings.folder)
    own, clear = _unmasked(unsent, terms, policy)
    offer = Node(own).contribute(clear, most_bytes=2**62)
    if offer.declined:
        fail(" ".join(f"client {entry['client']} would send nothing: {entry['details']}" for entry in offer.declined))
    sent = [
        decode(item, clear.agreement, lambda client: identity_of(settings, client).public)
        for item in unpack_bundle(offer.bundle, max_bytes=2**62, max_items=2**20)
    ]
    chooser = Chooser(holdings_of(own, clear), policy, clear)  # read and encoded above
    return sent, {contribution.client: chooser.choose(contribution.client).notes for contribution in sent}


def _held(contribution: Any, terms: Any) -> dict[str, int]:
    """Return how many samples of each class it would tell of."""
    stats = contribution.statistics
    return {terms.classes[label]: int(n) for label, n in zip(stats.classes, stats.class_counts)}  # noqa: B905


def _show(
    path: Path, settings: ClientSettings, terms: Any, policy: Any, sent: list[tuple[Any, Mapping[str, Any]]]
) -> None:
    from fedmoments.cli.server_create import show_terms
    from fedmoments.federation.own_data import accepted_terms, own_classes

    show_terms(terms)
    for contribution, notes in sent:
        _show_contribution(contribution, terms)
        _show_kept_back(notes)
    own = own_classes(settings, accepted_terms(settings, terms))
    if settings.also:
        print_line(f"data: {settings.data} and, added later, {', '.join(settings.also)}")
    if unused := sorted(set(settings.classes) - set(own.names)):
        print_line(f"warning: --alias names {', '.join(unused)}, but no class in these data has that name")
    if own.unknown:
        print_line(
            f"left out: {_counted(own.unknown)}, which the federation does not have; their names are not sent either"
        )
    if own.held_out and settings.evaluate:
        print_line(_testing_text(policy, terms, own.held_out))
    elif settings.by_file:
        print_line("no sample is kept for tests: --test FILE names some")
    print_line(_tuning_text(policy, terms))
    print_line(f"wrote {path}; nothing was sent")
    file = path.with_name(TERMS)
    print_line(
        f"'fedmoments audit --config {path} --terms {file if file.exists() else 'FILE'}' shows what it would reveal"
    )


def _counted(classes: Mapping[str, int]) -> str:
    """Return classes with their numbers of samples.

    Examples
    --------
    >>> _counted({"yak": 3, "emu": 1})
    'yak (3 samples), emu (1 sample)'
    """
    named = [f"{name} ({plural(n, 'sample')})" for name, n in list(classes.items())[:SHOWN]]
    return ", ".join(named) + (f" and {len(classes) - SHOWN:,} more classes" if len(classes) > SHOWN else "")


def _show_contribution(contribution: Any, terms: Any) -> None:
    held, samples = _held(contribution, terms), contribution.statistics.n_samples
    print_line(
        f"\n{contribution.client} would send {readable_bytes(_size(contribution, terms))}"
        f"{terms.privacy.mode.masks}: {terms.spec} of {plural(samples, 'sample')} of {plural(len(held), 'class')}; "
        f"withheld: {withheld_text(contribution.withheld.classes, contribution.withheld.samples)}"
    )
    print_table(["class", "samples"], [[name, f"{n:,}"] for name, n in list(held.items())[:SHOWN]], right=["samples"])
    if len(held) > SHOWN:
        print_line(f"… and {len(held) - SHOWN:,} more classes")
    if not samples:
        print_line("it would contribute nothing: the rules withhold everything, or there is no sample")


def _show_kept_back(notes: Mapping[str, Any]) -> None:
    """Name what stays here: classes by the client's own rules, and files that cannot be read."""
    names, unreadable = notes.get("classes_kept_back", []), notes.get("unreadable")
    if names:
        print_line(f"withheld by this client's own rules, as too small: {', '.join(names)}")
    if unreadable:
        more = unreadable["samples"] - len(unreadable["names"])
        print_line(
            f"{plural(unreadable['samples'], 'file')} could not be read, and would be left out: "
            f"{', '.join(unreadable['names'])}{f' and {more:,} more' if more else ''}"
        )


def _testing_text(policy: Any, terms: Any, held_out: int) -> str:
    """Return in one sentence what would leave of held-out samples.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> from fedmoments.privacy import Agreed
    >>> _testing_text(Some(allow_evaluation=False, max_heads=20), Some(privacy=Agreed(epsilon=1.0)), 9)
    '9 further samples are kept for tests; no result is sent: under an epsilon of 1.0 that needs --allow-evaluation'
    """
    mode, samples = terms.privacy.mode, plural(held_out, "further sample")
    if mode.promise and not policy.allow_evaluation:
        return f"{samples} are kept for tests; no result is sent: under {mode.promise} that needs --allow-evaluation"
    form = "noised" if mode.noise.is_on else "rounded"
    return (
        f"{samples} are kept for tests; {form} counts of right answers would be sent{mode.masks}, for at most "
        f"{plural(policy.max_heads, 'head')} in all"
    )


def _tuning_text(policy: Any, terms: Any) -> str:
    """Return in one sentence what may be trained on this client's samples.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> from fedmoments.privacy import Agreed
    >>> _tuning_text(Some(tuning="none", max_rounds=None), Some(privacy=Agreed()))
    'no model would be trained on its samples: that needs --allow-tuning'
    """
    if terms.privacy.mode.promise:
        return "no model would be trained on its samples: the privacy mode of the terms rules it out"
    if policy.tuning == "none":
        return "no model would be trained on its samples: that needs --allow-tuning"
    what = {"lp": "a head", "feat": "a head or an encoder", "ft": "a head, an encoder or both"}[policy.tuning]
    rounds = "" if policy.max_rounds is None else f", in at most {plural(policy.max_rounds, 'round')}"
    return (
        f"if the server asks, {what} would be trained on the samples that are not withheld{rounds}; every round then "
        "sends parameters, which reveal more of single samples than moments do"
    )


def _unmasked(settings: ClientSettings, terms: Any, policy: Any) -> tuple[ClientSettings, Any]:
    """Return settings and terms under which this client would measure the same and send it in the clear, to itself.

    Its policy is asked about the true terms first.
    """
    if terms.privacy.mode.reads_contributions:
        return settings, terms
    try:
        policy.require(terms)
    except FedMomentsError as error:
        fail(f"client {settings.name} would send nothing: {error}")
    clear = replace(terms, privacy=terms.privacy.mode.unmasked)
    rules = {name: rule for name, rule in settings.policy.items() if name not in ("require_secure", "helper")}
    return replace(settings, policy=rules, federation=clear.id if settings.federation else ""), clear


def _size(contribution: Any, terms: Any) -> int:
    """Return the bytes that would leave: a masked report has places for all classes, held or not."""
    return int(terms.privacy.mode.cost(terms, clear=contribution.size).up)
