"""A package of somebody else, found by its entry points, that brings one of everything: each is used as ours are."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

CODE = '''
"""What somebody else wrote."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.samples import DataSet, Samples, Split
from fedmoments.samples.encoders import Encoder
from fedmoments.study.baselines import Baseline, Upload
from fedmoments.tuning.optimisers import ServerOptimiser


class Absolutes(fm.Moment):
    """The sum of absolute values of a class."""

    name, symbol, layout, degree = "class_absolutes", "A+", fm.Layout.CLASS, 1

    def width(self, dim):
        return dim

    def workspace(self, n_cells, dim):
        return np.zeros((n_cells, dim))

    def add(self, work, X, cells):
        work += cell_sums(np.abs(X), cells, len(work))


@dataclass(frozen=True)
class Sizes(fm.Head):
    """Nearest mean of absolute values."""

    weight: float = 1.0

    @property
    def needs(self):
        return fm.StatisticsSpec.of("class_absolutes")

    def solve(self, stats):
        means = np.zeros((stats.n_classes, stats.dim))
        means[stats.classes] = stats.class_array("class_absolutes") / stats.class_counts[:, None]
        bias = -0.5 * (means**2).sum(axis=1)
        return LinearClassifier(weights=self.weight * means.T, bias=self.weight * bias, present=stats.counts > 0)


@dataclass(frozen=True)
class Doubled(FeatureMap, kind="doubled"):
    def _apply(self, X):
        return 2 * X


class Shades(Encoder):
    """The mean and the spread of each colour."""

    name, modality, batch_size, dim = "shades", "image", 8, 6
    preprocessing, weights_hash = MappingProxyType({}), "none"

    def prepare(self, sample):
        pixels = np.asarray(sample, np.float32).reshape(-1, 3)
        return np.concatenate([pixels.mean(axis=0), pixels.std(axis=0)])

    def encode(self, batch):
        return np.asarray(batch, np.float32)


def squares(argument, *, test_share=None, seed=0, strict=False):
    """Squares in two shades."""
    rng = np.random.default_rng(seed)

    def part(n):
        y = np.arange(n) % 2
        items = (rng.normal(0, 8, (n, 5, 5, 3)) + 60 + 90 * y[:, None, None, None]).clip(0, 255).astype(np.uint8)
        return Samples(list(items), y, ("dark", "light"), "image")

    return DataSet(part(int(argument)), part(20), "squares", "Two shades.")


def alternating(request):
    """Deals samples in turn."""
    return Split(np.arange(len(request.y)) % request.n_clients, request.n_clients, request.scheme)


@dataclass(frozen=True)
class Plain(Baseline):
    """The mean of means."""

    sends: ClassVar[str] = "means"

    def local(self, X, y, *, n_classes, seed):
        means = np.stack([X[y == c].mean(axis=0) if (y == c).any() else np.zeros(X.shape[1]) for c in range(n_classes)])
        return Upload({"means": means}, np.bincount(y, minlength=n_classes))

    def combine(self, uploads, *, dim, seed):
        means = np.mean([upload.arrays["means"] for upload in uploads], axis=0)
        seen = np.sum([upload.counts for upload in uploads], axis=0) > 0
        return LinearClassifier(weights=means.T, bias=-0.5 * (means**2).sum(axis=1), present=seen)


class Half(ServerOptimiser):
    """Goes half the way to the plain mean."""

    name = "half"

    def __init__(self, plan, samples):
        del plan, samples

    def step(self, round_number, arrays, updates):
        return {k: (a + np.mean([u.arrays[k] for u in updates], axis=0)).astype(a.dtype) / 2 for k, a in arrays.items()}

    def state(self):
        return {}

    def restore(self, state):
        del state


def darkness(pixels, severity, rng):
    return pixels / np.float32(1 + severity)
'''
POINTS = """
[fedmoments.heads]
sizes = theirs:Sizes
[fedmoments.moments]
class_absolutes = theirs:Absolutes
[fedmoments.maps]
doubled = theirs:Doubled
[fedmoments.encoders]
shades = theirs:Shades
[fedmoments.sources]
squares = theirs:squares
[fedmoments.splits]
alternating = theirs:alternating
[fedmoments.baselines]
plain = theirs:Plain
[fedmoments.optimisers]
half = theirs:Half
[fedmoments.corruptions]
darkness = theirs:darkness
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, and a features file."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "theirs.py").write_text(CODE)
    info = folder / "theirs-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(POINTS)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, n in (("train", 90), ("test", 60)):
        y = np.arange(n) % 3
        sign = rng.choice([-1, 1], (n, 3))
        arrays |= {f"x_{part}": (sign * np.eye(3)[y] * 3 + rng.normal(0, 0.3, (n, 3))).astype("f4"), f"y_{part}": y}
    np.savez(folder / "features.npz", **arrays)  # signs are random: means say nothing, absolute values everything
    return folder


def run(site: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(site), "FEDMOMENTS_CACHE": str(site / "cache")}
    done = subprocess.run([sys.executable, *command], cwd=site, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def cli(site: Path, *command: str) -> str:
    return run(site, "-m", "fedmoments", *command)


def test_everything_is_listed_and_loads(site: Path) -> None:
    printed = run(
        site,
        "-c",
        dedent("""
        import json
        import numpy as np
        import fedmoments as fm
        from fedmoments.core.maps import from_description
        from fedmoments.core.statistics import MOMENTS
        from fedmoments.samples import SCHEMES, load_data, parse_split
        from fedmoments.samples.corruptions import corrupt
        from fedmoments.samples.encoders import load_encoder
        from fedmoments.samples.encoders.pipeline import encode_samples
        from fedmoments.settings.optimisers import OPTIMISERS
        from fedmoments.study.baselines import baseline_names

        data = load_data("squares:40")
        encoded = encode_samples(load_encoder("shades"), data.train)
        print(json.dumps({
            "last": [tuple(names)[-1] for names in (fm.head_names(), MOMENTS, OPTIMISERS, SCHEMES, baseline_names())],
            "map": from_description({"kind": "doubled"})([[1.0, 2.0]]).tolist(),
            "grey": int(corrupt(np.full((4, 4), 200, np.uint8), "darkness", 3).max()),
            "features": list(encoded.features.shape),
            "deal": parse_split("alternating").apply([0, 1, 0, 1], n_clients=2).clients.tolist(),
            "summary": fm.presets()["sizes"].summary,
        }))
        """),
    )
    assert json.loads(printed) == {
        "last": ["sizes", "class_absolutes", "half", "alternating", "plain"],
        "map": [[2.0, 4.0]],
        "grey": 50,
        "features": [40, 6],
        "deal": [0, 1, 0, 1],
        "summary": "Nearest mean of absolute values.",
    }


def test_a_moment_and_a_head_go_from_samples_to_a_classifier_on_the_command_line(site: Path) -> None:
    cli(site, "split", "features.npz", "--split", "alternating", "--clients", "2", "--out", "two.split")
    for client in ("0", "1"):
        how = ("--split", "two.split", "--client", client, "--n-classes", "3", "--fixed-point", "--norm-bound", "20")
        cli(site, "measure", "features.npz", "--head", "sizes", *how, "--out", f"{client}.stats")
    shown = json.loads(cli(site, "inspect", "0.stats", "--json"))
    assert "class_absolutes" in json.dumps(shown)
    cli(site, "merge", "0.stats", "1.stats", "--out", "both.stats")
    cli(site, "fit", "both.stats", "--head", "sizes", "--set", "weight=2.0", "--out", "merged.classifier")
    cli(site, "fit", "0.stats", "1.stats", "--head", "sizes", "--set", "weight=2.0", "--out", "apart.classifier")
    done = json.loads(cli(site, "audit", "both.stats", "--json"))
    assert "what class_absolutes tell, which are not a part of fedmoments, is not known here" in json.dumps(done)
    printed = run(
        site,
        "-c",
        "import numpy as np, fedmoments as fm\n"
        "f = np.load('features.npz')\n"
        "one, other = fm.load('merged.classifier'), fm.load('apart.classifier')\n"
        "print(one.digest() == other.digest(), (one.predict(np.abs(f['x_test'])) == f['y_test']).mean())",
    )
    same, accuracy = printed.split()
    assert same == "True"
    assert float(accuracy) > 0.95


def test_a_moment_travels_and_is_added_up_by_a_ledger_but_not_noised(site: Path) -> None:
    printed = run(
        site,
        "-c",
        dedent("""
        import numpy as np
        import fedmoments as fm
        from fedmoments.errors import PrivacyError
        from fedmoments.privacy.dense import DenseLayout
        from fedmoments.privacy.dp.sensitivity import sample_sensitivity
        from fedmoments.wire import Agreement, IdentityKey, decode, encode

        f = np.load("features.npz")
        X, y = f["x_train"], f["y_train"]
        spec = fm.spec_for("sizes")
        form = fm.FixedPoint(20.0, 10**6)
        agreement = Agreement("0a" * 32, "1b" * 32, "2c" * 32, 3, 3, spec, form)
        key = IdentityKey.generate()
        parts = []
        for name, rows in (("a", slice(0, 40)), ("b", slice(40, None))):
            stats = fm.Statistics.of(X[rows], y[rows], spec, n_classes=3).quantized(form)
            sent = encode(stats, agreement, client=name, version=1, key=key)
            parts.append(decode(sent, agreement, lambda client: key.public).statistics)
        merged = fm.Statistics.merge(parts)
        whole = fm.Statistics.of(X, y, spec, n_classes=3)
        print(np.abs(merged.class_array("class_absolutes") - whole.class_array("class_absolutes")).max() < 1e-6)
        try:
            unit = {name: 1.0 for name in ("counts", *spec.sent)}
            sample_sensitivity(DenseLayout(spec, n_classes=3, dim=3), unit, 1.0, "replace")
        except PrivacyError as error:
            print(error)
        """),
    )
    assert printed.splitlines()[0] == "True"
    assert "how much one sample can change the moment 'class_absolutes'" in printed


def test_a_study_runs_on_their_source_encoder_split_head_and_baseline(site: Path) -> None:
    how = ("--encoder", "shades", "--split", "alternating", "--clients", "3", "--seeds", "1", "--json")
    found = json.loads(cli(site, "simulate", "squares:40", "--heads", "sizes,plain,fedncm", *how))
    rows = {row["head"]: row for row in found["rows"]}
    assert rows["sizes"]["accuracy"] == rows["plain"]["accuracy"] == 1.0
    assert rows["sizes"]["sends"] == "counts + sums + class_absolutes"
    assert rows["plain"]["baseline"]


def test_rounds_are_tuned_with_their_optimiser(site: Path) -> None:
    how = ("--clients", "3", "--split", "iid", "--rounds", "2", "--seeds", "1", "--json")
    found = json.loads(cli(site, "tune", "features.npz", "--starts", "fedncm", "--optimisers", "half", *how))
    assert '"half"' in json.dumps(found)
