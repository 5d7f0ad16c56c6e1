"""A private home for Flower's processes: nothing is read from or written to the user's own, nobody is phoned."""

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fedmoments.errors import InputError

__all__ = ["ConfigValue", "FlowerHome", "to_toml"]

ConfigValue = bool | int | float | str

_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}
_LOOPBACK = "localhost,127.0.0.1,::1"


class FlowerHome:
    """A folder for everything that Flower's processes keep: one subfolder a process, and their logs.

    Each process has its own subfolder as ``FLWR_HOME``, for Flower installs an app there without a lock: of two
    nodes that share one home, the second may run an app of which only half has been copied.

    Parameters
    ----------
    folder
        Made if it is missing, for its owner's eyes only.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     home = FlowerHome(Path(folder, "flower"))
    ...     environment = home.environment("node-1")
    ...     Path(environment["FLWR_HOME"]).relative_to(home.folder), environment["FLWR_TELEMETRY_ENABLED"]
    (PosixPath('node-1'), '0')
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().resolve()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def of(self, name: str) -> Path:
        """Return the subfolder of a process, made if it is missing."""
        if not name or name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"a process of a federation must have a name that can be a folder's, not {name!r}")
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def log(self, name: str) -> Path:
        """Return where a process writes its log."""
        return self.of(name) / "log"

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a process: ours, without its Flower settings, and with those of this home."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        local = {key: ",".join(filter(None, [kept.get(key), _LOOPBACK])) for key in ("NO_PROXY", "no_proxy")}
        return kept | _QUIET | local | {"PATH": path, "FLWR_HOME": str(self.of(name))}

    @staticmethod
    def executable(name: str) -> Path:
        """Return the path of one of Flower's commands in the environment of this Python."""
        return Path(sys.executable).parent / name


def to_toml(config: Mapping[str, ConfigValue]) -> str:
    r"""Write settings as TOML, the only form in which Flower takes any text unharmed.

    Its command lines take ``key=value`` as well, but cannot take both kinds of quotation mark in one value.

    Examples
    --------
    >>> print(to_toml({"partition-id": 3, "note": 'a "b" c', "eager": True}))
    "partition-id" = 3
    "note" = "a \"b\" c"
    "eager" = true
    <BLANKLINE>
    """
    return "".join(f"{_text(key)} = {_value(key, value)}\n" for key, value in config.items())


def _value(key: str, value: ConfigValue) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() if -(2**63) <= value < 2**63:
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return _text(value)
    raise InputError(f"setting {key!r} must be text, a flag, a float or an integer of 64 bits, not {value!r}")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a setting must be Unicode text, not {text!r}") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
