"""Sums of clients' vectors that no server sees a summand of: one shot, two servers, integers modulo 2⁶⁴."""

from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.leader import HeldReports, Leader
from fedmoments.privacy.secure.report import OVERHEAD_BYTES, Report, make_report, read_report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey, check_helper_key

__all__ = [
    "OVERHEAD_BYTES",
    "Context",
    "HeldReports",
    "Helper",
    "HelperKey",
    "Leader",
    "Report",
    "SumRequest",
    "check_helper_key",
    "make_report",
    "read_report",
]
