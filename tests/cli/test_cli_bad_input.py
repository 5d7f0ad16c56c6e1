"""Bad input gets one sentence on stderr, exit code 2, no traceback and no output file, whole or partial."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import load_statistics, save_statistics
from fedmoments.samples.encoders.probe import Behaviour


@pytest.fixture
def refuse(run: Any, workshop: Path) -> Any:
    """Run a command that must be refused, and return its sentence."""

    def check(*arguments: str) -> str:
        before = sorted(workshop.rglob("*"))
        result = run(*arguments, code=2)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr
        assert sorted(workshop.rglob("*")) == before
        return str(result.stderr)

    return check


def changed(workshop: Path, arrays: Any, **changes: Any) -> str:
    kept = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    np.savez(workshop / "bad.npz", **kept)
    return "bad.npz"


def with_entry(array: Any, place: Any, value: Any) -> Any:
    copy = array.copy()
    copy[place] = value
    return copy


MEASURE = ("--head", "gh-lda", "--out", "out.file")
SIMULATE = ("--heads", "fedncm", "--clients", "4", "--seeds", "1", "--out", "out.file")


def test_bad_features_are_refused_by_measure(refuse: Any, workshop: Path, arrays: Any) -> None:
    def sentence(**changes: Any) -> str:
        return str(refuse("measure", changed(workshop, arrays, **changes), *MEASURE))

    assert "lacks the array 'x_train'" in sentence(x_train=None)
    assert "sample 3 holds NaN" in sentence(x_train=with_entry(arrays["x_train"], (3, 1), np.nan))
    assert "sample 5 holds NaN or infinity" in sentence(x_train=with_entry(arrays["x_train"], (5, 0), np.inf))
    assert "sample 2 has 10" in sentence(y_train=with_entry(arrays["y_train"], 2, 10))
    assert "sample 2 has -1" in sentence(y_train=with_entry(arrays["y_train"], 2, -1))
    assert "one a sample" in sentence(y_train=arrays["y_train"][:-1])
    assert "must be a matrix" in sentence(x_train=arrays["x_train"][:, 0])
    assert "must be numbers" in sentence(x_train=arrays["x_train"].astype(str))
    assert "whole numbers" in sentence(y_train=arrays["classes"][arrays["y_train"]])
    assert "hardly a class number" in sentence(classes=None, y_train=with_entry(arrays["y_train"], 0, 2**40))
    assert "different names" in sentence(classes=np.array(["same"] * 10))
    assert "no sample" in sentence(x_train=arrays["x_train"][:0], y_train=arrays["y_train"][:0])


def test_bad_features_are_refused_by_simulate(refuse: Any, workshop: Path, arrays: Any) -> None:
    def sentence(**changes: Any) -> str:
        return str(refuse("simulate", changed(workshop, arrays, **changes), *SIMULATE))

    assert "bad.npz lacks the array 'x_train'" in sentence(x_train=None)
    assert "bad.npz lacks the array 'y_train'" in sentence(y_train=None)
    assert "bad.npz lacks the array 'y_test'" in sentence(y_test=None)
    assert "(600,), but has the shape (599,)" in sentence(y_train=arrays["y_train"][:-1])
    assert "'x_train' in bad.npz must be features (n, d)" in sentence(x_train=arrays["x_train"][:, 0])
    assert "must be features (n, d)" in sentence(x_train=arrays["x_train"].astype(str))
    assert "'x_train' in bad.npz cannot be read" in sentence(x_train=np.array([{}] * 600, dtype=object))
    assert "hardly a class number" in sentence(classes=None, y_train=with_entry(arrays["y_train"], 0, 2**40))
    assert "different names" in sentence(classes=np.array(["same"] * 10))
    assert "bad.npz holds no sample to train" in sentence(x_train=arrays["x_train"][:0], y_train=arrays["y_train"][:0])
    assert "bad.npz holds no sample to test" in sentence(x_test=arrays["x_test"][:0], y_test=arrays["y_test"][:0])
    assert "both be features, or both images" in sentence(x_test=np.zeros((200, 4, 4), np.uint8))


def test_flawed_samples_are_refused_by_simulate(refuse: Any, workshop: Path, arrays: Any) -> None:
    def sentence(**changes: Any) -> str:
        return str(refuse("simulate", changed(workshop, arrays, **changes), *SIMULATE))

    assert "bad.npz: train sample 3: its features hold NaN" in sentence(
        x_train=with_entry(arrays["x_train"], (3, 1), np.nan)
    )
    assert "bad.npz: test sample 5: its features hold NaN or infinity" in sentence(
        x_test=with_entry(arrays["x_test"], (5, 0), np.inf)
    )
    assert "train sample 2: its label 10 is not one of the 10" in sentence(y_train=with_entry(arrays["y_train"], 2, 10))
    assert "train sample 2: its label -1 is not one of the 10" in sentence(y_train=with_entry(arrays["y_train"], 2, -1))


def test_train_and_test_of_different_dimension_are_refused(refuse: Any, workshop: Path, arrays: Any) -> None:
    bad = changed(workshop, arrays, x_test=arrays["x_test"][:, :-1])
    assert "'x_test' in bad.npz has 11 dimensions, but 'x_train' has 12" in refuse("simulate", bad, *SIMULATE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a features file"),
        (b"PK\x03\x04 and then nothing", "not a features file"),
        (b"text", "not a features"),
    ],
)
def test_files_that_are_no_archives_are_refused(refuse: Any, workshop: Path, content: bytes, message: str) -> None:
    (workshop / "bad.npz").write_bytes(content)
    assert message in refuse("measure", "bad.npz", *MEASURE)
    assert message in refuse("simulate", "bad.npz", *SIMULATE)


def test_single_arrays_pickles_and_damaged_archives_are_refused(refuse: Any, workshop: Path, arrays: Any) -> None:
    np.save(workshop / "bad.npy", arrays["x_train"])
    assert "not a features file" in refuse("measure", "bad.npy", *MEASURE)
    objects = np.array([{}], dtype=object)
    np.savez(workshop / "bad.npz", x_train=objects, y_train=arrays["y_train"])
    assert "'x_train' in bad.npz cannot be read" in refuse("measure", "bad.npz", *MEASURE)
    np.savez_compressed(workshop / "bad.npz", **arrays)
    data = bytearray((workshop / "bad.npz").read_bytes())
    data[200:4000] = bytes(3800)
    (workshop / "bad.npz").write_bytes(data)
    assert "bad.npz" in refuse("measure", "bad.npz", *MEASURE)
    assert "bad.npz" in refuse("simulate", "bad.npz", *SIMULATE)


@pytest.mark.parametrize("place", [20, 60, 90, 130])
def test_headers_of_arrays_that_are_damaged_are_refused(refuse: Any, workshop: Path, arrays: Any, place: int) -> None:
    """Damage may break numpy's parser in any way; what cannot be read is said."""
    np.savez(workshop / "bad.npz", **arrays)
    data = bytearray((workshop / "bad.npz").read_bytes())
    data[place : place + 60] = b"\x00([{'" * 12
    (workshop / "bad.npz").write_bytes(data)
    assert "bad.npz" in refuse("measure", "bad.npz", *MEASURE)
    assert "bad.npz" in refuse("simulate", "bad.npz", *SIMULATE)


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "PATH", "photo.jpg"),
        ("merge", "PATH", "--out", "out.file"),
        ("inspect", "PATH"),
        ("fit", "PATH", "--head", "fedncm", "--out", "out.file"),
        ("evaluate", "PATH", "runs/demo/digits.npz"),
    ],
)
def test_missing_files_and_directories_are_refused(refuse: Any, arguments: Any) -> None:
    def sentence(path: str) -> str:
        return str(refuse(*(path if word == "PATH" else word for word in arguments)))

    assert sentence("nowhere") == "error: nowhere does not exist\n"
    assert sentence("runs") == "error: runs is a directory, but a file is needed\n"


def test_missing_data_are_refused_with_the_sources_there_are(refuse: Any) -> None:
    sentence = refuse("split", "nowhere", "--clients", "3", "--out", "out.file")
    assert sentence.startswith("error: nowhere does not exist, and is none of the data sources csv:PATH, digits, ")


def test_measure_refuses_what_is_not_there(refuse: Any) -> None:
    assert refuse("measure", "nowhere", *MEASURE) == "error: nowhere does not exist\n"


def test_data_that_are_not_there_are_refused(refuse: Any, workshop: Path) -> None:
    def sentence(data: str) -> str:
        return str(refuse("simulate", data, *SIMULATE))

    assert sentence("nowhere").startswith("error: nowhere does not exist, and is none of the data sources csv:PATH,")
    assert "did you mean 'digits'" in sentence("digit")
    assert "did you mean 'folder'" in sentence("foldr:runs")
    assert "typed as npz:PATH" in sentence("npz:")
    for source in ("npz:nowhere.npz", "nowhere.npz", "csv:nowhere.csv", "nowhere.parquet", "folder:nowhere"):
        assert sentence(source).startswith(f"error: {source.rpartition(':')[2]} ")
    assert "demo/digits.npz: a file that ends in '.npz' is not taken for an image" in sentence("runs")
    (workshop / "notes.txt").write_text("text")
    assert "the ending of notes.txt does not say what it holds" in sentence("notes.txt")
    assert "give the data" in refuse("simulate", *SIMULATE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"clients = 'ten'", "'clients' must be of type int; 'ten' arrived"),
        (b"client = 10", "'client' must be of type str; 10 arrived"),
        (b"strict = 1", "'strict' must be of type bool; 1 arrived"),
        (b"seeds = true", "'seeds' must be of type int; True arrived"),
        (b"hyper = 3", "[hyper.NAME]"),
        (b"cleints = 10", "did you mean 'clients'"),
        (b"clients = ", "run.toml is not TOML"),
        (b"\xff\xfe", "run.toml is not TOML"),
    ],
)
def test_bad_configurations_are_refused_by_name(refuse: Any, workshop: Path, content: bytes, words: str) -> None:
    (workshop / "run.toml").write_bytes(content)
    sentence = refuse("simulate", "runs/demo/digits.npz", "--config", "run.toml", "--out", "out.file")
    assert words in sentence
    assert "run.toml" in sentence


def test_a_configuration_that_is_not_there_is_refused(refuse: Any) -> None:
    assert "nowhere.toml" in refuse("simulate", "--config", "nowhere.toml", "--out", "out.file")


@pytest.mark.parametrize("out", ["runs/demo/digits.npz", "runs/demo/digits.npz/below/it"])
@pytest.mark.parametrize("arguments", [("simulate", "digits", "--out"), ("demo", "--folder")])
def test_a_file_where_a_folder_must_be_is_refused_before_any_work(
    refuse: Any, monkeypatch: pytest.MonkeyPatch, arguments: Any, out: str
) -> None:
    monkeypatch.setattr("fedmoments.study.jobs.run.encode_data", None)
    assert f"{out} cannot be the folder of the results: runs/demo/digits.npz is a file" in refuse(*arguments, out)


@pytest.mark.parametrize("out", ["no/such/place", "runs"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "runs/demo/digits.npz", "--head", "gh-lda"),
        ("split", "runs/demo/digits.npz", "--clients", "3"),
    ],
)
def test_places_that_cannot_be_written_are_refused_before_any_work(refuse: Any, arguments: Any, out: str) -> None:
    assert out in refuse(*arguments, "--out", out)


@pytest.fixture
def made(run: Any, features: str) -> str:
    """A statistics file, a.stats, and a classifier, a.classifier."""
    run("measure", features, "--head", "gh-lda", "--client", "a", "-o", "a.stats")
    run("fit", "a.stats", "--head", "gh-lda", "-o", "a.classifier")
    return features


@pytest.mark.parametrize("file", ["a.stats", "a.classifier"])
def test_corrupted_files_are_refused(refuse: Any, made: str, workshop: Path, file: str) -> None:
    data = bytearray((workshop / file).read_bytes())
    data[-9] ^= 1
    (workshop / "flipped").write_bytes(data)
    (workshop / "short").write_bytes(data[:-20])
    (workshop / "text").write_text("no file of ours")
    for bad, words in (("flipped", "checksum does not match"), ("short", "not a valid"), ("text", "not a valid")):
        assert words in refuse("inspect", bad)
        if file == "a.stats":
            assert words in refuse("fit", bad, "--head", "gh-lda", "--out", "out.file")
            assert words in refuse("merge", "a.stats", bad, "--out", "out.file")
        else:
            assert words in refuse("evaluate", bad, made)


def test_files_of_another_kind_are_refused(refuse: Any, made: str, workshop: Path) -> None:
    assert "holds 'classifier'" in refuse("fit", "a.classifier", "--head", "gh-lda", "--out", "out.file")
    assert "holds 'statistics'" in refuse("evaluate", "a.stats", made)
    assert "does not say what it holds" in refuse("evaluate", "a.classifier", "a.stats")
    from safetensors.numpy import save_file

    save_file({"x": np.ones(3)}, workshop / "foreign")
    assert "fedmoments did not write it" in refuse("inspect", "foreign")


def test_unknown_names_and_bad_hyper_parameters_are_refused(refuse: Any, made: str) -> None:
    def fit(*options: str) -> str:
        return str(refuse("fit", "a.stats", "--out", "out.file", *options))

    assert "did you mean 'gh-lda'" in fit("--head", "gh-lad")
    assert "no hyper-parameter 'rank'" in fit("--head", "gh-lda", "--set", "rank=3")
    assert "name=value" in fit("--head", "gh-lda", "--set", "shrinkage")
    assert "name=value" in fit("--head", "gh-lda", "--set", "shrinkage=")
    assert "shrinkage is one of" in fit("--head", "gh-lda", "--set", "shrinkage=much")
    assert "a whole number" in fit("--head", "gh-dlr-qda", "--set", "rank=1.5")
    assert "true or false" in fit("--head", "fed3r", "--set", "intercept=perhaps")
    assert "a number" in fit("--head", "gh-nb", "--set", "floor=low")
    assert "unknown head" in refuse("measure", made, "--head", "nothing", "--out", "out.file")
    assert "unknown moment" in refuse("measure", made, "--moments", "nothing", "--out", "out.file")
    assert "unknown method" in refuse("costs", "nothing")


def test_statistics_that_do_not_suffice_are_refused(refuse: Any, made: str) -> None:
    def fit(head: str) -> str:
        return str(refuse("fit", "a.stats", "--head", head, "--out", "out.file"))

    assert "a.stats" in fit("gh-qda")
    assert "kept apart" in fit("fedcof")
    assert "random Fourier features" in fit("fed3r-rf")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--normalize",), "feature maps differ"),
        (("--project", "4"), "feature maps differ"),
        (("--encoder", "other"), "encoders differ"),
        (("--fixed-point", "--norm-bound", "90"), "fixed-point forms differ"),
        (("--moments", "class_squares"), "moments differ"),
        (("--client", "a"), "each client counts once"),
    ],
)
def test_merging_what_was_measured_differently_names_the_file(
    refuse: Any, run: Any, made: str, options: Any, words: str
) -> None:
    client = () if "--client" in options else ("--client", "b")
    run("measure", made, "--head", "gh-lda", *client, *options, "-o", "b.stats")
    sentence = refuse("merge", "a.stats", "b.stats", "--out", "out.file")
    assert words in sentence
    assert "b.stats" in sentence


def test_merging_features_of_networks_that_behave_differently_is_refused(refuse: Any, run: Any, made: str) -> None:
    draws = np.random.default_rng(0).normal(size=(3, 4, 64))
    behaviours = [Behaviour.of(draw).to_text() for draw in (draws[0], draws[0] + 1e-7, draws[1])]
    stats, notes = load_statistics(Path("a.stats"))
    for name, behaviour in zip("bcd", behaviours, strict=True):
        noted = {"name": "torch:own:net", "fingerprint": "0" * 64, "behaviour": behaviour}
        save_statistics(Path(f"{name}.stats"), stats, {**notes, "clients": [name], "encoder": noted})
    run("merge", "b.stats", "c.stats", "--out", "same.stats")
    assert behaviours[2][:70] not in run("inspect", "same.stats").stdout
    for command in (("merge",), ("fit", "--head", "gh-lda")):
        sentence = refuse(*command, "b.stats", "d.stats", "--out", "out.file")
        assert (
            "d.stats cannot be merged with b.stats: the encoders have the same weights, but on the same probe"
            in sentence
        )


def test_merging_other_classes_is_refused(refuse: Any, run: Any, made: str, workshop: Path, arrays: Any) -> None:
    np.savez("nameless.npz", x_train=arrays["x_train"], y_train=arrays["y_train"])
    run("measure", "nameless.npz", "--head", "gh-lda", "-o", "b.stats")
    assert "kinds of classes differ" in refuse("merge", "a.stats", "b.stats", "--out", "out.file")
    assert "kinds of classes differ" in refuse("fit", "a.stats", "b.stats", "--head", "gh-lda", "--out", "out.file")
    foreign = changed(workshop, arrays, classes=[f"other {name}" for name in arrays["classes"]])
    assert "classes that this classifier does not know" in refuse("evaluate", "a.classifier", foreign)


def test_evaluating_other_features_is_refused(refuse: Any, made: str, workshop: Path, arrays: Any) -> None:
    narrow = changed(workshop, arrays, x_test=arrays["x_test"][:, :5])
    assert "5 dimensions, but 'x_train' has 12" in refuse("evaluate", "a.classifier", narrow)
    beyond = changed(workshop, arrays, classes=None, y_test=with_entry(arrays["y_test"], 0, 11))
    assert "go up to 11" in refuse("evaluate", "a.classifier", beyond)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--heads", "nothing"), "unknown head 'nothing'"),
        (("--heads", ","), "at least one"),
        (("--clients", "ten"), "--clients takes whole numbers"),
        (("--clients", "0"), "clients must be 1 or more, not 0"),
        (("--alpha", "-1"), "ALPHA"),
        (("--split", "somehow"), "unknown split"),
        (("--shrinkage", "much"), "shrinkage is one of"),
        (("--means-per-client", "0"), "1 or more"),
        (("--seeds", "0"), "seeds must be 1 or more"),
        (("--seeds", "many"), "--seeds"),
        (("--set", "rank=2"), "HEAD.NAME=VALUE"),
        (("--heads", "fedncm", "--set", "gh-dlr-qda.rank=2"), "not among the heads"),
        (("--nothing",), "--nothing"),
        (("--seed", "-1"), "seed 0 or more"),
        (("--participation", "some"), "KAPPA"),
        (("--participation", "0"), "1 or more"),
        (("--participation", "3:again"), "KAPPA:replacement"),
        (("--heads", "gh-dlr-qda", "--set", "gh-dlr-qda.rank=-1"), "rank is a whole number from 0"),
    ],
)
def test_bad_settings_of_a_simulation_are_refused_before_any_work(
    refuse: Any, monkeypatch: pytest.MonkeyPatch, options: Any, words: str
) -> None:
    monkeypatch.setattr("fedmoments.study.jobs.run.encode_data", None)
    assert words in refuse("simulate", "digits", "--out", "out.file", *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--split", "domain"), "domains"),
        (("--split", "id"), "ids"),
        (("--label", "y"), "the data source 'npz' has no option 'label'"),
        (("--test-share", "2"), "test_share"),
        (("--encoder", "nothing"), "unknown encoder 'nothing'"),
        (("--encoder", "wordllama"), "takes text, but the data are features"),
        (("--size", "64"), "the encoder 'identity' takes no size"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused_before_any_encoding(
    refuse: Any, features: str, monkeypatch: pytest.MonkeyPatch, options: Any, words: str
) -> None:
    monkeypatch.setattr("fedmoments.samples.encoders.pipeline._Job.fill", None)
    assert words in refuse("simulate", features, "--out", "out.file", *options)


@pytest.mark.parametrize(
    ("options", "words"), [(("--seeds", "0"), "seeds must be 1 or more"), (("--runtime", "abacus"), "'abacus'")]
)
def test_bad_settings_of_the_demo_leave_nothing(refuse: Any, options: Any, words: str) -> None:
    assert words in refuse("demo", "--folder", "new", *options)


@pytest.mark.parametrize("arguments", [("install",), ("install", "nothing"), ("uninstall", "minilm")])
def test_bad_words_behind_encoders_are_refused(refuse: Any, arguments: Any) -> None:
    assert "encoder" in refuse("encoders", *arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no moments to measure"),
        (("--head", "fed3r-rf"), "--fourier"),
        (("--head", "gh-lda", "--fourier", "8"), "belong together"),
        (("--head", "gh-lda", "--norm-bound", "8"), "--fixed-point"),
        (("--head", "gh-lda", "--fixed-point", "--norm-bound", "0.01"), "norm_bound"),
        (("--head", "gh-lda", "--means-per-client", "2"), "client_means"),
        (("--head", "gh-lda", "--n-classes", "3"), "names 10 classes, but 3"),
        (("--head", "gh-lda", "--project", "0"), "n_components"),
        (("--head", "gh-lda", "--split", "nowhere"), "nowhere does not exist"),
    ],
)
def test_bad_settings_of_a_measurement_are_refused(refuse: Any, features: str, options: Any, words: str) -> None:
    assert words in refuse("measure", features, "--out", "out.file", *options)


def test_a_client_that_the_split_does_not_know_is_refused(refuse: Any, run: Any, features: str) -> None:
    run("split", features, "--clients", "3", "-o", "s")
    for client in (("--client", "3"), ()):
        sentence = refuse("measure", features, "--split", "s", *client, *MEASURE)
        assert "one of the 3 clients of s (0 … 2)" in sentence


def test_usage_errors_are_one_sentence_too(refuse: Any) -> None:
    assert "No such command 'simulat'" in refuse("simulat")
    assert "see 'fedmoments measure --help'" in refuse("measure")
    assert "--encoder-parameters" in refuse("costs", "fedavg")
