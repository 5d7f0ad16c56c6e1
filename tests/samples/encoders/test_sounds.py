"""Sounds: the spectrogram against its definition, WAV files of all kinds, folders of them, and voices told apart."""

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

import fedmoments as fm
from fedmoments.errors import InputError
from fedmoments.handover.export import export
from fedmoments.handover.model import Model
from fedmoments.handover.serving.served import Served
from fedmoments.samples.encoders import encoders, load_encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.sounds import FRAME, HOP, MELS, RATE, mel_frames, mel_parts, open_sound
from fedmoments.samples.sources.registry import load_data
from fedmoments.samples.unlabelled import read_unlabelled

RNG = np.random.default_rng(0)
needs_weights = pytest.mark.skipif(
    not encoders()["resemblyzer"].installed, reason="fedmoments encoders install resemblyzer"
)


def voice(pitch: float, tract: float, seed: int, seconds: float = 2.0) -> np.ndarray[Any, Any]:
    """Return a synthetic voice: pulses at a wandering pitch through resonances, scaled by the length of a tract.

    What is "said" (the vowels and their lengths) follows from the seed, who says it from the first two.
    """
    rng, n = np.random.default_rng(seed), int(seconds * RATE)
    track = pitch * np.repeat(1 + 0.1 * rng.normal(size=20), n // 20 + 1)[:n]
    pulses = np.diff(np.floor(np.cumsum(track / RATE)), prepend=0.0)
    vowels = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480]]) * tract
    sound, piece = np.zeros(n), n // 8
    for part in range(8):
        here = slice(part * piece, (part + 1) * piece)
        source = pulses[here]
        for formant in vowels[rng.integers(4)]:
            t = np.arange(400) / RATE
            source = np.convolve(source, np.exp(-250 * t) * np.sin(2 * np.pi * formant * t), "same")
        sound[here] = source / (np.abs(source).max() + 1e-9)
    return (0.3 * sound + 0.003 * rng.normal(size=n)).astype(np.float32)


def write(path: Path, sound: np.ndarray[Any, Any], rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(path, rate, np.rint(np.clip(sound, -1, 1) * 32767).astype(np.int16))
    return path


def naive_frames(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the mel spectrogram by its definition: a sum of cosines and sines a frequency, triangle by triangle."""

    def hertz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * np.log(8) / np.log(6.4)
    edges = [hertz(top * place / (MELS + 1)) for place in range(MELS + 2)]
    held = np.concatenate([np.zeros(FRAME // 2), sound, np.zeros(FRAME // 2)])
    rows = []
    for start in range(0, len(held) - FRAME + 1, HOP):
        frame = [x * np.sin(np.pi * k / FRAME) ** 2 for k, x in enumerate(held[start : start + FRAME])]
        power = []
        for k in range(FRAME // 2 + 1):
            turn = 2 * np.pi * k * np.arange(FRAME) / FRAME
            power.append(np.dot(frame, np.cos(turn)) ** 2 + np.dot(frame, np.sin(turn)) ** 2)
        row = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for k, energy in enumerate(power):
                f = k * RATE / FRAME
                if low < f <= middle:
                    total += energy * (f - low) / (middle - low)
                elif middle < f < high:
                    total += energy * (high - f) / (high - middle)
            row.append(total * 2 / (high - low))
        rows.append(row)
    return np.array(rows)


def test_the_spectrogram_is_its_definition() -> None:
    sound = RNG.normal(size=2_000) * 0.1
    expected = naive_frames(sound)
    assert mel_frames(sound).shape == expected.shape == (13, MELS)
    np.testing.assert_allclose(mel_frames(sound), expected, rtol=1e-5)


# the package's own network code cuts sounds of these lengths into as many parts
@pytest.mark.parametrize(
    ("n", "parts"), [(3_000, 1), (16_000, 1), (25_600, 1), (40_000, 2), (48_000, 3), (90_000, 6), (161_234, 12)]
)
def test_parts_overlap_and_cover_all_but_a_short_end(n: int, parts: int) -> None:
    assert mel_parts(RNG.normal(size=n)).shape == (parts, 160, MELS)
    starts = 77 * np.arange(len(mel_parts(np.ones(n)))) * HOP
    assert n - starts[-1] >= 0.75 * 25_600 or len(starts) == 1


@pytest.mark.parametrize("kind", ["int16", "int32", "uint8", "float32", "stereo", "8 kHz", "44.1 kHz", "24 bits"])
def test_all_kinds_of_wav_files_are_the_same_sound(kind: str) -> None:
    sound = voice(120, 1.0, 3)
    known = mel_parts(open_sound(sound))
    rate, out, data = RATE, io.BytesIO(), sound
    if "kHz" in kind:
        from scipy.signal import resample_poly

        rate = {"8 kHz": 8_000, "44.1 kHz": 44_100}[kind]
        data = resample_poly(sound, rate // 100, RATE // 100)
    values: Any = np.rint(data * 32767).astype(np.int16)
    if kind == "int32":
        values = np.rint(data * (2**31 - 1)).astype(np.int32)
    elif kind == "uint8":
        values = np.rint(data * 127 + 128).astype(np.uint8)
    elif kind == "float32":
        values = data.astype(np.float32)
    elif kind == "stereo":
        values = np.stack([values, values], axis=1)
    if kind == "24 bits":
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(3)
            file.setframerate(RATE)
            whole = np.rint(data * (2**23 - 1)).astype("<i4")
            file.writeframes(whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
    else:
        wavfile.write(out, rate, values)
    found = mel_parts(open_sound(out.getvalue()))
    assert found.shape == known.shape
    low = slice(0, 25) if kind == "8 kHz" else slice(None)  # above 4 kHz there is nothing
    apart = np.abs(np.log(found[..., low] + 1e-3) - np.log(known[..., low] + 1e-3)).mean()
    assert apart < 0.25


def test_silence_is_cut_and_quiet_sounds_are_amplified() -> None:
    sound = voice(150, 1.0, 1)
    gap = np.concatenate([sound, np.zeros(3 * RATE, np.float32), sound])
    assert 4 * RATE < len(open_sound(gap)) < 4.6 * RATE
    level = 20 * np.log10(np.sqrt(np.mean(np.square(open_sound(sound * 1e-3)))))
    assert abs(level + 30) < 0.5


def test_damaged_bytes_are_refused_or_a_sound() -> None:
    out = io.BytesIO()
    wavfile.write(out, RATE, (3000 * RNG.normal(size=3_000)).astype(np.int16))
    heard = 0
    for cut in range(600):
        damaged = bytearray(out.getvalue())
        damaged[RNG.integers(60)] = RNG.integers(256)
        try:
            heard += len(mel_parts(open_sound(bytes(damaged[: None if cut % 3 else RNG.integers(len(damaged))])))) > 0
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most are refused, some are still sounds
    assert 0 < heard < 600


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (b"", "not a WAV file"),
        (b"RIFF1234WAVEfmt ", "not a WAV file"),
        (np.zeros(RATE, np.float32), "silent"),
        (np.ones(100, np.float32), "shorter than"),
        (np.full(RATE, np.nan, np.float32), "NaN"),
        (np.zeros((2, 3, 4)), "n, channels"),
        (7, "WAV file or an array"),
        (Path("nowhere.wav"), "nowhere"),
    ],
)
def test_what_is_no_sound_is_said_in_one_sentence(sample: Any, words: str) -> None:
    with pytest.raises((InputError, OSError), match=words):
        open_sound(sample)


def test_a_folder_of_wav_files_is_data_and_other_files_are_problems(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        for k in range(4):
            write(tmp_path / name / f"{k}.wav", voice(120, 1.0, k, seconds=0.5))
    (tmp_path / "ann" / "portrait.png").write_bytes(b"")
    data = load_data(f"folder:{tmp_path}", test_share=0.25)
    assert (data.modality, data.class_names) == ("audio", ("ann", "bob"))
    assert data.description.startswith("8 sounds in 2 classes")
    assert [problem.where for problem in data.problems] == ["ann/portrait.png"]
    found = read_unlabelled([str(tmp_path / "ann")], "audio")
    assert len(found.items) == 4


def test_a_damaged_file_is_left_out_and_named(tmp_path: Path) -> None:
    for k in range(3):
        write(tmp_path / "ann" / f"{k}.wav", voice(120, 1.0, k, seconds=0.5))
    (tmp_path / "ann" / "9.wav").write_bytes(b"RIFF")
    data = load_data(f"folder:{tmp_path}", test_share=0.0)
    bad = []
    for place, item in enumerate(data.train.items):
        try:
            open_sound(item)
        except InputError:
            bad.append(data.train.source(place))
    assert bad == ["ann/9.wav"]


@needs_weights
def test_voices_are_told_apart_whatever_they_say(tmp_path: Path) -> None:
    people = {"ann": (210, 1.15), "bob": (110, 0.95), "cleo": (160, 1.3)}
    for name, (pitch, tract) in people.items():
        for k in range(8):
            write(tmp_path / name / f"{k}.wav", voice(pitch, tract, 10 * k + len(name)))
    (tmp_path / "bob" / "x.wav").write_bytes(b"RIFF")
    data = load_data(f"folder:{tmp_path}", test_share=0.25)
    encoder = load_encoder("resemblyzer")
    assert encoder.behaviour.agrees(load_encoder("resemblyzer", batch_size=1).behaviour)
    train, test = (encode_samples(encoder, part, cache_dir=tmp_path / "cache") for part in (data.train, data.test))
    assert (train.features >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(train.features, axis=1), 1.0, rtol=1e-5)
    classifier = fm.fit("fedncm", {"a": (train.features, train.labels)})
    assert classifier.score(test.features, test.labels) == 1.0
    assert len(train) + len(test) == 24
    whole = classifier.noting(encoder=encoder.note({}))
    with pytest.raises(InputError, match="an exported model takes no sounds"):
        export(whole, "onnx", tmp_path / "x.onnx", encoder=encoder)
    whole.save(tmp_path / "voices.head")
    with pytest.raises(InputError, match="a served model takes no sounds"):
        Served(tmp_path / "voices.head", lambda file, _: Model.read(file))


@needs_weights
def test_a_sound_is_encoded_alike_whatever_is_beside_it() -> None:
    encoder = load_encoder("resemblyzer")
    several = [encoder.prepare(voice(100 + 30 * k, 1.0, k, seconds=1 + k)) for k in range(3)]
    together = encoder.encode(several)
    assert np.array_equal(together, np.concatenate([encoder.encode([one]) for one in several]))
