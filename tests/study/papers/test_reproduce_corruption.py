"""Heads on corrupted images: by hand on a few, averages, what is remembered, and the paper's numbers by value."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.observations import matching
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.corruptions import corrupt, corruption_names
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs.encoding import encode_data
from fedmoments.study.papers import Observation, Request, World, experiment, run_experiment
from fedmoments.study.papers.engines.corruption import averages, run

pillow = pytest.importorskip("PIL.Image")

SIDE, CLASSES = 16, ("cross", "dot", "stripe")
TWO: dict[str, Any] = {"corruptions": ["gaussian-noise", "fog"], "severities": [1, 5]}


class Pixels(Encoder):
    """The features of an image are its red pixels, 4 × 4 of them a number."""

    name = "pixels"
    modality = "image"
    dim = (SIDE // 4) ** 2
    weights_hash = "no weights"
    preprocessing: Mapping[str, Any] = {"blocks": 4}

    def prepare(self, sample: Any) -> Any:
        image = pillow.open(sample).convert("RGB") if isinstance(sample, Path) else pillow.fromarray(np.asarray(sample))
        image = np.asarray(image.resize((SIDE, SIDE)))  # the probe of an encoder has a size of its own
        return image.reshape(SIDE // 4, 4, SIDE // 4, 4, 3)[..., 0].mean(axis=(1, 3)).ravel() / 255

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return np.stack(batch).astype(np.float32)


def picture(label: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A cross, a dot or a stripe, with something of noise."""
    image = np.full((SIDE, SIDE), 60.0)
    if label == 0:
        image[6:10], image[:, 6:10] = 170, 170
    elif label == 1:
        image[4:12, 4:12] = 170
    else:
        image[:, 8:] = 170
    image += rng.normal(scale=20, size=image.shape) + rng.normal(scale=15)
    return np.repeat(np.clip(image, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of 60 images to train on and 30 to test on, behind an encoder that needs no network."""
    rng = np.random.default_rng(0)
    for part, each in (("train", 20), ("test", 10)):
        for label, name in enumerate(CLASSES):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(each):
                pillow.fromarray(picture(label, rng)).save(folder / f"{i:02d}.png")
    monkeypatch.setattr("fedmoments.study.papers.world.encode_data", partial(encode_data, encoder=Pixels()))
    return f"folder:{tmp_path / 'images'}"


@pytest.fixture
def world(images: str) -> Callable[..., World]:
    return lambda seeds=1, cache=False, **more: World(StudySettings(data=images, **more), seeds=seeds, cache_dir=cache)


def value(found: list[Observation], **where: Any) -> float | None:
    several = matching(found, where)
    assert len(several) == 1, (where, [each.where for each in several])
    return several[0].mean


def test_a_head_is_fitted_on_clean_images_and_tested_on_corrupted_ones(world: Callable[..., World]) -> None:
    made = world()
    found = run({"heads": ["gh-lda", "fedncm"], **TWO}, made)
    data, encoder = made.encoded().data, Pixels()
    train = encoder.encode([encoder.prepare(path) for path in data.train.items])
    parties = {"a": (train[::2], data.train.labels[::2]), "b": (train[1::2], data.train.labels[1::2])}
    pixels = [np.asarray(pillow.open(path).convert("RGB")) for path in data.test.items]
    for head in ("gh-lda", "fedncm"):
        classifier = fm.fit(head, parties)
        clean = classifier.predict(encoder.encode([encoder.prepare(image) for image in pixels]))
        assert value(found, head=head, corruption="none", severity=0) == (clean == data.test.labels).mean()
        for name in TWO["corruptions"]:
            for severity in (1, 5):
                bad = [corrupt(image, name, severity, seed=0, index=i) for i, image in enumerate(pixels)]
                labels = classifier.predict(encoder.encode([encoder.prepare(image) for image in bad]))
                wanted = (labels == data.test.labels).mean()
                assert value(found, head=head, corruption=name, severity=severity) == wanted
    assert (value(found, head="fedncm", corruption="fog", severity=5) or 1.0) < 0.9


def test_averages_are_over_corruptions_families_and_severities(world: Callable[..., World]) -> None:
    names = ["gaussian-noise", "shot-noise", "fog"]
    found = run({"heads": ["fedncm"], "corruptions": names, "severities": [2, 5]}, world())
    single = {
        (each.where["corruption"], each.where["severity"]): each.known[0]
        for each in found
        if each.where["corruption"] not in ("all", "none")
    }
    assert len(single) == 6
    noise = [single["gaussian-noise", 5], single["shot-noise", 5]]
    assert value(found, corruption="all", family="noise", severity=5) == pytest.approx(np.mean(noise))
    assert value(found, corruption="all", family="weather", severity=5) == single["fog", 5]
    three = [single[name, 5] for name in names]
    assert value(found, corruption="all", family="all", severity=5) == pytest.approx(np.mean(three))
    assert value(found, corruption="all", family="all", severities="all") == pytest.approx(np.mean([*single.values()]))
    assert not any("severity" in each.where for each in found if "severities" in each.where)


def test_an_average_of_what_is_missing_is_missing() -> None:
    place: dict[str, Any] = {"head": "gh-qda", "family": "blur", "severity": 1}
    several = [
        Observation({**place, "corruption": "fog"}, (0.5,)),
        Observation({**place, "corruption": "snow"}, (None,), reason="too large"),
    ]
    assert {each.values for each in averages(several)} == {(None,)}
    assert {each.reason for each in averages(several)} == {"too large"}


def test_what_was_measured_is_neither_corrupted_nor_fitted_again(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"heads": ["gh-lda"], "directions": [2], "most_test": 12, **TWO}
    before = run(settings, world(cache=tmp_path / "cache"))
    module = "fedmoments.study.papers.engines.corruption"
    monkeypatch.setattr(f"{module}.corrupt_samples", lambda *_, **__: pytest.fail("it is known"))
    monkeypatch.setattr(f"{module}.Federation", lambda *_, **__: pytest.fail("it is known"))
    again = world(cache=tmp_path / "cache")
    assert run(settings, again) == before
    assert any("12 test images instead of all 30" in words for words in again.deviations)
    with pytest.raises(pytest.fail.Exception):  # other images are others
        run({**settings, "most_test": 13}, world(cache=tmp_path / "cache"))


def test_seeds_draw_synthetic_samples_and_leave_closed_forms_alone(world: Callable[..., World]) -> None:
    settings = {
        "heads": ["gh-lda", "mixed"],
        "hyper": {"mixed": {"head": "fishermix", "samples": 10, "tau": 2.0}},
        "corruptions": ["fog"],
        "severities": [4, 5],
    }
    found = run(settings, world(seeds=4))
    for each in found:
        assert each.seeds == (0, 1, 2, 3)
        assert each.where["head"] != "gh-lda" or len(set(each.values)) == 1
    assert any(len(set(each.values)) > 1 for each in found if each.where["head"] == "mixed")


def test_lda_in_all_fisher_directions_is_lda_on_corrupted_images_too(world: Callable[..., World]) -> None:
    found = run(
        {"directions": [2, 128], "heads": ["gh-lda"], "hyper": {"gh-lda": {"shrinkage": "blend:0.05"}}, **TWO}, world()
    )
    for each in matching(found, {"head": "gh-lda"}):
        place = {key: value for key, value in each.where.items() if key != "head"}
        assert value(found, head="lda-full", **place) == each.mean
        assert value(found, head="lda-fisher-128", **place) == value(found, head="lda-fisher-2", **place) == each.mean
    assert value(found, head="lda-fisher-2", corruption="none", quantity="energy") == 1.0


def test_a_head_that_cannot_be_fitted_has_a_reason(world: Callable[..., World]) -> None:
    found = run({"heads": ["gh-qda"], **TWO}, world(memory_limit=1e-7))
    assert {each.values for each in found} == {(None,)}
    assert all("limit" in (each.reason or "") for each in found)


def test_what_cannot_be_done_is_refused(world: Callable[..., World], tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="corruption"):
        run({"heads": ["gh-lda"], "corruptions": ["frosts"]}, world())
    with pytest.raises(InputError, match="from 1"):
        run({"heads": ["gh-lda"], "severities": [6]}, world())
    with pytest.raises(UnknownNameError, match="engine 'corruption'"):
        run({"head": ["gh-lda"]}, world())


def test_heads_can_be_fitted_on_other_severities_of_the_same_or_other_images(world: Callable[..., World]) -> None:
    made = world()
    settings: dict[str, Any] = {"heads": ["gh-lda"], "corruptions": ["gaussian-noise", "fog"], "severities": [5]}
    found = run({**settings, "measured_severities": [1, 3], "measured_images": ["test", "train"]}, made)
    data, encoder = made.encoded().data, Pixels()

    def features(part: str, name: str, severity: int) -> NDArray[np.float32]:
        pixels = [np.asarray(pillow.open(path).convert("RGB")) for path in getattr(data, part).items]
        bad = [corrupt(image, name, severity, seed=0, index=i) for i, image in enumerate(pixels)]
        return encoder.encode([encoder.prepare(image) for image in bad])

    for part in ("test", "train"):
        places = [(name, severity) for name in settings["corruptions"] for severity in (1, 3)]
        X = np.concatenate([features(part, *place) for place in places])
        classifier = fm.fit("gh-lda", {"a": (X, np.tile(getattr(data, part).labels, len(places)))})
        for name in settings["corruptions"]:
            wanted = (classifier.predict(features("test", name, 5)) == data.test.labels).mean()
            assert value(found, measured=part, corruption=name, severity=5) == wanted
    with pytest.raises(InputError, match="'train', 'test' or both; 'all' arrived"):
        run({**settings, "measured_severities": [1], "measured_images": ["all"]}, world())


def test_table_2_at_other_severities_has_both_columns(world: Callable[..., World]) -> None:
    table = experiment("gh-ofl/table2-severities")
    hyper = {name: {**values} for name, values in table.settings["hyper"].items()}
    for name in ("fishermix", "proto-hyper"):
        hyper[name]["samples"] = 50
    changes = {"corruptions": ["fog"], "hyper": hyper, "most_test": 12, "most_train": 20}
    found = run_experiment(table, world(), Request(changes=changes))
    assert all(cell["mean"] is not None for row in found["table"]["ours"] for cell in row)
    assert all(claim["verdict"] != "not tested" for claim in found["claims"])


def test_features_cannot_be_corrupted(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, x_train=np.eye(4), y_train=[0, 0, 1, 1], x_test=np.eye(4), y_test=[0, 0, 1, 1])
    with pytest.raises(InputError, match="only images can be corrupted"):
        run({"heads": ["fedncm"]}, World(StudySettings(data=str(path)), cache_dir=False))


def test_table_2_prints_what_the_paper_prints_and_settles_its_claims(world: Callable[..., World]) -> None:
    table = experiment("gh-ofl/table2")
    assert [row[0] for row in table.paper[0].values][:6] == [24.4, 25.4, 37.6, 40.1, 39.8, 64.3]
    assert [row[0] for row in table.paper[1].values][:6] == [13.53, 15.11, 25.99, 29.08, 38.64, 46.54]
    hyper = {name: {**values} for name, values in table.settings["hyper"].items()}
    for name in ("fishermix", "proto-hyper", "fishermix-pooled"):
        hyper[name]["samples"] = 50
    changes = {**TWO, "severities": [5], "hyper": hyper}
    found = run_experiment(table, world(), Request(changes=changes))
    assert all(cell["mean"] is not None for row in found["table"]["ours"] for cell in row)
    assert all(claim["verdict"] != "not tested" and len(claim["pairs"]) == 1 for claim in found["claims"])
    assert not any("frost" in words for words in found["deviations"])


def test_the_corrupted_row_of_table_10_is_an_average_of_severities(world: Callable[..., World]) -> None:
    table = experiment("gh-ofl/table10-corrupted")
    assert (table.paper[0].values[0][0], table.paper[0].values[-1][0]) == (39.37, 39.35)
    assert table.settings["severities"] == [1, 2, 3, 4, 5]
    changes = {"most_test": 6, "severities": [1, 2]}
    found = run_experiment(table, world(), Request(changes=changes))
    assert len({each["where"]["corruption"] for each in found["measurements"]}) == len(corruption_names()) + 2
    assert any("'frost' is a generated texture" in words for words in found["deviations"])
    assert [claim["verdict"] for claim in found["claims"]] == ["holds"]
    first = found["table"]["ours"][0][0]["mean"]
    by_severity = [
        each["mean"]
        for each in found["measurements"]
        if each["where"]["head"] == "lda-full" and each["where"]["corruption"] not in ("all", "none")
    ]
    assert len(by_severity) == 38
    assert first == pytest.approx(100 * np.mean(by_severity))
