"""What a client keeps on its own disk: the very bytes it sent, the receipts for them, and a record of all that left."""

from fedmoments.federation.outbox.kept import LEFT, Newest, Refusal
from fedmoments.federation.outbox.outbox import Outbox

__all__ = ["LEFT", "Newest", "Outbox", "Refusal"]
