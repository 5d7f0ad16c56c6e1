"""What simulated attackers do to their own statistics before they send them.

An attack is a word, or several joined by ``+``; every part names its own attackers:

==============================  =====================================================================================
``flip:SHARE[:FACTOR]``         label c is sent as c + 1, counts and all sums times FACTOR (1): no inequality is broken
``target:SHARE:CLASS[:FACTOR]`` everything is sent as of one CLASS, times FACTOR (1)
``junk:SHARE[:KIND]``           second moments are replaced: KIND ``huge`` (no data have them; the default),
                                ``random`` (right trace, one random direction) or ``empty`` (no scatter at all)
``shift:SHARE:SIZE[:FACTOR]``   all means move by SIZE within-class standard deviations in one common direction
``lure:SHARE:PART[:FACTOR]``    every class mean moves PART of the way to the mean of the next class
==============================  =====================================================================================

SHARE of the clients (at least one) attack. A moved client moves all its samples, so its moments stay those of data.
The standard deviation of ``shift`` is the root of the trace of the scatter within classes over all clients.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.robust.centres import stack
from fedmoments.privacy.robust.moving import relabelled, rescattered, translated
from fedmoments.privacy.robust.spread import FINEST, within_variance

__all__ = ["ATTACKS", "Attack", "parse_attack", "poison"]

Parties = dict[Hashable, Statistics]

#: Name -> (what stands behind the share, what it is if it is left out).
ATTACKS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "flip": (("factor", "1"),),
    "target": (("class", None), ("factor", "1")),
    "junk": (("kind", "huge"),),
    "shift": (("size", None), ("factor", "1")),
    "lure": (("part", None), ("factor", "1")),
}
KINDS = ("huge", "random", "empty")


@dataclass(frozen=True)
class Attack:
    """One part of an attack.

    Parameters
    ----------
    name
        One of `ATTACKS`.
    share
        Share of the clients that attack, above 0 and up to 1.
    settings
        What stands behind the share, by name.

    Examples
    --------
    >>> parse_attack("flip:0.1:100")
    (Attack(name='flip', share=0.1, settings={'factor': 100}),)
    """

    name: str
    share: float
    settings: Mapping[str, Any]

    def apply(self, statistics: Mapping[Any, Statistics], seed: int) -> tuple[Parties, frozenset[Hashable]]:
        """Return everybody's statistics with those of the attackers changed, and who they are.

        Parameters
        ----------
        statistics
            Client -> honest statistics.
        seed
            Draws the attackers and what is random in the attack.
        """
        rng = np.random.default_rng([seed, *self.name.encode()])
        able = [client for client, stats in statistics.items() if stats.n_samples and self._can(stats)]
        number = min(max(round(self.share * len(statistics)), 1), len(able))
        chosen = [able[i] for i in sorted(rng.choice(len(able), number, replace=False).tolist())]
        change = self._change(statistics, rng)
        changed: Parties = dict(statistics)
        changed.update((client, change(statistics[client])) for client in chosen)
        return changed, frozenset(chosen)

    def _can(self, stats: Statistics) -> bool:
        """Whether a client has what is attacked: without second moments there is nothing to send junk for."""
        return self.name != "junk" or bool(stats.spec.moments & {*FINEST})

    def _change(
        self, statistics: Mapping[Any, Statistics], rng: np.random.Generator
    ) -> Callable[[Statistics], Statistics]:
        """Return what every attacker does."""
        some = next(iter(statistics.values()))
        settings = self.settings
        if self.name == "flip":
            moved = (np.arange(some.n_classes) + 1) % some.n_classes
            return lambda stats: relabelled(stats, moved, settings["factor"])
        if self.name == "target":
            if settings["class"] >= some.n_classes:
                raise InputError(
                    f"the attack aims at class {settings['class']}, but there are {some.n_classes}: "
                    f"choose one from 0 to {some.n_classes - 1}"
                )
            moved = np.full(some.n_classes, settings["class"])
            return lambda stats: relabelled(stats, moved, settings["factor"])
        if self.name == "junk":
            return lambda stats: rescattered(stats, settings["kind"], rng)
        steps = self._steps(statistics, rng)
        same = np.arange(some.n_classes)
        return lambda stats: relabelled(translated(stats, steps), same, settings["factor"])

    def _steps(self, statistics: Mapping[Any, Statistics], rng: np.random.Generator) -> NDArray[np.float64]:
        """Return by how much every class mean moves, (C, d)."""
        cells = stack(statistics)
        if self.name == "lure":
            totals = np.zeros((cells.n_classes, cells.means.shape[1]))
            np.add.at(totals, cells.labels, cells.means * cells.counts[:, None])
            means = totals / np.maximum(np.bincount(cells.labels, cells.counts, cells.n_classes), 1)[:, None]
            return np.asarray(self.settings["part"] * (np.roll(means, -1, axis=0) - means))
        direction = rng.normal(size=cells.means.shape[1])
        size = self.settings["size"] * np.sqrt(within_variance(list(statistics.values()), cells))
        return np.tile(size * direction / np.linalg.norm(direction), (cells.n_classes, 1))


def parse_attack(word: str) -> tuple[Attack, ...]:
    """Read an attack's word: see the module.

    Examples
    --------
    >>> [attack.name for attack in parse_attack("flip:0.1:100+junk:0.01")]
    ['flip', 'junk']
    >>> parse_attack("flip:2")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the share of clients in the attack 'flip:2' must be above 0 and up to 1, not 2
    """
    return tuple(_parse_one(part) for part in word.split("+"))


def _parse_one(word: str) -> Attack:
    name, *values = word.split(":")
    if name not in ATTACKS:
        raise UnknownNameError("attack", name, ATTACKS)
    wanted = ATTACKS[name]
    if not 1 <= len(values) <= 1 + len(wanted) or any(default is None for _, default in wanted[len(values) - 1 :]):
        form = ":".join([name, "SHARE", *(key.upper() for key, _ in wanted)])
        raise InputError(f"an attack '{name}' is written {form}, not '{word}'")
    share = _number(word, "share of clients", values[0])
    if not 0 < share <= 1:
        raise InputError(f"the share of clients in the attack '{word}' must be above 0 and up to 1, not {values[0]}")
    texts = [*values[1:], *(str(default) for _, default in wanted[len(values) - 1 :])]
    return Attack(name, share, {key: _setting(word, key, text) for (key, _), text in zip(wanted, texts, strict=True)})


def _setting(word: str, key: str, text: str) -> Any:
    if key == "kind":
        if text not in KINDS:
            raise UnknownNameError("kind of junk", text, KINDS)
        return text
    if key in ("factor", "class"):
        least = 1 if key == "factor" else 0
        if not text.isdecimal() or int(text) < least:
            raise InputError(f"the {key} of the attack '{word}' must be a whole number of {least} or more, not {text}")
        return int(text)
    return _number(word, key, text)


def _number(word: str, what: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"the {what} of the attack '{word}' must be a number, not '{text}'")
    return value


def poison(statistics: Mapping[Any, Statistics], word: str, seed: int = 0) -> tuple[Parties, frozenset[Hashable]]:
    """Return what arrives when some clients attack, and who they are.

    Parameters
    ----------
    statistics
        Client -> honest statistics, in float64 or fixed point.
    word
        The attack, see the module; parts are applied one after another, and their attackers may coincide.
    seed
        Draws the attackers.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> honest = {k: Statistics.of([[1.0]], [0], StatisticsSpec(), n_classes=2) for k in "abcd"}
    >>> sent, attackers = poison(honest, "flip:0.25:10")
    >>> [sent[client].counts.tolist() for client in sorted(attackers)]
    [[0, 10]]
    """
    changed: Parties = dict(statistics)
    attackers: frozenset[Hashable] = frozenset()
    for attack in parse_attack(word):
        changed, these = attack.apply(changed, seed)
        attackers |= these
    return changed, attackers
