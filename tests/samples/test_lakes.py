"""One party's files: any format, any executor, cut short and gone on: the same statistics, bit for bit."""

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.statistics import Accumulator
from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.lakes import class_names_of
from fedmoments.samples.lakes import engines as engines_room
from fedmoments.samples.sources.registry import load_data

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
csv = pytest.importorskip("pyarrow.csv")

RNG = np.random.default_rng(0)
N, D, PARTS = 210, 5, 7
Y = RNG.integers(0, 3, size=N)
X = (RNG.normal(size=(N, D)) + 2 * np.eye(3, D)[Y]).astype(np.float32)
SPEC = fm.StatisticsSpec.of("client_means", "gram", "scatter_sketch")
SLICES = [slice(start, start + N // PARTS) for start in range(0, N, N // PARTS)]


def at_once(spec: fm.StatisticsSpec = SPEC) -> fm.Statistics:
    """The same shards, merged in the same tree, by hand."""
    carry: Any = engines_room.Carry(lambda one, other: one.merge(other))
    for rows in SLICES:
        carry.add(Accumulator(spec, n_classes=3, dim=D).update(X[rows], Y[rows]))
    made: fm.Statistics = carry.total().statistics()
    return made


def write(folder: Path, kind: str, labels: Any = Y) -> Path:
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(SLICES):
        columns: dict[str, Any] = {f"emb{j}": X[rows, j] for j in range(D)}
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[rows].ravel()), D)
        label = pa.array(np.asarray(labels)[rows])
        path = folder / f"part-{number}.{kind.partition(' ')[0]}"
        if kind == "npz":
            np.savez(path, x_train=X[rows], y_train=np.asarray(labels)[rows])
            continue
        table = pa.table({"vector": vectors, "label": label} if "vectors" in kind else {**columns, "label": label})
        if kind.startswith("parquet"):
            parquet.write_table(table, path, row_group_size=11)
        elif kind == "arrow stream":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=13)
        elif kind.startswith("arrow"):
            feather.write_feather(table, path, compression="uncompressed")
        else:
            csv.write_csv(table, path)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "parquet vectors", "arrow", "arrow vectors", "arrow stream", "csv", "npz"])
def test_files_of_every_format_are_one_client(tmp_path: Path, kind: str) -> None:
    stats = fm.measure_files(write(tmp_path / "lake", kind), SPEC)
    wanted = at_once()
    assert len(stats.rows) == 3
    if kind in ("csv", "arrow stream"):  # decimal digits; other batches, and so another order of sums
        np.testing.assert_allclose(stats.gram, wanted.gram, rtol=1e-6)
    else:
        assert stats == wanted


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_any_executor_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    lake = write(tmp_path / "lake", "parquet vectors")
    seen: list[tuple[int, int]] = []
    pool: Executor = (
        ThreadPoolExecutor(3) if kind == "threads" else ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    )
    with pool:
        stats = fm.measure_files(lake, SPEC, executor=pool, progress=lambda done, all_: seen.append((done, all_)))
    assert stats == at_once()
    assert seen == [(k, PARTS) for k in range(1, PARTS + 1)]


def test_in_fixed_point_files_may_be_cut_in_any_way(tmp_path: Path) -> None:
    form = fm.FixedPoint(norm_bound=64.0, max_samples=10_000)
    spec = fm.StatisticsSpec.of("gram", "client_means", means_per_client=2)
    stats = fm.measure_files(write(tmp_path / "lake", "parquet"), spec, fixed_point=form, client="clinic")
    whole = Accumulator(spec, n_classes=3, dim=D, fixed_point=form).update(X, Y).statistics()
    assert stats == whole
    assert stats.clients == {"clinic"}


class _Dies(ThreadPoolExecutor):
    """An executor whose machine is switched off after some files."""

    def __init__(self, after: int) -> None:
        super().__init__(1)
        self.left = after

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_run_that_was_cut_short_goes_on_and_ends_with_the_same_bits(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, kept = write(tmp_path / "lake", "parquet"), tmp_path / "kept"
    monkeypatch.setattr(engines_room, "AHEAD", 1)
    with pytest.raises(KeyboardInterrupt), _Dies(after) as pool:
        fm.measure_files(lake, SPEC, executor=pool, manifest=kept)
    seen: list[int] = []
    stats = fm.measure_files(lake, SPEC, manifest=kept, progress=lambda done, _: seen.append(done))
    assert stats == at_once()
    assert seen == list(range(after + 1, PARTS + 1))
    assert fm.measure_files(lake, SPEC, manifest=kept) == stats  # nothing is left to do


def test_a_manifest_of_something_else_is_refused(tmp_path: Path) -> None:
    lake, kept = write(tmp_path / "lake", "parquet"), tmp_path / "kept"
    fm.measure_files(lake, SPEC, manifest=kept)
    with pytest.raises(InputError, match="belongs to another measurement"):
        fm.measure_files(lake, fm.StatisticsSpec(), manifest=kept)
    changed = lake / "part-2.parquet"
    parquet.write_table(parquet.read_table(changed).slice(0, 3), changed)
    with pytest.raises(InputError, match=r"part-2\.parquet is measured already, but was changed"):
        fm.measure_files(lake, SPEC, manifest=kept)


def test_text_labels_become_names_and_an_agreed_order_is_kept(tmp_path: Path) -> None:
    names = np.array(["ash", "birch", "cedar"])
    lake = write(tmp_path / "lake", "parquet", labels=names[Y])
    assert class_names_of(lake) == (("ash", "birch", "cedar"), 3)
    assert fm.measure_files(lake, SPEC) == at_once()
    turned = fm.measure_files(lake, fm.StatisticsSpec(), class_names=["cedar", "birch", "ash", "oak"])
    assert turned.counts.tolist() == [*np.bincount(Y)[::-1].tolist(), 0]
    with pytest.raises(InputError, match=r"part-0\.parquet: the label 'cedar' is none of the classes ash, birch"):
        fm.measure_files(lake, SPEC, class_names=["ash", "birch"])


def test_images_in_a_table_are_encoded_where_they_are_read(tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image

    from fedmoments.samples.encoders.registry import load_encoder

    def png(pixels: Any) -> bytes:
        out = BytesIO()
        Image.fromarray(pixels).save(out, "PNG")
        return out.getvalue()

    pictures = RNG.integers(0, 255, size=(4, 24, 24, 3), dtype=np.uint8)
    cells = [png(pixels) for pixels in pictures]
    parquet.write_table(pa.table({"image": cells, "label": [0, 1, 0, 1]}), tmp_path / "a.parquet")
    stats = fm.measure_files(tmp_path / "a.parquet", fm.StatisticsSpec(), encoder="squeezenet-1.1", features="image")
    encoder = load_encoder("squeezenet-1.1")
    features = encoder.encode([encoder.prepare(cell) for cell in cells])
    np.testing.assert_allclose(stats.sums[1], features[1::2].sum(axis=0), rtol=1e-5, atol=1e-5)


def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path) -> None:
    lake = write(tmp_path / "lake", "parquet")
    with pytest.raises(InputError, match="has no column 'target' of labels"):
        fm.measure_files(lake, SPEC, label="target")
    with pytest.raises(InputError, match="there is nothing to measure"):
        fm.measure_files(tmp_path / "nowhere.parquet", SPEC)
    with pytest.raises(InputError, match="no file that ends in"):
        fm.measure_files([], SPEC)
    (lake / "part-3.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FileFormatError, match=r"part-3\.parquet"):
        fm.measure_files(lake, SPEC, n_classes=3)
    (lake / "part-3.parquet").unlink()
    np.savez(lake / "part-3.npz", x=X)
    with pytest.raises(InputError, match=r"part-3\.npz.* lacks the array 'x_train'"):
        fm.measure_files(lake, SPEC, n_classes=3)


def test_parts_without_a_row_add_nothing(tmp_path: Path) -> None:
    whole = fm.measure_files(write(tmp_path / "lake", "parquet"), SPEC)
    empty = parquet.read_table(tmp_path / "lake" / "part-0.parquet").slice(0, 0)
    parquet.write_table(empty, tmp_path / "lake" / "part-9.parquet")  # as Spark and Dask leave them
    with ThreadPoolExecutor(2) as pool:
        assert fm.measure_files(tmp_path / "lake", SPEC, executor=pool) == whole
    assert fm.measure_files(tmp_path / "lake", SPEC, manifest=tmp_path / "m") == whole
    with pytest.raises(InputError, match=r"no file of .* has a row"):
        fm.measure_files(tmp_path / "lake" / "part-9.parquet", SPEC, n_classes=3)


def test_the_index_of_a_pandas_frame_is_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({**{f"emb{j}": X[:, j] for j in range(D)}, "label": Y})
    frame.sample(frac=1.0, random_state=0).to_parquet(tmp_path / "shuffled.parquet")
    frame.rename_axis("patient").sample(frac=1.0, random_state=0).to_parquet(tmp_path / "named.parquet")
    for name in ("shuffled", "named"):
        assert fm.measure_files(tmp_path / f"{name}.parquet", fm.StatisticsSpec()).dim == D
        assert np.shape(load_data(f"parquet:{tmp_path / name}.parquet").train.items)[1] == D
    raw = load_data(f"parquet:{tmp_path / 'shuffled'}.parquet", table="draft")
    assert np.shape(raw.train.items)[1] == D


def frame(path: Path, **columns: Any) -> Path:
    table = pa.table({**{f"emb{j}": X[:, j] for j in range(D)}, "label": Y, **columns})
    (csv.write_csv if path.suffix == ".csv" else parquet.write_table)(table, path)
    return path


def test_files_whose_columns_stand_in_another_order_are_not_mixed_up(tmp_path: Path) -> None:
    first = frame(tmp_path / "a.parquet")
    names = ["label", *[f"emb{j}" for j in reversed(range(D))]]
    parquet.write_table(parquet.read_table(first).select(names), tmp_path / "b.parquet")
    csv.write_csv(parquet.read_table(first).select(names), tmp_path / "c.csv")
    wanted = fm.measure_files([first], fm.StatisticsSpec())
    both = fm.measure_files([first, tmp_path / "b.parquet", tmp_path / "c.csv"], fm.StatisticsSpec())
    np.testing.assert_allclose(both.sums, 3 * wanted.sums, rtol=1e-5)
    frame_of = {name: parquet.read_table(tmp_path / f"{name}.parquet").to_pandas() for name in "ab"}
    pooled = fm.measure(frame_of, fm.StatisticsSpec()).statistics()
    np.testing.assert_allclose(pooled.sums, 2 * wanted.sums, rtol=1e-5)
    streamed = fm.measure_stream(list(frame_of.values()), fm.StatisticsSpec(), n_classes=3)
    np.testing.assert_allclose(streamed.sums, 2 * wanted.sums, rtol=1e-5)
    parquet.write_table(parquet.read_table(first).drop_columns(["emb1"]), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"d\.parquet: no column is called 'emb1'"):
        fm.measure_files([first, tmp_path / "d.parquet"], SPEC)


def test_numbers_of_csv_that_begin_whole_or_empty_go_on_with_fractions(tmp_path: Path) -> None:
    rows = 90_000  # more than the block from which the types are guessed
    path = tmp_path / "long.csv"
    path.write_text("a,b,label\n" + "1,2,0\n" * rows + "2.5,2.5,1\n")
    assert fm.measure_files(path, fm.StatisticsSpec()).sums.tolist() == [[rows, 2.0 * rows], [2.5, 2.5]]
    path.write_text("a,b,label\n" + "1,,0\n" * rows + "2,2.5,1\n")
    with pytest.raises(InputError, match=r"column 'b' has \d+ missing values"):
        fm.measure_files(path, fm.StatisticsSpec())
    path.write_text("a,label\n" + "1,0\n" * 4 * rows + "2,x\n")
    with pytest.raises(InputError, match="a column must hold one type of cells in all rows"):
        fm.measure_files(path, fm.StatisticsSpec())


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ([None, *Y[1:].tolist()], "1 labels are missing"),
        ((Y + 10**12).tolist(), "would make 1000000000003 classes"),
        ([[int(label)] for label in Y], "a label is one number or text, but the column 'label' holds list"),
        ([date(2020, 1, 1)] * N, "labels are all numbers or all text, but they are of the types date"),
        ([b"\xff"] * N, "is not UTF-8"),
        (np.array(["é", "e\u0301", "z"])[Y].tolist(), "look the same"),
    ],
)
def test_labels_that_cannot_be_meant_are_refused(tmp_path: Path, label: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fm.measure_files(frame(tmp_path / "a.parquet", label=label), SPEC)


def test_labels_of_any_plain_type_are_read(tmp_path: Path) -> None:
    from decimal import Decimal

    texts = np.array(["u", "v", "w"])[Y]
    wanted = fm.measure_files(frame(tmp_path / "a.parquet"), SPEC)
    for label in (Y.astype(float), [Decimal(int(y)) for y in Y], texts.tolist(), np.char.encode(texts).tolist()):
        assert fm.measure_files(frame(tmp_path / "b.parquet", label=label), SPEC) == wanted
    with pytest.raises(InputError, match="class_names has 'u' twice"):
        fm.measure_files(tmp_path / "b.parquet", SPEC, class_names=["u", "u", "v", "w"])
    with pytest.raises(InputError, match="a list of them, not a NoneType"):
        fm.measure_files(None, SPEC)  # type: ignore[arg-type]


def test_an_encoder_of_rows_takes_columns_of_numbers(tmp_path: Path) -> None:
    path = frame(tmp_path / "a.parquet")
    wanted = fm.measure_files(path, fm.StatisticsSpec(), features="emb*")
    doubled = fm.measure_files(path, fm.StatisticsSpec(), features="emb*", encoder=double)
    np.testing.assert_allclose(doubled.sums, 2 * wanted.sums)
    vectors = write(tmp_path / "vectors", "parquet vectors")
    np.testing.assert_allclose(
        fm.measure_files(vectors, fm.StatisticsSpec(), features="vector", encoder=double).sums, doubled.sums, rtol=1e-5
    )


def double(rows: Any) -> Any:
    return 2 * rows
