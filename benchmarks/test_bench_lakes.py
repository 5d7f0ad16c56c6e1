"""Measuring Parquet files in one process, against the barest loop of pyarrow and BLAS; and its memory.

Rows are 512 float32 features: 200,000 of them, unless FEDMOMENTS_LAKE_ROWS says otherwise.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS, DIM, CLASSES, FILES = int(os.environ.get("FEDMOMENTS_LAKE_ROWS", "200000")), 512, 100, 8

BARE = """
import numpy as np, pyarrow.parquet as pq
from pathlib import Path
from scipy.linalg.blas import dsyrk
from scipy.sparse import csc_array
gram, sums = np.zeros((512, 512), order="F"), np.zeros((100, 512))
for path in sorted(Path(LAKE).iterdir()):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=8192, use_threads=False):
        X = batch["vector"].flatten().to_numpy().reshape(-1, 512).astype(np.float64)
        y = batch["label"].to_numpy()
        dsyrk(1.0, X.T, beta=1.0, c=gram, overwrite_c=1)
        sums += csc_array((np.ones(len(y)), y, np.arange(len(y) + 1)), shape=(100, len(y))) @ X
"""
OURS = """
import fedmoments as fm
fm.measure_files(LAKE, fm.spec_for("gh-lda"), n_classes=100)
"""
TIMED = """
import json, time
import numpy, scipy.linalg, scipy.sparse, pyarrow.parquet, fedmoments.core.api, fedmoments.samples.lakes
start = time.process_time()
{body}
used = time.process_time() - start
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([used, peak / 1024]))
"""


def run(body: str, lake: Path) -> tuple[float, float]:
    """Return CPU seconds and the peak of memory in MB, of a process of its own."""
    code = TIMED.format(body=body.replace("LAKE", repr(str(lake))))
    one = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=one)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def test_a_lake_in_one_process(tmp_path: Path, note: Callable[[str, str, str], None]) -> None:
    rng = np.random.default_rng(0)
    for number in range(FILES):
        n = ROWS // FILES
        X = rng.standard_normal((n, DIM), dtype=np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), DIM)
        table = pa.table({"vector": vectors, "label": rng.integers(0, CLASSES, size=n)})
        parquet.write_table(table, tmp_path / f"part-{number}.parquet")
        del X, vectors, table
    pairs = [(run(BARE, tmp_path), run(OURS, tmp_path)) for _ in range(2)]
    bare, ours = min(b for (b, _), _ in pairs), min(o for _, (o, _) in pairs)
    peak = max(p for _, (_, p) in pairs)
    note(f"{ROWS:,} × {DIM} rows of Parquet, CPU s, ours / bare loop", f"{ours / bare:.2f}", "<= 1.2")
    note("  our peak of memory, MB (bare loop's)", f"{peak:.0f} ({pairs[0][0][1]:.0f})", "<= 500")
    assert ours <= 1.2 * bare
    assert peak <= 500
