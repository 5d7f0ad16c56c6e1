"""``fedmoments demo``: a whole federation, from pixels, on data that need no download."""

import io
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.options import Json
from fedmoments.cli.output import print_line
from fedmoments.cli.simulate import run_and_show

__all__ = ["demo"]

EXAMPLE = "\b\nExample:\n  fedmoments demo"


@command("demo", EXAMPLE)
def demo(
    *,
    folder: Annotated[Path, typed(help="Folder for the results and for digits.npz.")] = Path("runs/demo"),
    seeds: Annotated[int, typed(help="How many seeds.")] = 3,
    runtime: Annotated[str, typed(help="torch or onnx.")] = "torch",
    json: Json = False,
) -> None:
    """Simulate 100 clients on scikit-learn's digits through EfficientNet-Lite0: all heads, Dirichlet 0.1.

    The images are upscaled to 96 pixels and encoded by weights that come with a package; nothing is downloaded.
    """
    from fedmoments.settings.study import StudySettings

    config = StudySettings(
        data="digits",
        encoder="efficientnet-lite0",
        size=96,
        runtime=runtime,
        clients=(100,),
        splits=("dirichlet:0.1",),
        participation=("20",),
        seeds=seeds,
    )
    run_and_show(config, folder, json=json)
    write_digits(folder / "digits.npz")
    if not json:
        print_line(f"open {folder / 'report.html'} in a browser; 'fedmoments COMMAND --help' has an example for each")


def write_digits(path: Path) -> None:
    """Write scikit-learn's bundled digits, 8 × 8 pixels as 64 features, as a features file for the other commands."""
    import numpy as np

    from fedmoments.files import write_whole
    from fedmoments.samples.sources.registry import load_data

    data = load_data("digits")
    parts = {"train": data.train, "test": data.test}
    arrays: dict[str, Any] = {"classes": np.array(data.class_names)}
    for name, part in parts.items():
        arrays |= {f"x_{name}": np.asarray(part.items).reshape(len(part), -1) / 255.0, f"y_{name}": part.labels}
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    write_whole(path, stored.getvalue())
