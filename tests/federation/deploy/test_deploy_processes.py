"""No child process outlives us, however we or it come to an end; and one that dies says why."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import HANG, until

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy import Process
from fedmoments.federation.deploy.guard import descendants

# Starts one child in a session of its own and one that lost its parent; all three ignore the request to end.
_STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1:
    print("child", flush=True)
    time.sleep(3600)
subprocess.Popen([sys.executable, __file__, "session"], start_new_session=True)
if os.fork() == 0:
    subprocess.Popen([sys.executable, __file__, "orphan"])
    os._exit(0)
os.wait()
print("parent", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def stubborn(tmp_path: Path) -> Process:
    script = tmp_path / "stubborn.py"
    script.write_text(_STUBBORN)
    return make(tmp_path, [sys.executable, script], grace=0.5)


def make(folder: Path, command: list[str | Path], grace: float = 5.0) -> Process:
    return Process("the child", command, environment={}, log=folder / "log", folder=folder, grace=grace)


def shell(folder: Path, script: str) -> Process:
    return make(folder, ["/bin/sh", "-c", script])


def all_there(process: Process) -> bool:
    text = process.text()
    return text.count("child") == 2 and "parent" in text


def below(process: Process) -> list[int]:
    assert process.pid is not None
    return descendants(process.pid)


@pytest.mark.parametrize("end", [Process.stop, Process.kill])
def test_the_whole_family_goes_though_it_ignores_the_request(stubborn: Process, end: Callable[[Process], None]) -> None:
    stubborn.start().wait_ready(lambda: all_there(stubborn), timeout=HANG)
    family = below(stubborn)
    assert len(family) == 3
    end(stubborn)
    assert not stubborn.alive
    assert stubborn.exit_code == 128 + signal.SIGKILL
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_leaving_the_block_ends_it_whatever_the_reason(tmp_path: Path, error: type[BaseException]) -> None:
    process = shell(tmp_path, "exec sleep 60")
    with pytest.raises(error), process:
        raise error
    assert process.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_survives_our_own_death(
    tmp_path: Path, stubborn: Process, processes_in: Callable[[Path], list[str]], death: signal.Signals
) -> None:
    script = f"""
import sys, time
from pathlib import Path
from fedmoments.federation.deploy import Process
process = Process("the child", [sys.executable, {str(tmp_path / "stubborn.py")!r}], environment={{}},
                  log=Path({str(stubborn.log)!r}), folder=Path({str(tmp_path)!r}), grace=0.5)
process.start()
time.sleep(3600)
"""
    with subprocess.Popen([sys.executable, "-c", script]) as owner:
        try:
            until(lambda: all_there(stubborn))
            assert len(processes_in(tmp_path)) == 4  # and the guard
        finally:
            owner.send_signal(death)
        owner.wait(HANG)
    until(lambda: not processes_in(tmp_path))


def test_the_command_does_not_survive_its_guard(tmp_path: Path) -> None:
    process = shell(tmp_path, "echo up; exec sleep 60").start()
    process.wait_ready(lambda: "up" in process.text(), timeout=HANG)
    [command] = below(process)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{command}").exists() or b") Z " in Path(f"/proc/{command}/stat").read_bytes())
    with pytest.raises(DeploymentError, match="the child ended unexpectedly with exit code -9"):
        process.check()


def test_the_end_of_the_thread_that_started_it_is_not_our_end(tmp_path: Path) -> None:
    process = shell(tmp_path, "exec sleep 60")
    starter = threading.Thread(target=process.start)
    starter.start()
    starter.join()
    time.sleep(0.5)
    assert process.alive
    process.stop()


def test_a_process_that_dies_says_what_it_said_last(tmp_path: Path) -> None:
    process = shell(
        tmp_path, "for i in $(seq 40); do echo line $i; done; printf '\\033[91mERROR\\033[0m: no luck\\n' >&2; exit 7"
    )
    with pytest.raises(DeploymentError) as caught, process:
        process.wait_ready(lambda: False, timeout=HANG, hint="it was needed")
    text = str(caught.value)
    assert text.startswith("the child ended unexpectedly with exit code 7 (it was needed).")
    assert text.endswith("line 40\n    ERROR: no luck")
    assert str(process.log) in text
    assert "line 20\n" not in text
    assert process.exit_code == 7


def test_a_traceback_does_not_crowd_out_what_went_before(tmp_path: Path) -> None:
    script = "print('port taken', flush=True)\ndef f(n):\n    return f(n - 1) + 1 if n else 1 / 0\nf(20)"
    with make(tmp_path, [sys.executable, "-c", script]) as process:
        assert process.wait(HANG) == 1
    assert process.last_lines() == "    port taken\n    ZeroDivisionError: division by zero"
    assert "Traceback" in process.text()


def test_several_can_end_at_the_same_time(tmp_path: Path) -> None:
    gate = tmp_path / "gate"  # whoever is asked to end waits for it: the last is asked before the first has ended
    leave = f"trap 'echo asked; while [ ! -e {gate} ]; do sleep 0.05; done; exit 3' TERM"
    slow = ["/bin/sh", "-c", f"{leave}; echo up; while true; do sleep 0.1; done"]
    processes = [Process(f"{i}", slow, environment={}, log=tmp_path / f"{i}", grace=HANG) for i in range(4)]
    for process in processes:
        process.start().wait_ready(lambda process=process: "up" in process.text(), timeout=HANG)  # type: ignore[misc]
    for process in processes:
        process.stop(wait=False)
    until(lambda: all("asked" in process.text() for process in processes))
    assert all(process.alive for process in processes)
    gate.touch()
    for process in processes:
        process.stop()
    assert [process.exit_code for process in processes] == [3] * 4


def test_what_it_left_behind_goes_when_it_ends_by_itself(tmp_path: Path) -> None:
    process = shell(tmp_path, "sleep 60 & echo done").start()
    assert process.wait(HANG) == 0


def test_one_that_never_gets_ready_is_stopped(tmp_path: Path) -> None:
    process = shell(tmp_path, "echo still warming up; exec sleep 60")
    with pytest.raises(DeploymentError, match=r"the child was not ready after 0.5 s and was stopped.*\n.*warming up"):
        process.start().wait_ready(lambda: False, timeout=0.5)
    assert not process.alive


def test_it_can_be_started_again_and_its_log_grows(tmp_path: Path) -> None:
    process = shell(tmp_path, f"cat {tmp_path / 'word'}; exec sleep 60")
    for word in ("first", "second"):
        (tmp_path / "word").write_text(f"{word}\n")
        with process:
            process.wait_ready(lambda: bool(process.text()), timeout=HANG)
            assert process.text() == f"{word}\n"
            with pytest.raises(DeploymentError, match="runs already"):
                process.start()
    assert process.log.read_text() == "first\nsecond\n"
    assert process.log.stat().st_mode & 0o077 == 0


def test_standard_output_can_be_kept_apart(tmp_path: Path) -> None:
    for _ in range(2):
        process = Process(
            "the child",
            ["/bin/sh", "-c", "echo $GREETING; echo aside >&2"],
            environment={"GREETING": "hello"},
            log=tmp_path / "log",
            output=tmp_path / "output",
        )
        with process:
            assert process.wait(HANG) == 0
    assert (tmp_path / "output").read_text() == "hello\n"
    assert (tmp_path / "log").read_text() == "aside\naside\n"


def test_a_missing_executable_is_named(tmp_path: Path) -> None:
    process = make(tmp_path, [tmp_path / "flower-nothing"])
    with pytest.raises(DeploymentError, match=r"no executable .*flower-nothing.*pip install 'fedmoments\[flower\]'"):
        process.start()
    assert (process.alive, process.pid, process.exit_code, process.wait(0.1)) == (False, None, None, None)
    assert process.last_lines() == "    (it wrote nothing)"
    process.stop()


def test_an_executable_that_cannot_run_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o700)
    with make(tmp_path, [broken]) as process:
        assert process.wait(HANG) == 127
    assert "cannot run" in process.text()


def test_it_reads_nothing_from_our_input(tmp_path: Path) -> None:
    with shell(tmp_path, "cat; echo end of input") as process:
        assert process.wait(HANG) == 0
    assert process.text() == "end of input\n"
