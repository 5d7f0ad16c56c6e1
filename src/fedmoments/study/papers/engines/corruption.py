"""Heads, fitted on clean or corrupted images, tested on corrupted ones: accuracy by corruption, family and severity."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.heads import Head, make_head
from fedmoments.core.observations import ACCURACY, Observation, Scalar
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples.corruptions import corrupt_samples, corruption_names, families
from fedmoments.samples.corruptions.registry import check_corruption
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.features import Features, Samples
from fedmoments.study.memory import identity_of
from fedmoments.study.papers.engines.diagnosis import curve_at, curve_of
from fedmoments.study.papers.engines.seeds import across_seeds
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation import Federation, predict_blocks
from fedmoments.study.simulation.points import make_split

__all__ = ["run"]

_KNOWN = (
    *("heads", "hyper", "corruptions", "severities", "most_test", "clients", "split", "directions", "shrinkage"),
    *("measured_severities", "measured_images", "most_train"),
)
#: The corruption, the family and the severity of images as they are.
CLEAN = ("none", "clean", 0)
#: Whatever is averaged over.
ALL = "all"


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Fit heads on clean training images, or on corrupted ones, and test them on the corrupted test images.

    Parameters
    ----------
    settings
        ``heads``: names of heads, or names of your own whose ``hyper`` says with ``head`` which one it is. ``hyper``:
        hyper-parameters by name. ``corruptions``: all by default. ``severities``: 1 to 5. ``most_test``: how many test
        images are corrupted, drawn with the first seed; all by default. ``clients`` and ``split``: of the training
        images, which changes nothing for heads that do not tell clients apart. ``directions``: LDA in the full space
        (``lda-full``) and in so many Fisher directions (``lda-fisher-16``) besides, with this ``shrinkage``.
        ``measured_severities``: heads are fitted on images of all corruptions at these severities instead of clean
        ones. ``measured_images``: which, ``train`` (the default), ``test`` (**the very images** that are tested at
        other severities, as a benchmark that has corrupted test images alone invites) or both, one after the other.
        ``most_train``: how many training images are corrupted.
    world
        Image data, encoders and seeds. A seed splits the training images and draws synthetic samples; the images are
        corrupted once, with the first seed.

    Returns
    -------
    list of Observation
        Of ``accuracy``, at ``head``, ``corruption``, ``family``, ``severity`` and ``encoder``: of every corruption; of
        images as they are (``none``, ``clean``, 0); averaged over the corruptions of a family and over all (corruption
        ``all``); and over all severities, too (at ``severities`` = ``all``, without ``severity``). With
        ``measured_severities`` also at ``measured``, ``train`` or ``test``.
    """
    known_settings(settings, _KNOWN, "corruption")
    if world.encoded().data.modality != "image":
        raise InputError(
            f"only images can be corrupted, but {world.encoded().data.name} holds {world.encoded().data.modality}: "
            "choose image data, such as a folder of images"
        )
    measurements: list[Observation] = []
    for encoder, part in product(world.encoder_names, _measured_parts(settings)):
        measurements += _Job(settings, world, encoder, part).measured()
    return measurements


def _measured_parts(settings: Mapping[str, Any]) -> list[str | None]:
    """Return which corrupted images heads are fitted on; None for clean training images."""
    if not settings.get("measured_severities"):
        return [None]
    parts = list(settings.get("measured_images", ["train"]))
    for part in parts:
        if part not in ("train", "test"):
            raise InputError(f"measured_images are 'train', 'test' or both; '{part}' arrived")
    return parts


class _Job:
    """Everything behind one encoder."""

    def __init__(self, settings: Mapping[str, Any], world: World, encoder: str | None, part: str | None) -> None:
        self.settings, self.world, self.encoder, self.part = settings, world, encoder, part
        self.encoded = world.encoded(encoder)
        self.names = list(settings.get("heads", []))
        self.directions = [int(number) for number in settings.get("directions", [])]
        self.corruptions = [str(name) for name in settings.get("corruptions") or corruption_names()]
        self.severities = [int(number) for number in settings.get("severities", (1, 2, 3, 4, 5))]
        self.measured_at = [int(number) for number in settings.get("measured_severities", [])]
        for name, severity in product(self.corruptions, [*self.severities, *self.measured_at]):
            check_corruption(name, severity)
        self.family = {name: family for family, names in families().items() for name in names}
        self._fitted: dict[Any, Classifier | str] = {}

    def measured(self) -> list[Observation]:
        """Return all measurements: of single corruptions, and averages."""
        places = [CLEAN, *((name, self.family[name], level) for name in self.corruptions for level in self.severities)]
        by_seed: dict[int, list[Observation]] = {seed: [] for seed in self.world.each_seed}
        self._deviate()
        for done, (name, family, severity) in enumerate(places):
            self.world.say(done, len(places), f"testing on {name}" + (f", severity {severity}" if severity else ""))
            test = _Later(partial(self._test, name, severity))
            where: dict[str, Scalar] = {"corruption": name, "family": family, "severity": severity}
            for seed, measurements in by_seed.items():
                measurements.extend(_also(here, where) for here in self._at(test, name, severity, seed))
        return self._labelled(by_seed)

    def _labelled(self, by_seed: Mapping[int, list[Observation]]) -> list[Observation]:
        """Return measurements and their averages over corruptions, of all seeds, with what they are of."""
        label = {"encoder": self.encoded.encoder.name} | ({"measured": self.part} if self.part else {})
        joined = across_seeds(
            (seed, [*measurements, *averages(measurements)]) for seed, measurements in by_seed.items()
        )
        return [_also(observation, label) for observation in joined]

    def _at(self, test: "_Later", name: str, severity: int, seed: int) -> Iterable[Observation]:
        """Yield the accuracy of every head on one test set; what was measured before is not measured again."""
        memory, chosen = self.world.memory(self.encoder), self._key(name, severity)
        for label in self.names:
            head = self._head(label, seed)
            alike = seed if _varies(head) else self.world.config.seed
            key = ["corruption", chosen, identity_of(head), alike, self._federation()]
            measure = partial(self._tested, head, alike, test)
            yield replace(memory.once(key, measure)[0], where={"head": label})
        if self.directions:
            key = ["corruption", chosen, "fisher", self._shrinkage, self.directions, *self._measured_key()]
            yield from memory.once(key, partial(self._curve, test))

    def _key(self, name: str, severity: int) -> list[Any]:
        """Return what the test images depend on."""
        return [name, severity, self.world.config.seed, self.settings.get("most_test")]

    def _federation(self) -> list[Any]:
        split = [self.settings.get("clients", 10), self.settings.get("split", "dirichlet:0.1")]
        return [*split, *self._measured_key()]

    def _measured_key(self) -> list[Any]:
        """Return what the corrupted images depend on that heads are fitted on; nothing for clean ones."""
        if self.part is None:
            return []
        most = self.settings.get("most_test" if self.part == "test" else "most_train")
        return [self.part, self.measured_at, self.corruptions, most, self.world.config.seed]

    @cached_property
    def _measured(self) -> Features:
        """What heads are fitted on: the clean training images, or corrupted ones."""
        features = self.encoded.features
        if self.part is None:
            return features
        images = self.encoded.data.test if self.part == "test" else self.encoded.data.train
        chosen = self._some("most_test" if self.part == "test" else "most_train", len(images))
        places = list(product(self.corruptions, self.measured_at))
        several = []
        for done, (name, severity) in enumerate(places):
            self.world.say(done, len(places), f"measuring {self.part} images under {name}, severity {severity}")
            several.append(self._encode(corrupt_samples(images, name, severity, seed=self.world.config.seed), chosen))
        whole = Samples(np.concatenate([one.X for one in several]), np.concatenate([one.y for one in several]))
        return replace(features, train=whole, domains=None, ids=None)

    @property
    def _shrinkage(self) -> Any:
        return self.settings.get("shrinkage", "blend:0.05")

    def _head(self, label: str, seed: int) -> Head:
        """Return a head by its name, or by the name that its hyper-parameters give it; a seed draws its samples."""
        hyper = dict(self.settings.get("hyper", {}).get(label, {}))
        head = make_head(hyper.pop("head", label), **hyper)
        drawn: dict[str, Any] = {"draw_seed": seed}
        return replace(head, **drawn) if _draws(head) else head

    def _tested(self, head: Head, seed: int, test: "_Later") -> list[Observation]:
        fitted = self._classifier(head, seed)
        if isinstance(fitted, str):
            return [Observation({}, (None,), reason=fitted)]
        samples = test.samples
        return [Observation({}, (float((predict_blocks(fitted, samples.X) == samples.y).mean()),))]

    def _classifier(self, head: Head, seed: int) -> Classifier | str:
        """Return a fitted head, once; or why it cannot be."""
        key = (head, seed)
        if key not in self._fitted:
            features, (clients, scheme) = self._measured, self._federation()[:2]
            split = make_split(features, min(clients, len(features.train)), scheme, seed)
            limit = self.world.config.memory_limit * 1e9
            try:
                self._fitted[key] = Federation(features, split, [head], seed=seed, memory_limit=limit).fitted(head)
            except FedMomentsError as error:
                self._fitted[key] = str(error)
        return self._fitted[key]

    @cached_property
    def _gaussians(self) -> ClassGaussians:
        train, C = self._measured.train, self._measured.n_classes
        return ClassGaussians(Statistics.of(train.X, train.y, StatisticsSpec.of("gram"), n_classes=C))

    def _curve(self, test: "_Later") -> list[Observation]:
        """Return LDA in the full space and in Fisher subspaces of what is measured."""
        try:
            curve = curve_of(self._gaussians, self._shrinkage, (test.samples.X, test.samples.y))
        except FedMomentsError as error:
            return [Observation({"head": "lda-full"}, (None,), reason=str(error))]
        if not curve.directions:
            return [Observation({"head": "lda-full"}, (None,), reason="all classes have the same mean")]
        measurements = [Observation({"head": "lda-full"}, (curve.full_accuracy,))]
        for size in self.directions:
            accuracy, energy = curve_at(curve, size)
            measurements.append(Observation({"head": f"lda-fisher-{size}"}, (accuracy,)))
            measurements.append(Observation({"head": f"lda-fisher-{size}"}, (energy,), "energy"))
        return measurements

    def _test(self, name: str, severity: int) -> Samples:
        """Return features and labels of the test images, corrupted before they were encoded."""
        chosen = self._chosen
        if name == CLEAN[0] and chosen is None:
            return self.encoded.features.test
        images = self.encoded.data.test
        if name != CLEAN[0]:
            images = corrupt_samples(images, name, severity, seed=self.world.config.seed)
        return self._encode(images, chosen)

    def _encode(self, images: Any, chosen: NDArray[np.int64] | None) -> Samples:
        encoded = encode_samples(
            self.encoded.encoder,
            images if chosen is None else images.take(chosen),
            cache_dir=self.world.cache_dir,
            readers=self.world.config.readers,
            strict=self.world.config.strict,
        )
        return Samples(encoded.features, encoded.labels)

    @cached_property
    def _chosen(self) -> NDArray[np.int64] | None:
        """Which test images are looked at; None for all of them."""
        return self._some("most_test", len(self.encoded.data.test))

    def _some(self, setting: str, n: int) -> NDArray[np.int64] | None:
        """Return which of n images are taken where a setting limits them; None for all of them."""
        most = self.settings.get(setting)
        if most is None or most >= n:
            return None
        return np.sort(np.random.default_rng(self.world.config.seed).permutation(n)[:most])

    def _deviate(self) -> None:
        """Say where the images are not the paper's, whether or not anything was measured before."""
        everyone, seed = len(self.encoded.data.test), self.world.config.seed
        if self._chosen is not None:
            some = len(self._chosen)
            self.world.deviate(f"{some:,} test images instead of all {everyone:,}, drawn with the seed {seed}")
        if "frost" in self.corruptions:
            self.world.deviate("the ice of 'frost' is a generated texture, not the published photographs")


class _Later:
    """Test samples that are encoded when they are first needed."""

    def __init__(self, make: Callable[[], Samples]) -> None:
        self._make = make

    @cached_property
    def samples(self) -> Samples:
        """Features and labels."""
        return self._make()


def _draws(head: Head) -> bool:
    return "draw_seed" in {field.name for field in fields(head)}


def _varies(head: Head) -> bool:
    """Return whether a seed changes a head: it draws samples, or depends on who holds what."""
    return _draws(head) or head.needs.keeps_clients_apart


def averages(measurements: Sequence[Observation]) -> list[Observation]:
    """Return accuracies averaged over corruptions, by family and in all, and over severities.

    Parameters
    ----------
    found
        One value each, at ``head``, ``corruption``, ``family`` and ``severity``. Clean images are left out. Where a
        value is missing, so is the average.

    Examples
    --------
    >>> place = {"head": "gh-lda", "family": "blur", "severity": 5}
    >>> both = [Observation({**place, "corruption": name}, (value,)) for name, value in (("fog", 0.5), ("snow", 0.7))]
    >>> [(each.where.get("severity"), each.where["family"], round(each.mean, 3)) for each in averages(both)]
    [(5, 'blur', 0.6), (5, 'all', 0.6), (None, 'blur', 0.6), (None, 'all', 0.6)]
    """
    accuracies = [one for one in measurements if one.where["family"] != CLEAN[1] and one.quantity == ACCURACY]
    groups: dict[Any, list[Observation]] = {}
    for by_severity, by_family in product((True, False), (True, False)):
        for accuracy in accuracies:
            at = accuracy.where
            place = {"head": at["head"], "corruption": ALL, "family": at["family"] if by_family else ALL}
            place |= {"severity": at["severity"]} if by_severity else {"severities": ALL}
            groups.setdefault(tuple(place.items()), []).append(accuracy)
    return [_average(dict(place), members) for place, members in groups.items()]


def _average(place: Mapping[str, Any], accuracies: Sequence[Observation]) -> Observation:
    known = [value for accuracy in accuracies for value in accuracy.known]
    reason = next((accuracy.reason for accuracy in accuracies if accuracy.reason), None)
    return Observation(place, (fmean(known) if len(known) == len(accuracies) else None,), reason=reason)


def _also(observation: Observation, where: Mapping[str, Scalar]) -> Observation:
    """Return an observation with more keys of its place."""
    return replace(observation, where={**observation.where, **where})
