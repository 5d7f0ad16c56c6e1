"""The durable ledger: contributions on disk, exactly once each, with a log that proves what happened."""

from fedmoments.federation.store.audit import Entry
from fedmoments.federation.store.batches import Batch
from fedmoments.federation.store.masked import Waiting
from fedmoments.federation.store.members import Enrolled
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.status import Contributor, Status
from fedmoments.federation.store.store import FederationStore
from fedmoments.federation.store.verification import Verification

__all__ = [
    "Batch",
    "Contributor",
    "Enrolled",
    "Entry",
    "FederationStore",
    "Receipt",
    "Status",
    "Verification",
    "Waiting",
]
