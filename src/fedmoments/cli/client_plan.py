"""What ``fedmoments client --plan`` shows: all that would be sent, measured and signed, but kept here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmoments.cli.ledger import withheld_text
from fedmoments.cli.output import fail, plural, print_json, print_line, print_table, readable_bytes
from fedmoments.errors import FedMomentsError

__all__ = ["show_plan"]

#: Classes that are listed.
SHOWN = 20


def show_plan(path: Path, settings: Any, terms: Any, *, json: bool) -> None:
    """Measure and sign as if the server had asked, keep nothing, and show what it would get."""
    from fedmoments.cli.server_create import show_terms
    from fedmoments.flower.node import Node, identity_of
    from fedmoments.jobs.encoding import read_data
    from fedmoments.wire import decode, unpack_bundle

    own, clear = _unmasked(replace(settings, folder=""), terms)
    offer = Node(own).contribute(clear, most_bytes=2**62)
    if offer.declined:
        fail(" ".join(f"client {each['client']} would send nothing: {each['why']}" for each in offer.declined))
    sent = [
        decode(item, clear.agreement, lambda client: identity_of(settings, client).public)
        for item in unpack_bundle(offer.bundle, max_bytes=2**62, max_items=2**20)
    ]
    counts = [
        {terms.classes[label]: int(n) for label, n in zip(each.statistics.classes, each.statistics.class_counts)}  # noqa: B905
        for each in sent
    ]
    if json:
        contributions = [
            {
                "client": each.client,
                "bytes": _size(each, terms),
                "samples": each.statistics.n_samples,
                "classes": held,
                "withheld": {"classes": each.withheld.classes, "samples": each.withheld.samples},
            }
            for each, held in zip(sent, counts, strict=True)
        ]
        document = {"settings": str(path), "federation": terms.id, "moments": list(terms.spec.sent)}
        document["tuning"] = "none" if _promised(terms) else settings.own_policy.tuning
        print_json({**document, "contributions": contributions})
        return
    show_terms(terms)
    for each, held in zip(sent, counts, strict=True):
        print_line(
            f"\n{each.client} would send {readable_bytes(_size(each, terms))}"
            f"{', masked' if terms.privacy.secure else ''}: {terms.spec} of "
            f"{plural(each.statistics.n_samples, 'sample')} of {plural(len(held), 'class')}; withheld: "
            f"{withheld_text(each.withheld.classes, each.withheld.samples)}"
        )
        rows = [[cls, f"{count:,}"] for cls, count in list(held.items())[:SHOWN]]
        print_table(["class", "samples"], rows, right=["samples"])
        if len(held) > SHOWN:
            print_line(f"… and {len(held) - SHOWN:,} more classes")
        if not each.statistics.n_samples:
            print_line("it would contribute nothing: the rules keep everything back, or there is no sample")
    held_out = len(read_data(settings.job("", {})).test)
    if held_out and settings.evaluate:
        masks = ", unmasked" if terms.privacy.secure else ""
        print_line(
            f"of {plural(held_out, 'further sample')}, held out to test, only sums of results would leave{masks}"
        )
    print_line(_tuning_text(settings.own_policy, terms))
    print_line(f"wrote {path}; nothing left this machine")
    print_line(f"'fedmoments audit --config {path} --terms FILE' says what it would reveal")


def _promised(terms: Any) -> bool:
    """Say whether the terms promise what rules tuning out."""
    return bool(terms.privacy.secure or terms.privacy.epsilon is not None)


def _tuning_text(policy: Any, terms: Any) -> str:
    """Return in one sentence what may be trained on this client's samples.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> _tuning_text(Some(tuning="none", max_rounds=None), Some(privacy=Some(secure=None, epsilon=None)))
    'no model would be trained on its samples: that takes --allow-tuning'
    """
    if _promised(terms):
        return "no model would be trained on its samples: the terms' promise rules it out"
    if policy.tuning == "none":
        return "no model would be trained on its samples: that takes --allow-tuning"
    what = {"lp": "a head", "feat": "a head or an encoder", "ft": "a head, an encoder or both"}[policy.tuning]
    rounds = "" if policy.max_rounds is None else f", in at most {plural(policy.max_rounds, 'round')}"
    return (
        f"if the server asks, {what} would be trained on the samples that are not withheld{rounds}; every round then "
        "sends parameters, which reveal more of single samples than moments do"
    )


def _unmasked(settings: Any, terms: Any) -> tuple[Any, Any]:
    """Return settings and terms under which this client would measure the same and send it in the clear, to itself.

    Its policy is asked about the true terms first.
    """
    if terms.privacy.secure is None:
        return settings, terms
    try:
        settings.own_policy.require(terms)
    except FedMomentsError as error:
        fail(f"client {settings.name} would send nothing: {error}")
    clear = replace(terms, privacy=replace(terms.privacy, secure=None, helper=""))
    policy = {name: rule for name, rule in settings.policy.items() if name not in ("require_secure", "helper")}
    return replace(settings, policy=policy, federation=clear.id if settings.federation else ""), clear


def _size(contribution: Any, terms: Any) -> int:
    """Return the bytes that would leave: a masked report has places for all classes, held or not."""
    from fedmoments.privacy.secure import OVERHEAD_BYTES

    return OVERHEAD_BYTES + 8 * terms.layout.size if terms.privacy.secure else int(contribution.size)
