"""The keeper: the one process of a party that holds its private key, and does with it only what its rules allow."""

from fedmoments.federation.keeper.client import ClientKeeper, KeptIdentity
from fedmoments.federation.keeper.helper import HelperKeeper, KeptHelper
from fedmoments.federation.keeper.line import Line, serve

__all__ = ["ClientKeeper", "HelperKeeper", "KeptHelper", "KeptIdentity", "Line", "serve"]
