"""DICOM images: values, windows and colours against the standard's formulas, written as they stand."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import InputError
from fedmoments.samples.encoders.dicom import dicom_pixels, is_dicom
from fedmoments.samples.encoders.images import IMAGENET
from fedmoments.samples.sources.registry import load_data

pydicom = pytest.importorskip("pydicom")
VALUES = np.random.default_rng(0).integers(0, 4096, size=(40, 50)).astype(np.uint16)


def dicom(values: np.ndarray = VALUES, **tags: Any) -> bytes:
    """Return a file of an image, uncompressed."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.UID("1.2.3.4")
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data = pydicom.dataset.FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID, data.PatientName = meta.MediaStorageSOPClassUID, "1.2.3.4", "Doe^Jane"
    data.Rows, data.Columns = values.shape[:2]
    data.SamplesPerPixel = 3 if values.ndim == 3 else 1
    data.PhotometricInterpretation = "RGB" if values.ndim == 3 else "MONOCHROME2"
    if values.ndim == 3:
        data.PlanarConfiguration = 0
    bits = 8 * values.dtype.itemsize
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = bits, bits, bits - 1, 0
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = values.tobytes()
    out = io.BytesIO()
    data.save_as(out, enforce_file_format=True)
    return out.getvalue()


def naive(values: np.ndarray, centre: float, width: float) -> np.ndarray:
    """The linear window of PS3.3 C.11.2.1.2.1, sample by sample."""
    out = np.zeros(values.shape)
    for place, x in np.ndenumerate(values):
        if x <= centre - 0.5 - (width - 1) / 2:
            out[place] = 0
        elif x > centre - 0.5 + (width - 1) / 2:
            out[place] = 255
        else:
            out[place] = ((x - (centre - 0.5)) / (width - 1) + 0.5) * 255
    return np.rint(out)


def test_the_first_window_is_applied_to_physical_values() -> None:
    made = dicom_pixels(
        dicom(RescaleSlope=0.5, RescaleIntercept=-1000, WindowCenter=["40", "300"], WindowWidth=["400", "1500"]), None
    )
    wanted = naive(VALUES * 0.5 - 1000, 40, 400)
    assert np.abs(made.astype(float) - wanted).max() <= 1  # halves may be rounded either way
    assert (made == wanted).mean() > 0.99


def test_without_a_window_the_least_is_black_and_low_whites_are_turned() -> None:
    plain = dicom_pixels(dicom(), None)
    assert (plain.min(), plain.max()) == (0, 255)
    turned = dicom_pixels(dicom(PhotometricInterpretation="MONOCHROME1"), None)
    assert np.abs(turned.astype(int) + plain - 255).max() <= 1
    assert not dicom_pixels(dicom(np.full((4, 4), 7, np.uint16)), None).any()  # one value: black, no division by 0


def test_colours_stay_and_encoders_take_files_and_bytes(tmp_path: Path) -> None:
    colours = np.random.default_rng(1).integers(0, 255, size=(40, 40, 3)).astype(np.uint8)
    assert np.array_equal(dicom_pixels(dicom(colours), None), colours)
    data = dicom()
    (tmp_path / "a.dcm").write_bytes(data)
    assert is_dicom(data)
    assert np.array_equal(IMAGENET.prepare(tmp_path / "a.dcm"), IMAGENET.prepare(data))
    assert IMAGENET.prepare(data).shape == (3, 224, 224)


def test_a_folder_of_dicom_files_is_a_data_set(tmp_path: Path) -> None:
    for label in ("benign", "malign"):
        (tmp_path / label).mkdir()
        for number in range(5):
            (tmp_path / label / f"{number}.dcm").write_bytes(dicom(np.roll(VALUES, number)))
    loaded = load_data(f"folder:{tmp_path}")
    assert loaded.class_names == ("benign", "malign")
    assert len(loaded.train) + len(loaded.test) == 10


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (dicom(NumberOfFrames=2), "holds 2 frames"),
        (dicom()[:-500], "cannot be read"),
        (dicom()[:140], "cannot be read"),
        (b"\0" * 128 + b"DICM" + b"\xff" * 90, "cannot be read"),
        (dicom(np.zeros((4, 4, 3), np.uint16)), "8 bits a channel"),
    ],
)
def test_a_file_that_cannot_be_shown_is_refused_with_a_sentence(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        IMAGENET.prepare(data)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(InputError, match="more than 100 pixels: it has 50 × 40"):
        dicom_pixels(dicom(), 100)
