"""Images of clinics: one DICOM file to 8 bits, as a viewer would show it (extra ``dicom``).

Stored values become physical ones (rescale slope and intercept), then grey from 0 to 255 by the window that the file
names first; without a window, its least value is black and its largest white. Files whose white is low (MONOCHROME1)
are turned. What is beside the pixels (name, date, device) is not read.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["dicom_pixels", "dicom_size", "is_dicom"]

#: Of the transfer syntax element, and its value for files that are compressed as a whole.
_SYNTAX, _DEFLATED = 0x00020010, "1.2.840.10008.1.2.1.99"


def is_dicom(sample: Path | bytes | bytearray) -> bool:
    """Return whether a file, or its bytes, begin as DICOM files do.

    Examples
    --------
    >>> is_dicom(b"no")
    False
    """
    if isinstance(sample, Path):
        with sample.open("rb") as file:
            head = file.read(132)
    else:
        head = bytes(sample[:132])
    return head[128:] == b"DICM"


def dicom_pixels(sample: Path | bytes | bytearray, most: int | None) -> NDArray[np.uint8]:
    """Return the image of a DICOM file, (h, w) or (h, w, 3).

    Parameters
    ----------
    sample
        The file, or its bytes.
    most
        Pixels that an image may have; any number where None.
    """
    pydicom = require("pydicom", "Reading DICOM images", "dicom")
    data = pydicom.dcmread(sample if isinstance(sample, Path) else io.BytesIO(sample))
    frames, rows, columns = int(getattr(data, "NumberOfFrames", 1) or 1), int(data.Rows), int(data.Columns)
    if frames != 1:
        raise InputError(f"the DICOM file holds {frames} frames: save the one that counts as a file of its own")
    if most is not None and rows * columns > most:
        raise InputError(f"the image has more than {most} pixels: it has {columns} × {rows}")
    if str(data.PhotometricInterpretation) not in ("MONOCHROME1", "MONOCHROME2"):
        return _eight_bits(pydicom.pixels.pixel_array(data))  # pydicom turns YBR into RGB
    pixels = pydicom.pixels
    values = np.asarray(pixels.apply_modality_lut(data.pixel_array, data), np.float64)
    low, high = _window(data, values)
    grey = np.clip((values - low) / max(high - low, np.finfo(np.float64).tiny), 0.0, 1.0)
    shown = 1.0 - grey if data.PhotometricInterpretation == "MONOCHROME1" else grey
    return np.asarray(np.rint(255.0 * shown), np.uint8)


def dicom_size(data: bytes) -> int:
    """Return how many pixels a DICOM file from elsewhere says it has, without opening what may be large.

    Raises
    ------
    InputError
        When it has no header, or is compressed as a whole, so that nobody can tell how large it is inside.
    """
    pydicom = require("pydicom", "Reading DICOM images", "dicom")
    stream = io.BytesIO(data)
    try:
        stream.seek(132)
        meta = pydicom.filereader.read_dataset(
            stream, is_implicit_VR=False, is_little_endian=True, stop_when=lambda tag, *_: tag.group != 2
        )
        if str(meta[_SYNTAX].value) == _DEFLATED:
            raise InputError("the DICOM file is compressed as a whole (deflated): save it without")
        stream.seek(0)
        header = pydicom.dcmread(stream, stop_before_pixels=True)
        return int(header.Rows) * int(header.Columns)
    except InputError:
        raise
    except Exception as error:  # decoders meet hostile bytes
        raise InputError(f"the DICOM file's header cannot be read: {str(error) or type(error).__name__}") from error


def _window(data: Any, values: NDArray[np.float64]) -> tuple[float, float]:
    """Return which values are black and white: of the first window (DICOM PS3.3 C.11.2.1.2), or least and largest."""
    centre, width = (_first(getattr(data, name, None)) for name in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None or width < 1:
        return float(values.min()), float(values.max())
    return centre - 0.5 - (width - 1) / 2, centre - 0.5 + (width - 1) / 2


def _first(value: Any) -> float | None:
    if value is None or value == "":
        return None
    return float(value[0] if hasattr(value, "__len__") and not isinstance(value, str) else value)


def _eight_bits(pixels: Any) -> NDArray[np.uint8]:
    array = np.asarray(pixels)
    if array.dtype != np.uint8:
        raise InputError(f"a coloured DICOM image must have 8 bits a channel, but has {array.dtype}")
    return array
