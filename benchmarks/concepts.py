"""Draw the figures of the site's concept pages from statistics that are measured here.

Run ``python benchmarks/concepts.py``: it writes covariance.svg and shift.svg to docs/concepts, the same every time.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.gaussian import covariance_bias

Floats = NDArray[np.float64]
FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
WIDTH, HEIGHT, SCALE = 280, 250, 30.0
STYLE = """<style>
.dot{fill:#0b7a6f;fill-opacity:.35}.mean{fill:#0b7a6f}.true{stroke:#8a9a98;stroke-dasharray:4 4;fill:none;
stroke-width:1.5}
.est{stroke:#c2571a;fill:none;stroke-width:2}.row{stroke:#c2571a;stroke-width:2.5}.ink{fill:#1d2b2a}.soft{fill:#5b6b69}
.a{fill:#0b7a6f;fill-opacity:.5}.b{fill:#c2571a;fill-opacity:.5}.c{fill:#5a54b5;fill-opacity:.5}
@media (prefers-color-scheme:dark){.dot{fill:#4fc3b5;fill-opacity:.35}.mean{fill:#4fc3b5}.est,.row{stroke:#f0965a}
.ink{fill:#e6f0ee}
.soft{fill:#9fb3b0}.a{fill:#4fc3b5;fill-opacity:.55}.b{fill:#f0965a;fill-opacity:.55}.c{fill:#a7a2ff;fill-opacity:.55}}
</style>"""


def place(point: Floats) -> tuple[str, str]:
    """Return where a point (2,) of the feature plane is in a panel, in pixels."""
    return f"{WIDTH / 2 + SCALE * point[0]:.1f}", f"{HEIGHT / 2 - SCALE * point[1]:.1f}"


def dots(points: Floats, kind: str, radii: Floats | float = 2.2) -> str:
    """Return points (n, 2) as circles."""
    sizes = np.broadcast_to(radii, len(points))
    marks = []
    for point, radius in zip(points, sizes, strict=True):
        x, y = place(point)
        marks.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius:.1f}"/>')
    return "".join(marks)


def ellipse(mean: Floats, covariance: Floats, kind: str) -> str:
    """Return the curve of Mahalanobis distance 2 around a mean (2,)."""
    values, vectors = np.linalg.eigh(covariance)
    angle = -np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    x, y = place(mean)
    long, short = 2 * SCALE * np.sqrt(values[::-1])
    return (
        f'<ellipse class="{kind}" rx="{long:.1f}" ry="{short:.1f}" transform="translate({x} {y}) rotate({angle:.1f})"/>'
    )


def picture(title: str, panels: list[tuple[str, str, str]]) -> str:
    """Return panels, each of a title, a line below it and its marks, side by side."""
    width = WIDTH * len(panels)
    parts = [
        f'<g transform="translate({WIDTH * number} 0)">{marks}'
        f'<text class="ink" x="10" y="20" font-weight="600">{name}</text>'
        f'<text class="soft" x="10" y="{HEIGHT - 8}">{words}</text></g>'
        for number, (name, words, marks) in enumerate(panels)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{title}"'
    return "\n".join([f'{head} font-family="system-ui, sans-serif" font-size="13">', STYLE, *parts, "</svg>\n"])


def covariance_figure() -> str:
    """Return one class at 14 clients, and its covariance from second moments, from client means, and from sketches."""
    rng = np.random.default_rng(3)
    true = np.array([[3.0, 1.6], [1.6, 1.5]])
    clients = [rng.multivariate_normal([0, 0], true, size=int(size)) for size in rng.integers(4, 16, size=14)]
    held = [(X, np.zeros(len(X), int)) for X in clients]
    X = np.concatenate(clients)
    means = np.stack([part.mean(axis=0) for part in clients])

    def estimate(head: str) -> tuple[Floats, Floats]:
        stats = fm.measure(held, fm.make_head(head).needs, n_classes=1).statistics()
        source = {"gh-lda": "exact", "fedcof": "free", "lda-sketch": "sketch"}[head]
        gaussians = fm.ClassGaussians(stats, source)
        return gaussians.means[0], gaussians.raw_covariance()

    panels = []
    outline = ellipse(np.zeros(2), true, "true")
    for name, words, head, marks in (
        ("exact", "all samples enter: d² numbers", "gh-lda", dots(X, "dot")),
        (
            "free",
            "client means only: d numbers",
            "fedcof",
            dots(means, "mean", np.sqrt([len(c) for c in clients]) * 1.4),
        ),
        ("sketch", "means, leading directions, a trace", "lda-sketch", dots(means, "mean", 2.5) + directions(clients)),
    ):
        mean, covariance = estimate(head)
        panels.append((name, words, marks + outline + ellipse(mean, covariance, "est")))
    return picture("One class: its covariance from second moments, from client means, from sketches", panels)


def directions(clients: list[Floats]) -> str:
    """Return each client's leading direction around its mean, as long as its spread."""
    lines = []
    for part in clients:
        mean = part.mean(axis=0)
        _, values, right = np.linalg.svd(part - mean, full_matrices=False)
        reach = right[0] * values[0] / np.sqrt(len(part))
        (x1, y1), (x2, y2) = place(mean - reach), place(mean + reach)
        lines.append(f'<line class="row" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    return "".join(lines)


def shift_figure() -> str:
    """Return one class at three clients, without and with a difference between clients, and what F says."""
    panels = []
    for name, apart in (("clients differ in labels only", 0.0), ("clients differ in features, too", 1.7)):
        rng = np.random.default_rng(5)
        offsets = apart * np.array([[-1.0, 0.6], [0.9, 0.9], [0.1, -1.1]])
        parts = [rng.normal(scale=0.8, size=(n, 2)) + offset for n, offset in zip((90, 40, 15), offsets, strict=True)]
        held = [(part, np.zeros(len(part), int)) for part in parts]
        spec = fm.StatisticsSpec.of("client_means", "class_norms")
        ratio = covariance_bias(fm.measure(held, spec, n_classes=1).statistics()).shift
        marks = "".join(dots(part, kind) for part, kind in zip(parts, "abc", strict=True))
        marks += dots(np.stack([part.mean(axis=0) for part in parts]), "ink", 4.5)
        panels.append((name, f"F = {ratio:.1f}", marks))
    return picture("One class at three clients, and the shift statistic F", panels)


def main() -> None:
    """Write the figures."""
    for name, figure in (("covariance", covariance_figure()), ("shift", shift_figure())):
        (FOLDER / f"{name}.svg").write_text(figure)


if __name__ == "__main__":
    main()
