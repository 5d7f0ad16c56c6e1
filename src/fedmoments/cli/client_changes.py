"""What changes at a client that took part before: terms that it accepts, data that come and go."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmoments.cli.client_folder import SETTINGS, ClientFolder
from fedmoments.cli.given import Given
from fedmoments.cli.joining import read_terms
from fedmoments.cli.output import fail, plural, print_line
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.samples.reading import read_data
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.files import absolute_data
from fedmoments.settings.option import option

__all__ = ["Changes", "bound_to", "require_part", "withdraws"]


@dataclass(frozen=True)
class Changes:
    """What a client was told to change."""

    accept: str | None = option(
        None,
        "Amended terms to accept: take part under them from now on.",
        "--accept-terms",
        metavar="FILE",
    )
    add: tuple[str, ...] = option(
        (), "More data to measure from now on; may be repeated.", kind="names", metavar="DATA", group="Data"
    )
    forget: str | None = option(
        None,
        "File with one path or name per line: remove these samples, as if never measured.",
        metavar="FILE",
        group="Data",
    )
    withdraw: bool = option(
        False,  # noqa: FBT003 - a default
        "Sign a withdrawal: the server removes all that this client sent.",
        "--withdraw",
    )

    def __bool__(self) -> bool:
        return self != Changes()

    @property
    def accepted_file(self) -> Path | None:
        """The amended terms."""
        return Path(self.accept) if self.accept else None

    def over(
        self, name: str, given: Given[ClientSettings], config: Path | None
    ) -> tuple[Path | None, Given[ClientSettings]]:
        """Return the file of a client and settings that were typed, over those of the file, with the changes in them.

        Without a change, both are as they were given.
        """
        if not self:
            return config, given
        config = config or _changed_settings(name, given)
        base = given.base or ClientSettings.load(config)
        given = given.over(base)
        if self.accept:
            given = given.also(**self._accepted(base))
        if self.add:
            given = given.also(also=[*base.also, *self._added(base)])
        if self.forget:
            self._forget(given.build(), Path(self.forget))
        return config, given

    def keep(self, own: ClientSettings, config: Path | None) -> None:
        """Write changed settings into the client's folder: they count from the next start."""
        name = config.name if config else SETTINGS
        ClientFolder(Path(own.folder)).keep(own, read_terms(self.accepted_file), name)
        if self.withdraw:
            withdraws(own)

    def leave_a_part(self, own: ClientSettings) -> bool:
        """Say whether there is something to do for a client after these changes; a withdrawal is signed here."""
        return not self.withdraw or withdraws(own)

    def _added(self, base: ClientSettings) -> list[str]:
        """Return the data that are new, and say so; they are read now, not when the client is started again."""
        if base.by_file:
            raise InputError(
                f"{base.name} measures its files one by one: put new ones where the others are, {base.data}, and start "
                "it again"
            )
        new = [text for text in self.add if absolute_data(text, Path.cwd()) not in (base.data, *base.also)]
        for text in new:
            read_data(replace(base, data=absolute_data(text, Path.cwd()), also=(), test=None))
        print_line(f"{base.name} also measures {', '.join(new)}" if new else f"{base.name} measures that already")
        return new

    def _forget(self, own: ClientSettings, file: Path) -> None:
        """Note which samples are as if they were not there."""
        from fedmoments.federation.own_memory import forget

        text = existing_file(file).read_text("utf-8", errors="replace")
        names = [line.strip() for line in text.splitlines() if line.strip()]
        n = forget(own, names)
        print_line(f"{own.name} forgets {plural(n, 'sample')}: they are measured, tested and sent no more")

    def _accepted(self, own: ClientSettings) -> dict[str, str]:
        """Return what binds a client to amended terms, once they follow from those that it read."""
        from fedmoments.federation.outbox.watching import Watching

        terms = read_terms(self.accepted_file)
        stages = {stage.digest: stage for stage in terms.stages}
        former = stages.get(own.accepted or own.federation)
        if terms.id != own.federation or former is None:
            raise InputError(
                f"{self.accept} does not follow from the terms that {own.name} read: those of {own.federation[:16]}… "
                f"were expected, these are of {terms.id[:16]}…; read them as new ones, in another folder"
            )
        if own.folder:
            Watching(Path(own.folder)).notebook.follow_terms(terms)
        new = terms.classes[len(former.classes) :]
        print_line(f"{own.name} accepts {len(new):,} new classes of '{terms.name}': {', '.join(new) or 'none'}")
        return bound_to(terms)


def bound_to(terms: Any) -> dict[str, str]:
    """Return the settings of a client that read these terms."""
    return {"federation": terms.id, "accepted": terms.digest if terms.amended else ""}


def _changed_settings(name: str, given: Given[ClientSettings]) -> Path:
    """Return the settings file of a client that took part before.

    Raises
    ------
    InputError
        When there is none.
    """
    folder = ClientFolder(Path(str(given.values.get("folder", name))))
    if folder.settings_file is None:
        raise InputError(
            f"{folder.place / SETTINGS} is not there: changes at a client need its settings; name them with --config"
        )
    return folder.settings_file


def withdraws(own: ClientSettings) -> bool:
    """Note that a client withdraws, and return whether the server has to be told; not where it has left already."""
    from fedmoments.federation.outbox import Outbox

    with Outbox(own.folder) as outbox:
        before = outbox.departure(own.federation, own.name)
        if before is not None and before.gone:
            print_line(f"{own.name} has left already: the ledger holds nothing of it")
            return False
        version = outbox.withdraw(own.federation, own.name)
    if before is None:
        print_line(f"{own.name} withdraws version {version}: done once the server acknowledges it")
    return True


def require_part(own: ClientSettings) -> None:
    """Refuse to start a client that has left: it would wait for nothing, and believe that it takes part."""
    from fedmoments.federation.flower.node import left_sentence
    from fedmoments.federation.outbox import Outbox

    if not (Path(own.folder) / "outbox.db").is_file():
        return
    with Outbox(own.folder) as outbox:
        departure = outbox.departure(own.federation, own.name)
    if departure is not None and departure.gone:
        fail(left_sentence(own.name, own.folder))
