"""A party's start-up kit in use: unpacked into the party's own folder, consented to, and handed in."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fedmoments.cli.client_folder import ROOT, TERMS
from fedmoments.cli.federation_runs import tell
from fedmoments.cli.joining import JOIN, Joining, read_terms
from fedmoments.cli.output import fail, visible
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError

__all__ = ["Unpacked", "unpack"]

#: In a party's folder: that it was enrolled with a kit, and to which federation.
ENROLLED = "enrolled"


@dataclass(frozen=True)
class Unpacked:
    """A kit in a party's own folder.

    Parameters
    ----------
    kit
        What the operator sent.
    folder
        The party's own.
    join
        How to reach the server: the kit's address and certificate.
    """

    kit: Any
    folder: Path
    join: Joining

    @property
    def name(self) -> str:
        """The party."""
        return str(self.kit.name)

    @property
    def terms(self) -> Any:
        """The terms of the federation."""
        return self.kit.terms

    @property
    def keys(self) -> Any:
        """The party's own keys, beside its folder: what is hidden from a process must not lie where that one writes."""
        from fedmoments.federation.keys.parties import ClientKeys

        return ClientKeys(self.folder.with_name(f"{self.folder.name}.keys"), self.name)

    def values(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that follow from the kit; rules that were typed win."""
        policy = {**self.kit.policy, **typed.get("policy", {})}
        return {"keys": str(self.keys.folder), "folder": str(self.folder), "policy": policy}

    def consent(self, *, yes: bool) -> None:
        """Go on only if the party wants to."""
        what = f"{self.name} takes part in '{visible(self.terms.name)}' at {self.join.server}, under these terms"
        if yes:
            tell(f"{what}: consented by --yes")
            return
        if not sys.stdin.isatty():
            raise InputError(f"{what}, only with consent: start this in a terminal, or add --yes")
        if not click.confirm(f"{what}. Send this?", default=False, err=True):
            fail("nothing was sent")

    def enrol(self, timeout: float | None) -> None:
        """Hand the token in, unless that was done before."""
        from fedmoments.federation.enrolment.asking import enrol_with
        from fedmoments.files import write_whole

        done = self.folder / ENROLLED
        if done.exists() and done.read_text("utf-8").strip() == self.terms.id:
            return
        tell(f"enrolling at {self.kit.desk}")

        def wait(why: str) -> None:
            tell(f"no enrolment server answers at {self.kit.desk} yet ({why}); trying again for a while")

        enrol_with(self.kit, self.keys, patience=timeout or JOIN, on_absent=wait)
        write_whole(done, f"{self.terms.id}\n".encode())
        tell(f"enrolled as {self.name}")


def _require_own(place: Path, kit: Any, file: Path) -> None:
    """Refuse a folder that is somebody else's, or of another federation than the kit."""
    terms, root = place / TERMS, place / ROOT
    if not terms.is_file():
        if place.exists() and any(place.iterdir()):
            raise InputError(f"{place} exists and is not a client's folder: choose another one with --folder")
        return
    strange = [terms] if read_terms(terms).id != kit.terms.id else []
    strange += [root] if root.exists() and root.read_bytes() != kit.ca.encode("ascii") else []
    if strange:
        raise InputError(
            f"{strange[0]} is of another federation or server than {file}: choose another folder with --folder"
        )


def unpack(file: Path, folder: str | None, join: Joining) -> Unpacked:
    """Read a kit, and put its public parts and new keys into the party's own folder.

    Parameters
    ----------
    file
        The kit.
    folder
        As it was typed; a folder with the party's name in the working directory by default.
    join
        As it was typed: an address wins over the kit's.
    """
    from fedmoments.federation.enrolment.kit import read_kit
    from fedmoments.federation.keys.files import PASSPHRASE_FILE, read_passphrase
    from fedmoments.federation.keys.parties import make_client
    from fedmoments.files import write_whole

    if join.ca or join.insecure:
        raise InputError("a kit brings the server's certificate: leave --ca and --insecure out")
    kit = read_kit(existing_file(file))
    place = Path(folder or kit.name).absolute()
    _require_own(place, kit, file)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (place / TERMS).exists():  # else those that follow from the kit's may have been accepted since
        write_whole(place / TERMS, f"{kit.terms.to_json()}\n".encode())
    write_whole(place / ROOT, kit.ca.encode("ascii"))
    unpacked = Unpacked(kit, place, replace(join, server=join.server or kit.server, ca=str(place / ROOT)))
    if not unpacked.keys.identity.exists():
        named = os.environ.get(PASSPHRASE_FILE)
        make_client(unpacked.keys.folder, kit.name, read_passphrase(named) if named else None)
        tell(f"made the keys of {kit.name} in {unpacked.keys.folder}; anybody who has them can act in your name")
    return unpacked
