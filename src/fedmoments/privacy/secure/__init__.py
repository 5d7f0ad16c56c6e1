"""Sums of clients' vectors that no server sees a summand of: one shot, two servers, integers modulo 2⁶⁴."""

from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.local import secure_sum
from fedmoments.privacy.secure.report import OVERHEAD_BYTES, Report, make_report, read_report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey, check_helper_key
from fedmoments.privacy.secure.store import ReportStore

__all__ = [
    "OVERHEAD_BYTES",
    "Context",
    "Helper",
    "HelperKey",
    "Leader",
    "Report",
    "ReportStore",
    "SumRequest",
    "check_helper_key",
    "make_report",
    "read_report",
    "secure_sum",
]
