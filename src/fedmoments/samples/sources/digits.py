"""``digits``: scikit-learn's bundled handwritten digits, 1,797 images of 8 × 8 pixels; nothing to download."""

import numpy as np

from fedmoments.extras import require
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_digits"]

_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEST_SHARE = 497 / 1797


def load_digits(_: str, *, test_share: float = _TEST_SHARE, seed: Seed = 0, strict: bool = False) -> DataSet:
    """Load the digits as images (8, 8) of uint8, from 0 (black) to 255; 1,300 to train on and 497 to test on.

    Parameters
    ----------
    test_share, seed
        For holding out the test part, stratified.
    strict
        Of no effect: there are no problems.

    Examples
    --------
    >>> data = load_digits("")
    >>> data.train.items.shape, data.train.items.dtype, data.description
    ((1300, 8, 8), dtype('uint8'),
     '1,797 images in 10 classes: 1,300 to train on, 497 to test on (held out, stratified, seed 0).')
    """
    bundle = require("sklearn.datasets", "The data source 'digits'", "sklearn", "scikit-learn").load_digits()
    images = np.rint(np.asarray(bundle.images) * (255 / 16)).astype(np.uint8)
    labels = [_NAMES[label] for label in bundle.target.tolist()]
    rows = Rows(images, labels, [f"digit {i}" for i in range(len(labels))])
    problems = Problems(strict=strict)
    return assemble("digits", rows, None, "image", problems, test_share=test_share, seed=seed, class_names=_NAMES)


SOURCES = (Source("digits", "", "scikit-learn's handwritten digits, 8 × 8 pixels", load_digits),)
