"""Common corruptions of images, after Hendrycks & Dietterich (2019): noise, blur, weather and codecs, five strengths.

Their nineteen corruptions, each of severity 1 to 5, in four families: noise, blur, weather, digital. The ice of
``frost`` is a generated texture, because the published photographs are not ours to give. They are written anew from
what they do, need numpy, scipy and (two of them, and reading files) Pillow, and take images of any size: constants are
those of CIFAR-C at 32 pixels, those of ImageNet-C at 224, and in between at sizes in between, see
:mod:`fedmoments.samples.corruptions.scale`. Where a corruption departs from the published one, it says so.

>>> import numpy as np
>>> from fedmoments.samples.corruptions import corrupt
>>> bool(corrupt(np.zeros((32, 32, 3), np.uint8), "snow", 3).mean() > 10)
True
"""

from fedmoments.samples.corruptions.registry import corrupt, corruption_names, families, register_corruption
from fedmoments.samples.corruptions.samples import corrupt_samples

__all__ = ["corrupt", "corrupt_samples", "corruption_names", "families", "register_corruption"]
