"""What secure sums cost at 180,000 numbers a client: against a plain sum, and against contributions in the clear."""

import time
from collections.abc import Callable

import numpy as np

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import (
    OVERHEAD_BYTES,
    Context,
    HeldReports,
    Helper,
    HelperKey,
    Leader,
    make_report,
    read_report,
)
from fedmoments.wire import Agreement, IdentityKey, decode, encode
from fedmoments.wire.header import HEADER_BYTES

Compare = Callable[..., float]
Note = Callable[[str, str, str], None]

N_CLIENTS, N_CLASSES, DIM = 20, 100, 512
FORM = FixedPoint(norm_bound=64.0, max_samples=100_000)
LAYOUT = DenseLayout(StatisticsSpec.of("gram"), N_CLASSES, DIM)
CONTEXT = Context("0f" * 32, 0, "1f" * 32)


def clients() -> dict[str, Statistics]:
    """Return the statistics of 20 clients of 60 samples; dense, 182,728 numbers each."""
    rng = np.random.default_rng(0)
    return {
        f"client {k}": Statistics.of(
            rng.normal(size=(60, DIM)), rng.integers(0, N_CLASSES, 60), LAYOUT.spec, n_classes=N_CLASSES,
            fixed_point=FORM,
        )
        for k in range(N_CLIENTS)
    }  # fmt: skip


def best(run: Callable[[], object], rounds: int = 10) -> float:
    """Return CPU milliseconds, best of the rounds."""
    run()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def test_secure_sums_against_plain_sums(compare: Compare) -> None:
    parts = clients()
    vectors = {client: LAYOUT.pack(part) for client, part in parts.items()}
    agreement = Agreement("0f" * 32, "1f" * 32, "2f" * 32, N_CLASSES, DIM, LAYOUT.spec, FORM)
    key = IdentityKey.generate()

    def plain() -> np.ndarray:
        total = np.zeros(LAYOUT.size, np.uint64)
        for vector in vectors.values():
            np.add(total, vector, out=total)
        return total

    def clear() -> Statistics:
        data = [encode(part, agreement, client=name, version=1, key=key) for name, part in parts.items()]
        return Statistics.merge([decode(each, agreement, lambda _: key.public).statistics for each in data])

    def secure() -> Statistics:
        return Agreed(secure="sums", batch=N_CLIENTS).mode.simulated(Crowd.of(parts)).statistics

    assert secure() == LAYOUT.unpack(plain(), FORM) == clear()
    compare(
        "secure sum of 20 clients, against contributions checked in the clear",
        secure, clear, at_most=1.0, adding_their_vectors=plain,
    )  # fmt: skip


def test_each_partys_part_and_the_bytes(note: Note) -> None:
    secret = HelperKey.generate()
    keys = {f"client {k}": IdentityKey.generate() for k in range(N_CLIENTS)}
    vector = LAYOUT.pack(next(iter(clients().values())))

    def made(name: str) -> bytes:
        return make_report(vector, CONTEXT, client=name, version=1, helper=secret.public, key=keys[name])

    reports = [read_report(made(name), CONTEXT, LAYOUT.size, lambda client: keys[client].public) for name in keys]
    data = made("client 0")
    held = HeldReports()
    for report in reports:
        held.take(report)
    leader = Leader(CONTEXT, LAYOUT.size, N_CLIENTS, held)
    request = leader.request()
    with Helper(secret, minimum=N_CLIENTS, members={name: key.public.hex for name, key in keys.items()}) as helper:
        answer = helper.sum(request)
        of_client = best(lambda: made("client 0"))
        of_reading = best(lambda: read_report(data, CONTEXT, LAYOUT.size, lambda client: keys[client].public))
        of_helper = best(lambda: helper.sum(request), 5) / N_CLIENTS
        of_leader = best(lambda: leader.finish(request, answer), 5) / N_CLIENTS
    for what, value in (
        ("client: mask, seal and sign", of_client),
        ("leader: verify a report", of_reading),
        ("leader: add a masked vector", of_leader),
        ("helper: verify, open, make the mask", of_helper),
    ):
        note(f"secure sums, 182,728 numbers, {what}", f"{value:.2f} ms", "-")
    more = len(data) - LAYOUT.size * 8 - HEADER_BYTES
    note("secure sums: bytes more than the header of a contribution", str(more), "96")
    assert more == OVERHEAD_BYTES - HEADER_BYTES == 96
