"""The privacy card: in plain language, who learns what, under which assumption, and what is not promised.

One card a federation, made from what protects it. Reports draw it, the command line prints it, and federation.json and
results.json hold it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedmoments.core.observations.federated import PrivacyCard
from fedmoments.privacy.modes import Mode
from fedmoments.privacy.protection import Agreed

__all__ = ["privacy_card"]


def privacy_card(
    agreed: Agreed,
    *,
    min_count: int | None = None,
    withheld: Mapping[str, int] | None = None,
    spent: Mapping[str, Any] | None = None,
    obfuscation: str | None = None,
    robust: str | None = None,
    dropped: Mapping[str, str] | None = None,
    exposed: Mapping[str, int] | None = None,
    sketches: Mapping[str, float] | None = None,
    simulated: bool = False,
) -> PrivacyCard:
    """Return the card.

    Parameters
    ----------
    agreed
        What all parties agreed on.
    min_count
        Classes of fewer samples stay at the client; None where every client has a rule of its own.
    withheld
        ``classes`` and ``samples`` that clients said they withheld, over all clients.
    spent
        Of differential privacy: ``epsilon``, ``delta``, ``releases``, and whatever else the accountant tells.
    obfuscation
        What clients did to their counts.
    robust, dropped
        The server's filter, and which clients it left out, with the reason.
    exposed
        ``cells``: means that left, one a client and class; ``single``: those over one sample; ``small``: those below 5.
    sketches
        What all clients' scatter sketches tell: :func:`fedmoments.privacy.sketch_leaks.sketch_facts`; None without any.
    simulated
        Whether one process played all parties: then every head has a release of its own, and the report beside the card
        knows everything.

    Examples
    --------
    >>> card = privacy_card(Agreed(secure="sums"), min_count=5, withheld={"classes": 3, "samples": 4})
    >>> card.mode, card.facts[0], card.withheld["samples"]
    ('secure sums', ('Smallest sum', 'over 3 clients'), 4)
    """
    mode = agreed.mode
    card = PrivacyCard(
        mode.title + mode.noise.title,
        agreed.to_dict(),
        min_count,
        withheld,
        spent,
        obfuscation,
        robust,
        dropped or {},
        exposed,
        sketches or None,
        simulated,
    )
    return replace(
        card,
        facts=(*mode.facts(), *_rule_facts(card), *_exposure_facts(card), *_server_facts(card)),
        sees=(*mode.sees(), ("Other clients and users", mode.noise.published)),
        assumptions=tuple(mode.assumptions()),
        not_promised=tuple(_not_promised(mode, card)),
    )


def _rule_facts(card: PrivacyCard) -> list[tuple[str, str]]:
    """Return what was spent, and what clients withheld."""
    facts: list[tuple[str, str]] = []
    spent, withheld = card.spent or {}, card.withheld
    if spent.get("epsilon") is not None:
        releases = int(spent.get("releases", 1))
        times = "1 release" if releases == 1 else f"{releases} releases"
        facts.append(("Spent", f"ε = {spent['epsilon']:.4g} in {times}{', by each head' if card.simulated else ''}"))
    if card.min_count is not None:
        least = card.min_count
        facts.append(("Smallest class", f"{least} samples" if least > 1 else "no minimum"))
    if withheld is not None:
        classes, samples = withheld.get("classes", 0), withheld.get("samples", 0)
        facts.append(("Withheld by clients", f"{classes:,} classes, {samples:,} samples"))
    return facts


def _exposure_facts(card: PrivacyCard) -> list[tuple[str, str]]:
    """Return how much means and sketches tell of single samples."""
    facts: list[tuple[str, str]] = []
    exposed = card.exposed or {}
    if exposed.get("cells"):
        single, cells = exposed.get("single", 0), exposed["cells"]
        facts.append(("Means of one sample", f"{single:,} of {cells:,} ({single / cells:.0%})"))
    if sketches := card.sketches:
        part, most, energy = (f"{sketches[name]:.0%}" for name in ("share", "most", "energy"))
        text = f"{part} of the directions that describe a client's samples completely, {most} at most"
        facts.append(("Scatter sketches", f"{text}; they hold {energy} of the scatter"))
    return facts


def _server_facts(card: PrivacyCard) -> list[tuple[str, str]]:
    """Return what blurs counts, and what the server leaves out."""
    facts: list[tuple[str, str]] = []
    if card.obfuscation:
        facts.append(("Counts", f"obfuscated, {card.obfuscation}"))
    if card.robust or card.dropped:
        facts.append(("Filter", f"{card.robust or 'checks and caps'}, {len(card.dropped)} clients left out"))
    return facts


def _not_promised(mode: Mode, card: PrivacyCard) -> list[str]:
    """Return what a reader might think is promised, and is not."""
    lines = _of_sketches(card.sketches)
    if (card.exposed or {}).get("single"):
        lines.append("The mean of one sample is exactly that sample's feature vector.")
    lines += [*mode.noise.not_promised(simulated=card.simulated), *mode.not_promised()]
    if card.obfuscation:
        lines.append("Obfuscated counts are not differential privacy.")
    return lines


def _of_sketches(sketches: Mapping[str, float] | None) -> list[str]:
    """Return what a scatter sketch does not hide."""
    if not sketches or not sketches["rows"]:
        return []
    sentence = (
        "A sketch shows in which directions a client's samples differ most from their class means. An observer who "
        "has a sample can guess whether it was used, and an outlier at a small client may make up most of a row."
    )
    return [sentence]
