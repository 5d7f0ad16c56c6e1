"""What the helper remembers survives kill -9, a lost answer is given again bit for bit, and noise is drawn once."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.privacy.secure_workshop import CONTEXT, SIZE, Workshop
from tests.waiting import HANG

from fedmoments.errors import FileFormatError, InputError, LedgerError, PrivacyError
from fedmoments.federation.outbox import Outbox
from fedmoments.privacy.secure import Helper, HelperKey, SumRequest

#: Answers a request and is killed: before the commit, or between the commit and the answer.
KILLED = """
import os, signal, sys
from pathlib import Path
from fedmoments.privacy.secure import Helper, HelperKey, SumRequest
from fedmoments.privacy.secure import helper as module, memory

def die(*args, **words):
    os.kill(os.getpid(), signal.SIGKILL)

folder, when = Path(sys.argv[1]), sys.argv[2]
if when == "before the answer":
    module.add_stream = die
else:
    write = memory.Memory._write
    memory.Memory._write = staticmethod(lambda *args: (write(*args), die()))
helper = Helper(HelperKey.from_bytes((folder / "key").read_bytes()), minimum=3, path=folder / "memory.db")
helper.sum(SumRequest.from_bytes((folder / "request").read_bytes()))
"""


def reopened(shop: Workshop, path: Path) -> Helper:
    return Helper(HelperKey.from_bytes(shop.secret.to_bytes()), minimum=3, path=path)


def killed(folder: Path, shop: Workshop, request: SumRequest, when: str) -> None:
    (folder / "key").write_bytes(shop.secret.to_bytes())
    (folder / "request").write_bytes(request.to_bytes())
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), when], timeout=HANG, check=False)
    assert done.returncode == -signal.SIGKILL


# -------------------------------------------------------------------------------------------------- the helper


def test_a_helper_killed_before_it_answered_remembers_the_batch_and_answers_it_again(tmp_path: Path) -> None:
    shop = Workshop()
    request = shop.request("abcd")
    killed(tmp_path, shop, request, "before the answer")
    with reopened(shop, tmp_path / "memory.db") as helper:
        assert helper.batches == 1
        for names in ("abc", "abcde"):
            with pytest.raises(PrivacyError, match="unmasked before"):
                helper.sum(shop.request(names))
        assert np.array_equal(shop.unmasked("abcd", helper.sum(request)), shop.plain("abcd"))
        assert helper.batches == 1


def test_a_helper_killed_before_the_commit_has_promised_nothing(tmp_path: Path) -> None:
    shop = Workshop()
    killed(tmp_path, shop, shop.request("abcd"), "before the commit")
    with reopened(shop, tmp_path / "memory.db") as helper:
        assert helper.batches == 0
        assert np.array_equal(shop.unmasked("abc", helper.sum(shop.request("abc"))), shop.plain("abc"))


def test_the_same_request_gets_the_same_answer_also_after_a_restart(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "memory.db")
    request = shop.request("abc", [(3, 20)])
    first = shop.helper.sum(request)
    assert np.array_equal(shop.helper.sum(SumRequest.from_bytes(request.to_bytes())), first)
    shop.helper.close()
    with reopened(shop, tmp_path / "memory.db") as helper:
        assert np.array_equal(helper.sum(request), first)
        assert helper.batches == 1
        with pytest.raises(PrivacyError, match="1 clients that were in no batch before"):
            helper.sum(shop.request("abcd", context=replace(CONTEXT, round=9)))


def test_a_refused_request_leaves_nothing_behind(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "memory.db")
    shop.helper.sum(shop.request("abc"))
    with pytest.raises(PrivacyError, match="in no batch before"):  # cells of a, b, c are looked at first
        shop.helper.sum(shop.request("abcde", context=replace(CONTEXT, round=4)))
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("batches", "parts", "cells")]
    connection.close()
    assert counts == [1, 3, 6]  # cells of this federation, and of all
    shop.helper.sum(shop.request("defg", context=replace(CONTEXT, round=4)))


def test_helpers_that_share_a_file_answer_one_of_two_overlapping_batches(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "memory.db")
    helpers = [reopened(shop, tmp_path / "memory.db") for _ in range(4)]
    asks = [shop.request(names) for names in ("abcd", "abce", "abcf", "abcg")]

    def ask(number: int) -> bool:
        try:
            helpers[number].sum(asks[number])
        except PrivacyError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, range(4))) == 1
    assert shop.helper.batches == 1
    for helper in helpers:
        helper.close()


def test_a_memory_belongs_to_one_key_and_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "memory.db"
    Workshop(path=path).helper.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileFormatError, match="a key and its memory stay together"):
        Helper(HelperKey.generate(), minimum=3, path=path)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at" * 100)
    with pytest.raises(FileFormatError, match="is no helper's memory, or is damaged"):
        Helper(HelperKey.generate(), minimum=3, path=tmp_path / "text")
    Outbox(tmp_path).close()
    with pytest.raises(FileFormatError, match="but no helper's memory"):
        Helper(HelperKey.generate(), minimum=3, path=tmp_path / "outbox.db")
    with pytest.raises(LedgerError, match="cannot be used"):
        Helper(HelperKey.generate(), minimum=3, path=tmp_path / "text" / "below")


def test_a_memory_that_cannot_be_written_lets_nothing_leave(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "memory.db")
    shop.helper.close()
    with pytest.raises(LedgerError, match="was closed"):
        shop.helper.sum(shop.request("abc"))
    with reopened(shop, tmp_path / "memory.db") as helper:
        blocker = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        helper._memory._database.connection.execute("PRAGMA busy_timeout=1")
        with pytest.raises(LedgerError, match="nothing may be sent"):
            helper.sum(shop.request("abc"))
        blocker.execute("ROLLBACK")
        blocker.close()
        assert helper.batches == 0
        helper.sum(shop.request("abc"))
        assert helper.batches == 1


# -------------------------------------------------------------------------------------------------- noise


class Dice:
    """Noise of the operating system's randomness, which counts how often it is drawn."""

    def __init__(self) -> None:
        self.coordinates: list[list[int]] = []
        self.drawn: list[NDArray[np.int64]] = []

    def __call__(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        self.coordinates.append(coordinates.tolist())
        self.drawn.append(np.frombuffer(os.urandom(8 * len(coordinates)), np.int64) >> 40)
        return self.drawn[-1]


def test_noise_is_drawn_once_and_given_again_after_a_restart(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "memory.db")
    request = shop.request("abc", [(2, 5), (30, 40)])
    dice = Dice()
    answer = shop.helper.sum(request, noise=dice)
    for noise in (dice, Dice(), None):  # averaging over repetitions removes nothing
        assert np.array_equal(shop.helper.sum(request, noise=noise), answer)
    shop.helper.close()
    with reopened(shop, tmp_path / "memory.db") as helper:
        assert np.array_equal(helper.sum(request, noise=dice), answer)
    assert dice.coordinates == [[2, 3, 4, *range(30, 40)]]
    places = np.array(dice.coordinates[0])
    masked = sum(shop.report(name).masked[places] for name in "abc")
    assert np.array_equal(answer + masked - shop.plain("abc")[places], dice.drawn[0].view(np.uint64))


def test_noisy_batches_may_differ_by_one_in_another_round_but_no_coordinate_is_noised_twice() -> None:
    shop, dice = Workshop(), Dice()
    shop.helper.sum(shop.request("abc"), noise=dice)
    shop.helper.sum(shop.request("abcd", context=replace(CONTEXT, round=4)), noise=dice)
    with pytest.raises(PrivacyError, match="unmasked before"):
        shop.helper.sum(shop.request("abcd"), noise=dice)
    assert len(dice.drawn) == 2


def test_a_batch_that_was_answered_without_noise_stays_as_it_was() -> None:
    shop, dice = Workshop(), Dice()
    first = shop.helper.sum(shop.request("abc"))
    assert np.array_equal(shop.helper.sum(shop.request("abc"), noise=dice), first)
    assert dice.drawn == []


def test_noise_of_the_wrong_form_is_refused_and_nothing_remembered() -> None:
    shop = Workshop()
    for wrong in (np.zeros(SIZE), np.zeros(SIZE - 1, np.int64)):
        with pytest.raises(InputError, match="type int64"):
            shop.helper.sum(shop.request("abc"), noise=lambda coordinates, wrong=wrong: wrong)  # type: ignore[misc]
    assert shop.helper.batches == 0
