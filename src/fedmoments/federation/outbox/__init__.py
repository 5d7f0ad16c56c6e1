"""What a client keeps on its own disk: the very bytes it sent, the receipts for them, and a record of all that left."""

from fedmoments.federation.outbox.outbox import Newest, Outbox, Refusal

__all__ = ["Newest", "Outbox", "Refusal"]
