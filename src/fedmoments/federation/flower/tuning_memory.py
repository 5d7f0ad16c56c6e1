"""What a client remembers of a tuning: its control variates, and in how many rounds it took part.

With SCAFFOLD a client's control variates must be those that the server counts on, whatever was lost on the way. The
server says in which round it took in this client's last update, and the client goes on from what it had after that
very round: it keeps the states after its last two. So a round that is requested again, because the server was killed or
an update never arrived, gives the same answer again.
"""

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import pack_tensors, read_tensors, write_whole
from fedmoments.tuning.engine import Arrays

__all__ = ["Remembered", "answered_sums", "forget_all", "recall", "remember", "remember_sum"]

_KIND = "tuning memory"
#: What clients without a folder remember, by federation and client: as long as their process lives.
_MEMORY: dict[tuple[str, str], "Remembered"] = {}
_SUMS: dict[tuple[str, str], list[str]] = {}


@dataclass(frozen=True, eq=False)
class Remembered:
    """One client's memory of the tunings of one federation.

    Parameters
    ----------
    rounds
        In how many rounds of each run it took part.
    run
        The last run.
    states
        Round of that run -> what the engine kept after it, of the last two rounds; after round 0 that is nothing.
    asked
        Digest of the last request that was charged: the very same again is no further round.

    Examples
    --------
    >>> first = Remembered().charged("ab", "d1").after("ab", 0, 3, {"control": np.ones(1)})
    >>> first.counted("d1"), first.counted("d2"), first.state("ab", 3)
    (1, 2, {'control': array([1.])})
    """

    rounds: dict[str, int] = field(default_factory=dict)
    run: str = ""
    states: dict[int, Arrays] = field(default_factory=dict)
    asked: str = ""

    def counted(self, asked: str) -> int:
        """Return how many rounds it will have been, of all runs, once a request is answered."""
        return sum(self.rounds.values()) + (asked != self.asked)

    def state(self, run: str, last: int) -> Arrays:
        """Return the state to go on from.

        Parameters
        ----------
        run
            Id of the run.
        last
            Round of the last update of this client that the server took in; 0 if none.

        Raises
        ------
        InputError
            When it is not known any more.
        """
        if last == 0:
            return {}
        if self.run != run or last not in self.states:
            known = ", ".join(map(str, sorted(self.states))) if self.run == run else "none"
            raise InputError(
                f"the server counts on this client's control variates after round {last}, but those that are kept are "
                f"of rounds {known or 'none'}: was its folder lost? Begin a new run"
            )
        return self.states[last]

    def charged(self, run: str, asked: str) -> "Remembered":
        """Return the memory of a client that is about to answer a request, or to fail at it."""
        if asked == self.asked:
            return self
        return replace(self, rounds={**self.rounds, run: self.rounds.get(run, 0) + 1}, asked=asked)

    def after(self, run: str, last: int, round_number: int, state: Arrays) -> "Remembered":
        """Return the memory after a round: the state that it began from, and the one that it ended with."""
        states = {last: self.state(run, last), round_number: state}
        return replace(self, run=run, states=states)


def recall(folder: str, federation: str, client: str) -> Remembered:
    """Return what a client remembers, from its folder or, without one, from this process.

    Raises
    ------
    FileFormatError
        When the file is damaged.
    """
    if not folder:
        return _MEMORY.get((federation, client), Remembered())
    path = _path(folder, federation, client)
    if not path.exists():
        return Remembered()
    tensors, header = read_tensors(path, _KIND)
    states: dict[int, Arrays] = {int(number): {} for number in header["states"]}
    for name, array in tensors.items():
        number, _, rest = name.partition("/")
        states[int(number)][rest] = array
    return Remembered(dict(header["rounds"]), header["run"], states, header["asked"])


def remember(folder: str, federation: str, client: str, memory: Remembered) -> None:
    """Keep a client's memory; a file appears whole or not at all."""
    if not folder:
        _MEMORY[federation, client] = memory
        return
    path = _path(folder, federation, client)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    tensors = {
        f"{number}/{name}": np.ascontiguousarray(array)
        for number, state in memory.states.items()
        for name, array in state.items()
    }
    header = {"rounds": memory.rounds, "run": memory.run, "states": sorted(memory.states), "asked": memory.asked}
    write_whole(path, pack_tensors(_KIND, tensors, header))


def answered_sums(folder: str, federation: str, node: str) -> list[str]:
    """Return the digests of all requests for sums of losses that a node was charged for in a federation.

    Raises
    ------
    FileFormatError
        When the file is damaged.
    """
    if not folder:
        return list(_SUMS.get((federation, node), []))
    path = _sums_path(folder, federation, node)
    try:
        return [str(digest) for digest in json.loads(path.read_text("utf-8"))] if path.exists() else []
    except (ValueError, TypeError) as error:
        raise FileFormatError(
            f"{path} is not a list of requests ({error}): it records how much was answered already"
        ) from error


def remember_sum(folder: str, federation: str, node: str, asked: str) -> None:
    """Keep the digest of a request that is answered; the very same again is no further sum.

    Examples
    --------
    >>> remember_sum("", "pets", "clinic", "d1")
    >>> remember_sum("", "pets", "clinic", "d1")
    >>> answered_sums("", "pets", "clinic")
    ['d1']
    """
    known = answered_sums(folder, federation, node)
    if asked in known:
        return
    if not folder:
        _SUMS[federation, node] = [*known, asked]
        return
    path = _sums_path(folder, federation, node)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps([*known, asked]).encode())


def forget_all() -> None:
    """Forget what clients without a folder remember."""
    _MEMORY.clear()
    _SUMS.clear()


def _sums_path(folder: str, federation: str, node: str) -> Path:
    word = sha256(node.encode()).hexdigest()[:16]  # several nodes may share a folder in a trial
    return Path(folder) / "tuning" / federation[:16] / f"sums-{word}.json"


def _path(folder: str, federation: str, client: str) -> Path:
    return Path(folder) / "tuning" / federation[:16] / f"{client}.safetensors"
