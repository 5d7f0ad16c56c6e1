"""The multilingual encoder, and several encoders side by side."""

import numpy as np
import pytest

from fedmoments.errors import InputError
from fedmoments.samples.encoders import load_encoder

SENTENCES = ["where is my card", "wo ist meine Karte", "the weather is fine today"]


def encoded(name: str, sentences: list[str]) -> np.ndarray:
    encoder = load_encoder(name)
    return encoder.encode([encoder.prepare(sentence) for sentence in sentences])


def test_the_multilingual_encoder_puts_translations_together() -> None:
    features = encoded("use-multilingual", SENTENCES)
    assert features.shape == (3, 512)
    assert features.dtype == np.float32
    assert features[0] @ features[1] > 0.7 > 0.3 > features[0] @ features[2]


def test_features_do_not_depend_on_the_batch() -> None:
    together, alone = encoded("use-multilingual", SENTENCES), encoded("use-multilingual", SENTENCES[:1])
    assert np.array_equal(together[0], alone[0])


def test_joined_features_are_those_of_both_at_unit_length() -> None:
    both = encoded("join:wordllama+use-multilingual", SENTENCES)
    words, sentences = (encoded(name, SENTENCES).astype(np.float64) for name in ("wordllama", "use-multilingual"))
    expected = np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True) for part in (words, sentences)])
    np.testing.assert_allclose(both, expected, atol=1e-6)


def test_order_and_parts_are_in_the_fingerprint() -> None:
    names = ("join:wordllama+use-multilingual", "join:use-multilingual+wordllama", "wordllama")
    assert len({load_encoder(name).fingerprint for name in names}) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("join:wordllama", "must name two or more different encoders"),
        ("join:wordllama+wordllama", "must name two or more different encoders"),
        ("join:wordllama+", "must name two or more different encoders"),
        ("join:wordllama+squeezenet-1.1", "squeezenet-1.1 takes image"),
        ("join:wordllama+nothing", "nothing"),
    ],
)
def test_what_cannot_be_joined_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_encoder(name)
