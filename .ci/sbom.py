"""Write a software bill of materials, CycloneDX 1.5 in JSON: `make sbom`.

Components are the pins of constraints.txt with the hashes of hashes.txt; licences and dependencies come from the metadata of what
is installed here. The same pins give the same bytes: nothing in it is random, and the time is SOURCE_DATE_EPOCH, if that is set.
"""

import datetime
import json
import os
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from lock import LOCAL, ROOT, read_hashes, read_pins


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s;\[<>=!~(]", requirement, maxsplit=1)[0]).lower()


def _installed(name: str) -> metadata.PackageMetadata | None:
    try:
        return metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None


def _component(name: str, version: str, digest: str | None) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name}
    component |= {"version": version, "purl": f"pkg:pypi/{name}@{version}"}
    if digest is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if name in LOCAL:
        note = "built on the machine that installs it: another hash on each, so none is pinned"
        component["properties"] = [{"name": "fedmoments:hash", "value": note}]
    known = _installed(name)
    expression = known.get("License-Expression") if known is not None else None
    if expression:
        component["licenses"] = [{"expression": expression}]
    return component


def _requires(name: str, pins: dict[str, str]) -> list[str]:
    """Return what a package needs without extras, as far as it is pinned."""
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    names = {_name(text) for text in needed if "extra ==" not in text}
    return sorted(f"pkg:pypi/{other}@{pins[other]}" for other in names if other in pins)


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    pins, hashes = read_pins(), read_hashes()
    own = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/fedmoments/__init__.py").read_text(), flags=re.MULTILINE)
    version = own[1] if own else "0"
    root = {
        "type": "application",
        "bom-ref": f"pkg:pypi/fedmoments@{version}",
        "name": "fedmoments",
        "version": version,
    }
    components = [
        _component(name, pin, hashes[name][1] if hashes.get(name, ("",))[0] == pin else None)
        for name, pin in sorted(pins.items())
    ]
    graph = [{"ref": root["bom-ref"], "dependsOn": _requires("fedmoments", pins)}]
    graph += [
        {"ref": f"pkg:pypi/{name}@{pin}", "dependsOn": _requires(name, pins)} for name, pin in sorted(pins.items())
    ]
    stated: dict[str, Any] = {"component": {**root, "purl": root["bom-ref"]}}
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        stated["timestamp"] = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).isoformat()
    content = {"metadata": stated, "components": components, "dependencies": graph}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def main() -> None:
    """Write it to the file that is named, or to stdout."""
    text = json.dumps(bill(), indent=2) + "\n"
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
