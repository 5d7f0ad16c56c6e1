"""One kind of file for all that must survive a crash: the ledger, the outbox, what a helper remembers.

SQLite with a write-ahead log and ``synchronous=FULL``: a commit returns when its bytes were forced to the disk, and
only then may anything be acknowledged. What holds, whatever fails:

- *All or nothing.* Every write is one ``BEGIN IMMEDIATE`` transaction; several processes may share a file, and wait for
  each other for up to a minute. A file gets its name when it is whole and on the disk, and never replaces another.
- *After a failure* nothing that a connection remembers is trusted: it is dropped and the file is read anew. A commit
  whose fsync failed may stand in the log, whole, but in memory only. So before anybody builds upon what can be read,
  it is copied into the file and forced to the disk (:meth:`DurableFile.reading`, :meth:`DurableFile.writing`).
- *Private.* The file, its log and copies of it have mode 0600 from their first byte, and a folder that is made for them
  0700. A file whose mode is wider is narrowed, or refused if that is not allowed.
- *Erased.* What is deleted is overwritten with zeros; in the log it stays until :meth:`DurableFile.erase_log`.

- *Read-only media.* Where nothing can be written, a file is opened for reading, and nothing is made beside it.

A write-ahead log works on a local disk only, not over a network file system.
"""

from fedmoments.durable.file import MOST_BLOB_BYTES, Connection, DurableFile, change_other, erase_deleted
from fedmoments.durable.kind import Companion, Kind
from fedmoments.durable.placing import narrow, part_of, put_in_place, refuse_taken

__all__ = [
    "MOST_BLOB_BYTES",
    "Companion",
    "Connection",
    "DurableFile",
    "Kind",
    "change_other",
    "erase_deleted",
    "narrow",
    "part_of",
    "put_in_place",
    "refuse_taken",
]
