"""How much of what arrives is opened at once: a small file can hold a large image."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedmoments.errors import InputError
from fedmoments.samples.encoders.dicom import dicom_size, is_dicom

__all__ = ["Account", "Admission"]

#: Images of the largest size that one request may hold.
IMAGES = 4
#: Formats whose header tells how large the image is; in others (icons, say) lie images of another size.
FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


class Account:
    """What one request has had so far."""

    def __init__(self) -> None:
        self.pixels = 0


class Admission:
    """Lets samples in to be read, so that all that are read at once stay within bounds; used by many threads.

    Parameters
    ----------
    pixels
        Of one image, and of all that are decoded at the same time.
    characters
        Of one text.

    Examples
    --------
    >>> admission = Admission(pixels=100, characters=5)
    >>> with admission.admitted(admission.account(), "short"):
    ...     pass
    >>> with admission.admitted(admission.account(), "longer"):
    ...     pass
    Traceback (most recent call last):
    fedmoments.errors.InputError: a text has at most 5 characters here, not 6
    """

    def __init__(self, pixels: int, characters: int) -> None:
        self._most, self._characters = pixels, characters
        self._decoding = 0
        self._changed = threading.Condition()

    @staticmethod
    def account() -> Account:
        """Return the account of a new request."""
        return Account()

    @contextmanager
    def admitted(self, account: Account, sample: Any) -> Iterator[None]:
        """Hold a sample's place while it is read, waiting for one; raises InputError for a sample that gets none."""
        if isinstance(sample, str) and len(sample) > self._characters:
            raise InputError(f"a text has at most {self._characters:,} characters here, not {len(sample):,}")
        pixels = _pixels_of(sample) if isinstance(sample, bytes) else 0
        if pixels > self._most:
            raise InputError(f"an image has at most {self._most:,} pixels here, not {pixels:,}")
        with self._changed:
            account.pixels += pixels
            if account.pixels > IMAGES * self._most:
                raise InputError(f"the images of a request have at most {IMAGES * self._most:,} pixels together")
            self._changed.wait_for(lambda: self._decoding + pixels <= self._most)
            self._decoding += pixels
        try:
            yield
        finally:
            with self._changed:
                self._decoding -= pixels
                self._changed.notify_all()


def _pixels_of(data: bytes) -> int:
    """Return how many pixels a file says it has, from its header; raises InputError where it says nothing."""
    from PIL import Image

    if is_dicom(data):
        return dicom_size(data)
    Image.init()
    try:
        with Image.open(
            io.BytesIO(data), formats=[form for form in FORMATS if form in Image.OPEN]
        ) as image:  # others are opened whole to be looked at
            return int(image.width * image.height)
    except Exception as error:  # decoders meet hostile bytes
        kinds = ", ".join(FORMATS)
        raise InputError(
            f"it is not an image that is read here ({kinds} or DICOM), or its beginning is damaged"
        ) from error
