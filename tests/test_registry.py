"""The one registry behind all names: three origins, order, clashes, unknown names, and what an author gives."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import fedmoments as fm
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.heads.registry import HEADS
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.registry import Registry, first_line

GROUP = "fedmoments.test_colours"


@dataclass(frozen=True)
class Colour:
    name: str
    mix: Any = None


def accept(given: Any, name: str | None) -> Colour:
    if isinstance(given, Colour):
        return given
    if not callable(given):
        raise InputError("it must be a Colour or a function")
    return Colour(name or given.__name__, given)


def registry(*built_in: Colour, **more: Any) -> Registry[Colour]:
    return Registry("colour", group=GROUP, accept=accept, built_in=lambda: built_in, **more)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what lays a package with entry points on the path."""
    before = set(sys.modules)

    def lay(package: str, code: str, **names: str) -> None:
        (tmp_path / f"{package}.py").write_text(dedent(code))
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        points = "\n".join(f"{name} = {package}:{where}" for name, where in names.items())
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")

    monkeypatch.syspath_prepend(tmp_path)
    yield lay
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_ours_come_first_and_each_part_is_sorted(install: Any) -> None:
    install("painters", "def ochre(): ...\ndef amber(): ...", ochre="ochre", amber="amber")
    colours = registry(Colour("red"), Colour("green"))
    colours.register(Colour("beige"))
    assert list(colours) == ["green", "red", "amber", "beige", "ochre"]
    assert len(colours) == 5
    assert colours["amber"].mix.__module__ == "painters"


def test_without_an_order_ours_stay_as_they_come() -> None:
    colours = registry(Colour("red"), Colour("green"), order=None)
    for name in ("pink", "blue"):
        colours.register(Colour(name))
    assert list(colours) == ["red", "green", "blue", "pink"]


def test_an_entry_point_may_name_a_tuple(install: Any) -> None:
    install("painters", "def ochre(): ...\ndef amber(): ...\nboth = (ochre, amber)", anything="both")
    assert list(registry()) == ["amber", "ochre"]


def test_nothing_is_scanned_or_loaded_before_it_is_needed(install: Any) -> None:
    install("painters", "raise AssertionError('loaded')", ochre="ochre")
    asked: list[int] = []

    def ours() -> list[Colour]:
        asked.append(1)
        return []

    colours = Registry("colour", group=GROUP, accept=accept, built_in=ours)
    assert asked == []
    colours.register(Colour("blue"))  # reads ours, so that a clash shows at once, but loads nobody's code
    assert asked == [1]
    assert "painters" not in sys.modules


@pytest.mark.parametrize("other", ["built in", "installed by painters", "registered at run time"])
def test_a_clash_says_who_has_the_name(install: Any, other: str) -> None:
    def red() -> None: ...

    if other.startswith("installed"):
        install("painters", "def red(): ...", red="red")
    colours = registry(*[Colour("red", min)] * (other == "built in"))
    if other.startswith("registered"):
        colours.register(Colour("red", max))
    list(colours)
    with pytest.raises(InputError) as caught:
        colours.register(red)
    assert f"({other}) and" in str(caught.value)
    assert f"{__name__}.test_a_clash_says_who_has_the_name.<locals>.red (registered at run time)" in str(caught.value)


def test_an_installed_package_does_not_replace_ours(install: Any) -> None:
    install("painters", "def red(): ...", red="red")
    with pytest.raises(InputError, match=r"two colours call themselves 'red': .* painters.red \(installed by painters"):
        list(registry(Colour("red")))
    assert registry(Colour("red")).find("red").mix is None  # ours are found before anybody's code is loaded


def test_what_is_defined_again_takes_its_own_place() -> None:
    def cell(shade: int) -> Any:
        def blue() -> int:
            return shade

        return blue

    colours = registry()
    colours.register(cell(1))
    colours.register(cell(2))
    assert colours["blue"].mix() == 2


def test_what_was_registered_can_be_removed_and_nothing_else() -> None:
    colours = registry(Colour("red"))
    colours.register(Colour("blue"))
    assert "blue" in colours
    colours.remove("blue")
    assert list(colours) == ["red"]
    with pytest.raises(InputError, match="was not registered at run time"):
        colours.remove("red")


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="unknown colour 'grean': did you mean 'green'"):
        registry(Colour("green")).find("grean")


def test_what_does_not_load_or_fit_names_its_package(install: Any) -> None:
    install("painters", "raise RuntimeError('no paint')", ochre="ochre")
    colours = registry()
    for _ in range(2):  # it is not taken for loaded after the first time
        with pytest.raises(
            InputError, match=r"'ochre' \(installed by painters.*RuntimeError: no paint. Repair or unin"
        ):
            colours.find("ochre")


def test_what_cannot_be_an_entry_is_refused_with_the_reason(install: Any) -> None:
    install("painters", "ochre = 3", ochre="ochre")
    with pytest.raises(InputError, match=r"int \(installed by painters\) is not a colour: it must be a Colour"):
        list(registry())


def test_a_module_may_register_while_it_is_loaded(install: Any) -> None:
    install("painters", "def ochre(): ...\nimport test_registry_shared\ntest_registry_shared.add(ochre)", ochre="ochre")
    colours = registry()
    shared: Any = type(sys)("test_registry_shared")
    shared.add = colours.register
    sys.modules["test_registry_shared"] = shared
    assert list(colours) == ["ochre"]


def test_a_first_line_is_words_or_nothing() -> None:
    class Bare:
        pass

    assert first_line(Bare) == ""
    assert first_line(Colour) == ""  # dataclasses write a signature
    assert first_line(Registry).startswith("Things by name")


@dataclass(frozen=True)
class OwnHead(NearestMean):
    """Nearest mean, again."""

    tempo: float = 2.0


@pytest.mark.parametrize(
    ("given", "name", "typed"),
    [
        (OwnHead, None, "own-head"),
        (OwnHead(tempo=3.0), "slow", "slow"),
        (fm.Preset("mine", OwnHead, "", ""), None, "mine"),
    ],
)
def test_a_head_is_registered_as_class_instance_or_preset(given: Any, name: str | None, typed: str) -> None:
    assert fm.register_head(given, name) is given
    try:
        assert typed in fm.head_names()
        head = fm.make_head(typed, metric="euclidean")
        assert head == OwnHead("euclidean", tempo=3.0 if typed == "slow" else 2.0)
        clients = {"a": ([[0.0, 1.0], [1.0, 0.0]], [0, 1])}
        assert fm.fit(typed, clients).predict([[0.0, 2.0]]).tolist() == [0]
    finally:
        HEADS.remove(typed)
    assert typed not in fm.head_names()


def test_what_is_no_head_is_refused() -> None:
    with pytest.raises(InputError, match=r"builtins.int .registered. is not a head: it must be a Head"):
        fm.register_head(int)  # type: ignore[type-var]
