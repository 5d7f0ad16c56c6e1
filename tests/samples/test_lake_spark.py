"""The recipe for Spark: paths are sent, partial sums are merged by whatever tree the cluster makes.

The tree is tested everywhere; Spark itself where pyspark and Java are installed (neither is in an extra of ours).
"""

import os
import random
import shutil
import sys
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.statistics import Accumulator
from fedmoments.samples.lakes import joined, measure_shard, plan_files

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SPEC = fm.spec_for("fedcof", "gh-lda")
FORM = fm.FixedPoint(norm_bound=64.0, max_samples=10_000)
RNG = np.random.default_rng(0)


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    for part in range(7):
        rows = 0 if part == 3 else 40  # Spark leaves files without a row
        columns = {f"emb{j}": RNG.normal(size=rows) for j in range(5)}
        parquet.write_table(pa.table({**columns, "label": RNG.integers(0, 3, rows)}), folder / f"part-{part}.parquet")
    return folder


@pytest.mark.parametrize("seed", range(5))
def test_any_tree_of_merges_gives_the_same_bits_in_fixed_point(lake: Path, seed: int) -> None:
    files, plan = plan_files(lake, SPEC, fixed_point=FORM)
    parts = [measure_shard(str(file), plan) for file in files]
    draw = random.Random(seed)
    draw.shuffle(parts)
    while len(parts) > 1:
        some = sorted(draw.sample(range(len(parts)), min(len(parts), draw.randint(2, 3))), reverse=True)
        parts.append(reduce(joined, [parts.pop(place) for place in some]))
    assert Accumulator.from_bytes(parts[0]).statistics() == fm.measure_files(lake, SPEC, fixed_point=FORM)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.filterwarnings("default")
def test_the_recipe_of_the_documentation_runs_on_spark(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="the recipe is tested where pyspark is installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    options = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
    spark = sql.SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    try:
        files, plan = plan_files(lake, SPEC, fixed_point=FORM)
        paths = spark.sparkContext.parallelize([str(file) for file in files], len(files))
        data = paths.map(partial(measure_shard, plan=plan)).treeReduce(joined)
    finally:
        spark.stop()
    assert Accumulator.from_bytes(data).statistics() == fm.measure_files(lake, SPEC, fixed_point=FORM)
