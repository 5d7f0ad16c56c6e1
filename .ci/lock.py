"""Write hashes.txt: the SHA-256 of the very file of each pinned package that CI installs; `make lock`.

The pins are those of constraints.txt, the files are what pip would choose here (CPython 3.11, Linux, x86-64). Pins that have a
hash already are not asked for again, unless --all is given. A package that is built locally has another hash on every machine,
so it has none here: it stands in LOCAL, CI installs it by its pin alone, and the bill of materials says so.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
#: torch is a CPU build of each machine's own; the public file of that version drags in the libraries of a GPU.
LOCAL = frozenset({"torch"})
HEAD = (
    "# Made by `make lock` from constraints.txt: CI installs these files and no others (CPython 3.11, Linux, x86-64).\n"
)


def read_pins() -> dict[str, str]:
    """Return the pinned version of each package."""
    lines = (line.split("#")[0].strip() for line in PINS.read_text().splitlines())
    return dict(line.split("==") for line in lines if line)  # type: ignore[misc]


def read_hashes() -> dict[str, tuple[str, str]]:
    """Return version and SHA-256 of each package in hashes.txt."""
    if not HASHES.exists():
        return {}
    found = re.findall(r"^(\S+)==(\S+) --hash=sha256:([0-9a-f]{64})$", HASHES.read_text(), flags=re.MULTILINE)
    return {name: (version, digest) for name, version, digest in found}


def look_up(pins: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Ask pip which file it would install for each pin."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "pins.txt"), Path(folder, "report.json")
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += ["--ignore-installed", "--no-deps", "--report", str(report), "-r", str(wanted)]
        subprocess.run(command, check=True)
        chosen = json.loads(report.read_text())["install"]
    found = {}
    for item in chosen:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        found[name] = (item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def main() -> None:
    """Bring hashes.txt up to the pins."""
    pins = {name: version for name, version in read_pins().items() if name not in LOCAL}
    known = {} if "--all" in sys.argv else read_hashes()
    known = {name: value for name, value in known.items() if pins.get(name) == value[0]}
    missing = {name: version for name, version in pins.items() if name not in known}
    known |= look_up(missing) if missing else {}
    lines = [f"{name}=={known[name][0]} --hash=sha256:{known[name][1]}\n" for name in sorted(pins)]
    HASHES.write_text(HEAD + "".join(lines))
    sys.stdout.write(f"{HASHES.name}: {len(lines)} files, {len(missing)} of them looked up now\n")


if __name__ == "__main__":
    main()
