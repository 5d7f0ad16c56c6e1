"""The privacy card: in plain words, who learns what in a federation, under which assumption, and what is not promised.

One card a federation, made from what protects it. Reports draw it, the command line prints it, and federation.json and
results.json hold it.
"""

from collections.abc import Mapping
from typing import Any

from fedmoments.privacy.protection import Agreed

__all__ = ["privacy_card"]

_MODES = {
    None: "clear sums",
    "sums": "secure sums",
    "two-phase": "secure sums in two phases",
    "cohorts": "secure sums inside cohorts",
}
_SEALED = "Two servers, leader and helper, do not work together: whoever has both their views has every contribution."
_MEMBERS = "Most members of a batch are real: a leader that enrols clients of its own sees the sum less what it put in."


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
) -> dict[str, Any]:
    """Return the card, ready for JSON.

    Parameters
    ----------
    agreed
        What all parties agreed on.
    min_count
        Classes of fewer samples stay at the client; None where every client has a rule of its own.
    withheld
        ``classes`` and ``samples`` that clients said they kept back, over all clients.
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
    >>> card["mode"], card["facts"][0], card["withheld"]["samples"]
    ('secure sums', ['Smallest sum', 'over 3 clients'], 4)
    """
    card: dict[str, Any] = {
        "mode": _MODES[agreed.secure] + (", noised" if agreed.epsilon is not None else ""),
        "agreed": agreed.to_dict(),
        "min_count": min_count,
        "withheld": dict(withheld) if withheld is not None else None,
        "spent": dict(spent) if spent is not None else None,
        "obfuscation": obfuscation,
        "robust": robust,
        "dropped": dict(dropped or {}),
        "exposed": dict(exposed) if exposed is not None else None,
        **({"sketches": dict(sketches)} if sketches else {}),
        "simulated": simulated,
    }
    return card | {
        "facts": [list(pair) for pair in (*_agreed_facts(agreed), *_found_facts(card))],
        "sees": [list(pair) for pair in _sees(agreed)],
        "assumptions": _assumptions(agreed),
        "not_promised": [*_of_sketches(sketches), *_not_promised(agreed, obfuscation, exposed, simulated=simulated)],
    }


def _agreed_facts(agreed: Agreed) -> list[tuple[str, str]]:
    """Return pairs (name, value) of what was agreed on."""
    found: list[tuple[str, str]] = []
    if agreed.secure:
        found.append(("Smallest sum", f"over {agreed.batch} clients"))
    if agreed.secure == "cohorts":
        found.append(("Cohorts", f"of {agreed.cohort} clients, drawn by public randomness"))
    if agreed.secure in ("cohorts", "two-phase"):
        found.append(("A class is opened", f"if at least {agreed.contributors} clients hold it"))
    if agreed.epsilon is not None:
        found.append(("Budget", f"ε = {agreed.epsilon:g}, δ = {agreed.delta:g} for one {agreed.unit}"))
        found.append(("Neighbours", "one is another" if agreed.neighbours == "replace" else "one more or one less"))
        found.append(("Features", f"clipped to norm {agreed.clip:g}" if agreed.clip else "scaled to length 1"))
    return found


def _found_facts(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return pairs (name, value) of the parties' own rules and of what came of them."""
    found: list[tuple[str, str]] = []
    spent, withheld, exposed = card["spent"] or {}, card["withheld"], card["exposed"] or {}
    if spent.get("epsilon") is not None:
        releases = int(spent.get("releases", 1))
        times = "1 release" if releases == 1 else f"{releases} releases"
        found.append(("Spent", f"ε = {spent['epsilon']:.4g} in {times}{', by each head' if card['simulated'] else ''}"))
    if card["min_count"] is not None:
        least = card["min_count"]
        found.append(("Smallest class", f"{least} samples" if least > 1 else "no minimum"))
    if withheld is not None:
        classes, samples = withheld.get("classes", 0), withheld.get("samples", 0)
        found.append(("Withheld by clients", f"{classes:,} classes, {samples:,} samples"))
    if exposed.get("cells"):
        single, cells = exposed.get("single", 0), exposed["cells"]
        found.append(("Means over one sample", f"{single:,} of {cells:,} ({single / cells:.0%})"))
    if told := card.get("sketches"):
        part = f"{told['share']:.0%} of the directions that would span a client's samples, {told['most']:.0%} at most"
        found.append(("Scatter sketches", f"{part}; they hold {told['energy']:.0%} of the scatter"))
    if card["obfuscation"]:
        found.append(("Counts", f"obfuscated, {card['obfuscation']}"))
    if card["robust"] or card["dropped"]:
        found.append(("Filter", f"{card['robust'] or 'checks and caps'}, {len(card['dropped'])} clients left out"))
    return found


def _sees(agreed: Agreed) -> list[tuple[str, str]]:
    """Return pairs (who, what it learns)."""
    out = "the classifier" if agreed.epsilon is None else "the noised sums, and all that follows from them"
    if agreed.secure is None:
        first = [("The server", "each client's own counts and moments, class by class; never samples")]
    elif agreed.secure == "sums":
        what = "sums over a batch"
        what += ", and how many of its clients hold a class" if agreed.epsilon is None else ", with the helper's noise"
        first = [("The leader", what), ("The helper", "who takes part, and nothing of what they send")]
    elif agreed.secure == "two-phase":
        first = [
            ("The leader", "how many clients hold a class, class means, and one matrix over all clients"),
            ("The helper", "who takes part, how many clients hold a class, and the class means of all together"),
            ("The clients", "the class means of all together, which are sent back to them"),
        ]
    else:
        first = [
            ("The leader", "how many members of a cohort hold a class, and class means where enough do"),
            ("The helper", "who takes part, and how many members of a cohort hold a class"),
        ]
    return [*first, ("Other clients and users", out)]


def _assumptions(agreed: Agreed) -> list[str]:
    """Return what must be true for the promises to hold."""
    found = ["Clients run this code: their own policy acts before anything is measured."]
    if agreed.secure:
        found += [_SEALED, _MEMBERS]
    if agreed.epsilon is not None:
        trusted = "Each of the two servers adds the full noise" if agreed.secure else "The server is trusted to add it"
        found.append(
            f"{trusted}. Clip norm, weights and shrinkage are public constants: tuned on the private data they would "
            "void the promise."
        )
    return found


def _of_sketches(sketches: Mapping[str, float] | None) -> list[str]:
    """Return what a scatter sketch does not hide."""
    if not sketches or not sketches["rows"]:
        return []
    sentence = (
        "A sketch tells in which directions a client's samples differ most from their class means: whoever knows a "
        "sample can guess whether it was there, and an outlier of a small client may stand in a row nearly by itself."
    )
    return [sentence]


def _not_promised(
    agreed: Agreed, obfuscation: str | None, exposed: Mapping[str, int] | None, *, simulated: bool
) -> list[str]:
    """Return what a reader might think is promised, and is not."""
    found = []
    if exposed is not None and exposed.get("single"):
        found.append("A mean over one sample is that sample's feature vector, exactly.")
    if agreed.epsilon is None:
        found.append("Differential privacy: sums of few clients, or two results that differ by one, can be told apart.")
    elif agreed.unit == "sample":
        found.append("A client with many samples is not hidden: the noise hides one sample.")
    if simulated and agreed.epsilon is not None:
        found.append("This page is not covered: of a simulation it shows counts, diagnostics and errors without noise.")
    if agreed.secure:
        if agreed.secure == "sums" and agreed.epsilon is None:
            found.append("A class that one client of the batch holds alone: its sum is that client's.")
        found.append("Nobody can check a single client's numbers, nor take one client out of a sum.")
    else:
        found.append("Secrecy from the server itself: it reads every contribution.")
    if obfuscation:
        found.append("Obfuscated counts are not differential privacy.")
    return found
