"""A party's lake under the rules of a federation: files are measured one by one, and rows never stand together.

Rules look at the labels and keys of rows, which are kept (12 bytes a row); features are read again in each pass.
"""

from fedmoments.federation.lake.passes import Passes
from fedmoments.federation.lake.reader import FileReader
from fedmoments.federation.lake.rows import LakeRows

__all__ = ["FileReader", "LakeRows", "Passes"]
