"""One party's stream: whatever yields batches, on whatever device, measured as if it were arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.samples.device_sums import BLOCK, DeviceSums

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, size=200)
X = (RNG.normal(size=(200, 6)) + 2 * np.eye(3, 6)[Y]).astype(np.float32)
SPEC = fm.spec_for("fedcof", "gh-lda", "gh-nb")


def batches(size: int = 32) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(X), size):
        yield X[start : start + size], Y[start : start + size]


WHOLE = fm.Statistics.of(X, Y, SPEC, n_classes=3)


def close(stats: fm.Statistics, other: fm.Statistics = WHOLE, rtol: float = 1e-12) -> None:
    assert np.array_equal(stats.classes, other.classes)
    assert np.array_equal(stats.class_counts, other.class_counts)
    for name, array in other.arrays.items():
        np.testing.assert_allclose(stats.arrays[name], array, rtol=rtol, atol=rtol * np.abs(array).max(), err_msg=name)


def loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=33, **options
    )


def test_a_generator_of_arrays() -> None:
    close(fm.measure_stream(batches(), SPEC, n_classes=3))


def test_a_torch_loader_in_any_order() -> None:
    close(fm.measure_stream(loader(), SPEC, n_classes=3))
    close(fm.measure_stream(loader(shuffle=True), SPEC, n_classes=3), rtol=1e-10)


def test_lists_of_dicts_by_the_usual_names_and_by_given_ones() -> None:
    close(fm.measure_stream(({"features": a, "label": b, "id": 1} for a, b in batches()), SPEC, n_classes=3))
    odd = ({"vector": a, "what": b} for a, b in batches())
    close(fm.measure_stream(odd, SPEC, n_classes=3, features="vector", label="what"))


def test_single_samples_are_put_together() -> None:
    close(fm.measure_stream(zip(X, Y, strict=True), SPEC, n_classes=3, batch_size=7))
    close(fm.measure_stream(({"x": a, "y": int(b)} for a, b in zip(X, Y, strict=True)), SPEC, n_classes=3))
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    close(fm.measure_stream((tensors[i] for i in range(len(tensors))), SPEC, n_classes=3))


def test_a_hub_stream_says_how_many_classes_there_are() -> None:
    datasets = pytest.importorskip("datasets")
    columns = datasets.Features(
        {"embedding": datasets.Sequence(datasets.Value("float32")), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    )
    whole = datasets.Dataset.from_dict({"embedding": X.tolist(), "label": Y.tolist()}, features=columns)
    close(fm.measure_stream(whole.to_iterable_dataset(), SPEC))
    close(fm.measure_stream(whole, SPEC))


def test_text_labels_need_the_agreed_names() -> None:
    named = ((a, np.array(["x", "y", "z"])[b]) for a, b in batches())
    close(fm.measure_stream(named, SPEC, class_names=["x", "y", "z"]))
    with pytest.raises(InputError, match=r"batch 0: .*give class_names"):
        fm.measure_stream([(X[:1], ["x"])], SPEC, n_classes=3)
    with pytest.raises(InputError, match="the label 'q' is none of the classes x, y"):
        fm.measure_stream([(X[:1], ["q"])], SPEC, class_names=["x", "y"])


def test_gradients_bfloat16_and_inference_tensors() -> None:
    rough = torch.from_numpy(X).bfloat16()
    wide = fm.Statistics.of(rough.float().numpy(), Y, SPEC, n_classes=3)
    close(fm.measure_stream([(rough.requires_grad_(), torch.from_numpy(Y))], SPEC, n_classes=3), wide)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.layer(x)))  # type: ignore[no-any-return]


def test_a_module_encodes_in_evaluation_mode_and_is_left_as_it_was() -> None:
    torch.manual_seed(0)
    net = _Net()
    net.layer.eval()
    stats = fm.measure_stream(loader(), SPEC, n_classes=3, encoder=net)
    assert (net.training, net.drop.training, net.layer.training) == (True, True, False)
    with torch.no_grad():
        features = torch.relu(net.layer(torch.from_numpy(X))).numpy()
    close(stats, fm.Statistics.of(features, Y, SPEC, n_classes=3), rtol=1e-5)


def test_a_function_and_an_encoder_of_ours() -> None:
    close(fm.measure_stream(batches(), SPEC, n_classes=3, encoder=lambda x: 2 * x),
          fm.Statistics.of(2 * X, Y, SPEC, n_classes=3), rtol=1e-7)  # fmt: skip
    images = RNG.integers(0, 255, size=(6, 16, 16), dtype=np.uint8)
    from fedmoments.samples.encoders.registry import load_encoder

    ours = load_encoder("squeezenet-1.1", size=32)
    features = ours.encode([ours.prepare(image) for image in images])
    spec = fm.StatisticsSpec()
    close(
        fm.measure_stream([(images, [0, 1, 2, 0, 1, 2])], spec, n_classes=3, encoder=ours),
        fm.Statistics.of(features, [0, 1, 2, 0, 1, 2], spec, n_classes=3),
    )


def test_a_feature_map_and_a_fixed_point_form_stand_behind_the_encoder() -> None:
    from fedmoments.core.maps import Normalize

    form = fm.FixedPoint(norm_bound=1.01, max_samples=1000)
    stats = fm.measure_stream(batches(), SPEC, n_classes=3, feature_map=Normalize(), fixed_point=form, client="me")
    assert stats.fixed_point == form
    assert stats.clients == {"me"}
    close(stats.to_float(), fm.Statistics.of(Normalize()(X), Y, SPEC, n_classes=3), rtol=1e-9)
    again = fm.measure_stream(batches(7), SPEC, n_classes=3, feature_map=Normalize(), fixed_point=form)
    assert again == stats


# ----------------------------------------------------------------------------------------------------- on a device

EVERYTHING = fm.StatisticsSpec.of("client_means", "class_grams")


@pytest.mark.parametrize("spec", [SPEC, EVERYTHING, fm.StatisticsSpec.of("class_norms"), fm.spec_for("fedcof")])
def test_sums_on_a_device_are_those_of_float64(spec: fm.StatisticsSpec) -> None:
    stats = fm.measure_stream(loader(), spec, n_classes=5, device="cpu")
    close(stats, fm.Statistics.of(X, Y, spec, n_classes=5), rtol=1e-5)


def test_an_offset_does_not_cost_digits_of_the_scatter() -> None:
    """Float32 sums of x xᵀ without centring lose all of a scatter of 1 beside an offset of 1000."""
    far = (RNG.normal(size=(3 * BLOCK, 4)) + 1000).astype(np.float32)
    labels = np.zeros(len(far), np.int64)
    spec = fm.StatisticsSpec.of("gram")
    stats = fm.measure_stream([(torch.from_numpy(far), torch.from_numpy(labels))], spec, n_classes=1, device="cpu")

    def scatter(s: fm.Statistics) -> np.ndarray:
        return s.gram - np.outer(s.sums[0], s.sums[0]) / s.n_samples

    exact = np.cov(far.astype(np.float64).T, bias=True) * len(far)
    assert np.abs(scatter(stats) - exact).max() < BLOCK * 2.0**-24 * np.trace(exact)
    naive = torch.from_numpy(far)
    lost = (naive.T @ naive).double().numpy() - np.outer(far.sum(0, np.float64), far.sum(0, np.float64)) / len(far)
    assert np.abs(lost - exact).max() > 100 * np.abs(scatter(stats) - exact).max()


def test_nothing_waits_for_the_device_while_batches_come() -> None:
    """On ``meta`` a tensor has no numbers: whatever asked for one would fail."""
    sums = DeviceSums(fm.StatisticsSpec.of("client_means", "gram", "class_squares"), 7, "meta")
    for _ in range(3):
        sums.update(torch.empty(BLOCK + 5, 12, device="meta"), torch.empty(BLOCK + 5, dtype=torch.long, device="meta"))
    assert {name: tuple(value.shape) for name, value in sums._folded.items()} == {
        "counts": (7,), "first": (7, 12), "gram": (12, 12), "squares": (7, 12),
    }  # fmt: skip
    assert {value.dtype for value in sums._folded.values()} == {torch.float64}


def test_what_is_wrong_on_a_device_is_said_at_the_end() -> None:
    bad = torch.tensor([[1.0, float("nan")]])
    with pytest.raises(InputError, match="must be finite, but block 0"):
        fm.measure_stream([(bad, torch.tensor([0]))], SPEC, n_classes=2, device="cpu")
    good = torch.ones(1, 2)
    with pytest.raises(InputError, match="labels must be from 0 to 1, but block 1"):
        fm.measure_stream([(good, torch.tensor([0])), (good, torch.tensor([2]))], SPEC, n_classes=2, device="cpu")


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (3, "a stream is an iterable of batches"),
        ("features.npz", "a stream is an iterable of batches"),
        ({"a": 1}, "a stream is an iterable of batches"),
        ([], "the stream has no batch"),
        ([(X, Y, 1)], r"batch 0 must be \(X, y\), a dict of columns or a table, but is a tuple of 3"),
        ([{"a": 1}], "a batch has a, but none of features"),
        ([(X[0], Y[:6])], "batch 0: features must be a matrix"),
        ([(X[:2], Y[:2]), (X[:2, :3], Y[:2])], "batch 1: features must have 6 dimensions"),
        ([(X[:2], [0, 7])], "batch 0: labels must be from 0 to 2, but sample 1 has 7"),
        ([(object(), [0])], "batch 0: features must be"),
    ],
)
def test_what_is_no_stream_is_refused_with_a_sentence(stream: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fm.measure_stream(stream, SPEC, n_classes=3)


def test_a_stream_that_does_not_say_its_classes_and_an_encoder_that_is_none() -> None:
    with pytest.raises(InputError, match="give n_classes, or class_names"):
        fm.measure_stream(batches(), SPEC)
    with pytest.raises(InputError, match=r"an encoder is a torch\.nn.Module, a function"):
        fm.measure_stream(batches(), SPEC, n_classes=3, encoder=3)


def test_a_stream_of_tables_is_as_pandas_and_arrow_read_files_in_parts() -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({**{f"f{j}": X[:, j] for j in range(6)}, "y": Y})
    shuffled = frame.sample(frac=1.0, random_state=0)  # its index is no feature
    for parts in (
        [frame.iloc[start : start + 50] for start in range(0, 200, 50)],
        [shuffled],
        arrow.Table.from_pandas(frame).to_reader(),
    ):
        close(fm.measure_stream(parts, SPEC, n_classes=3), rtol=1e-10)
    named = fm.measure_stream([frame.rename(columns={"y": "what"})], SPEC, n_classes=3, features="f*", label="what")
    close(named)
    with pytest.raises(InputError, match=r"but a DataFrame arrived: .* one table into a list"):
        fm.measure_stream(frame, SPEC, n_classes=3)


def test_a_module_of_float32_takes_batches_of_float64() -> None:
    module = torch.nn.Linear(6, 4)
    made = fm.measure_stream(((a.astype(float), b) for a, b in batches()), SPEC, n_classes=3, encoder=module)
    close(made, fm.measure_stream(batches(), SPEC, n_classes=3, encoder=module), rtol=1e-6)


def test_an_encoder_that_fails_or_gives_no_array_is_told_apart() -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError) as caught:
        fm.measure_stream(batches(), SPEC, n_classes=3, encoder=broken)
    assert caught.value.__notes__ == ["This came of batch 0 of the stream."]
    for encoder, words in (
        (lambda a: {"pooler_output": a}, "a dict of pooler_output arrived: wrap it"),
        (lambda _: None, "a NoneType arrived"),
    ):
        with pytest.raises(InputError, match=words):
            fm.measure_stream(batches(), SPEC, n_classes=3, encoder=encoder)


def test_what_no_stream_can_be_is_one_sentence() -> None:
    def measured(stream: Any, **options: Any) -> Any:
        return fm.measure_stream(stream, SPEC, **{"n_classes": 3, **options})

    for stream, options, words in (
        ([(X[0, :2], 0), (X[1], 1)], {}, r"samples of a stream have one shape, but these have \(2,\), \(6,\)"),
        (batches(), {"device": "flux"}, "torch has no device 'flux' here"),
        (batches(), {"device": "cuda" if not torch.cuda.is_available() else "vulkan"}, "torch has no device"),
        ([(["a", "b"], [0, 1])], {"device": "cpu"}, "batch 0: features and labels must be numbers"),
        (batches(), {"n_classes": 2.5}, "n_classes must be a whole number"),
        ([(X, np.array(["a", "b", "c"])[Y])], {"class_names": ["a", "a", "b"]}, "class_names has 'a' twice"),
        ([(X, [None, *Y[1:].tolist()])], {}, "batch 0: labels must be whole numbers, but sample 0 has nan"),
    ):
        with pytest.raises(InputError, match=words):
            measured(stream, **options)
    empty: Any = [([], []), *batches()]
    close(measured(empty))
