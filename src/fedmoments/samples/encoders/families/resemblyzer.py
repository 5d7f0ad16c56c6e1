"""Resemblyzer's voice encoder: who speaks, not what is said; three LSTM layers on mel spectrograms. d = 256.

Only the weights of the package are used, and it is never imported: it asks for librosa and for a module in C. So
silence is cut by loudness, not by a detector of voices. A vector has length 1, and no number of it is negative.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.sounds import MELS, PREPROCESSING, mel_parts, open_sound
from fedmoments.samples.encoders.torch_runtime import chosen_device, inference, load_state

__all__ = ["ENCODERS"]

_NAME = "resemblyzer"
_PACKAGE = "resemblyzer==0.1.4"
_WEIGHTS = PackagedFile(
    _PACKAGE,
    "resemblyzer",
    "pretrained.pt",
    "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
)
_DIM = 256


class _Voices(Encoder):
    name = _NAME
    modality: Modality = "audio"
    batch_size = 16

    def __init__(self, weights: Path, device: str) -> None:
        nn = require("torch.nn", f"The encoder '{_NAME}'", "torch", "torch")
        self._torch = require("torch", f"The encoder '{_NAME}'", "torch")
        self.device = chosen_device(device)
        self._lstm, self._linear = nn.LSTM(MELS, _DIM, 3, batch_first=True), nn.Linear(_DIM, _DIM)
        network = nn.ModuleDict({"lstm": self._lstm, "linear": self._linear})
        held = load_state(weights)["model_state"]
        network.load_state_dict({name: held[name] for name in network.state_dict()})
        network.eval().requires_grad_(requires_grad=False).to(self.device)

    @property
    def dim(self) -> int:
        return _DIM

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        return PREPROCESSING

    @property
    def weights_hash(self) -> str:
        return _WEIGHTS.sha256

    def prepare(self, sample: Any) -> NDArray[np.float32]:
        return mel_parts(open_sound(sample))

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the means (n, 256) of the vectors of each sound's parts; each sound is encoded by itself."""
        features = np.zeros((len(batch), _DIM), np.float32)
        with inference(self.device, 1):
            for row, parts in enumerate(batch):
                _, (hidden, _) = self._lstm(self._torch.from_numpy(parts).to(self.device))
                vectors = self._torch.relu(self._linear(hidden[-1]))
                vectors = self._torch.nn.functional.normalize(vectors, dim=1, eps=1e-12).mean(0)
                features[row] = self._torch.nn.functional.normalize(vectors, dim=0, eps=1e-12).cpu().numpy()
        return features


def _load(_argument: str, options: Options) -> Encoder:
    encoder = _Voices(_WEIGHTS.verified(_NAME), options.device)
    encoder.batch_size = options.batch_size or encoder.batch_size
    return encoder


ENCODERS = (
    EncoderEntry(
        name=_NAME,
        description="Resemblyzer's voice encoder, WAV files: who speaks",
        load=_load,
        modality="audio",
        dim=_DIM,
        extra="torch",
        needs=("torch",),
        packages=(_PACKAGE,),
        files=(_WEIGHTS,),
        licence="Apache-2.0",
        non_negative=True,
    ),
)
