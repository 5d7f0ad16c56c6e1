"""`import fedmoments` is fast and brings no optional dependency."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "flwr", "scipy", "sklearn", "click", "rich", "matplotlib", "pandas", "safetensors")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_brings_nothing_heavy() -> None:
    code = f"import sys, fedmoments; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_import_takes_less_than_0_3_seconds_of_a_processor() -> None:
    code = "import time; start = time.process_time(); import fedmoments; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(5)) < 0.3


def test_fitting_needs_numpy_scipy_and_safetensors_only() -> None:
    forbidden = [name for name in HEAVY if name not in ("scipy", "safetensors")]
    code = (
        "import sys, tempfile, pathlib, fedmoments as fm\n"
        "parties = {k: ([[0.0, 1.0], [1.0, k]], [0, 1]) for k in range(3)}\n"
        "for name in fm.head_names():\n"
        "    hyper = {'n_features': 8} if name == 'fed3r-rf' else {}\n"
        "    fitted = fm.fit(name, parties, **hyper)\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    fitted.save(pathlib.Path(folder, 'x')); fm.load(pathlib.Path(folder, 'x'))\n"
        f"print([m for m in {forbidden!r} if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_every_public_name_can_be_reached_and_others_cannot() -> None:
    import fedmoments

    for name in fedmoments.__all__:
        assert getattr(fedmoments, name) is not None
    assert dir(fedmoments) == sorted(fedmoments.__all__)
    with pytest.raises(AttributeError, match="module 'fedmoments' has no attribute 'nonsense'"):
        _ = fedmoments.nonsense


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    import fedmoments

    assert fedmoments.__version__ == version("fedmoments")
