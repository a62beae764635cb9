"""The error tree: one class for each thing that a caller can do.

Every error has a stable ``kind`` (used in logs, metrics and dead letters).  Its message says what is wrong, where
(topic, partition, offset or object) and what to do.  The six branches say what the caller does:

* ``Retry``: the same call may succeed later (store or broker unavailable).
* ``Refresh``: what the caller knows is out of date; plan again from the newest state.
* ``Fenced``: somebody else owns this now; stop touching it.
* ``StartAgain``: this process cannot go on, another one can; end, and be started again.
* ``ActionNeeded``: a person must change something: an input, a setting, the topic, the table, the store.
* ``Corrupt``: stored bytes are not what was written; stop and name the object.

The branch also gives the exit code of a command.  ``StoreRefused`` and ``KafkaRefused`` are exceptions: a service
retries after them, but a command asks for a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

T = TypeVar("T")

ASKS_FOR_A_PERSON = 2
MAY_PASS = 3
DAMAGED = 4
BUG = 5
"""Exit code of a command that ends by an error that is not lancewal's own.  Codes 2 to 4 are those of lancewal's
errors, by branch.  Code 1 means that the command ran and found a problem."""

ATTACH_A_COPY = (
    "copy the table's rows, not its folder, into a new Lance table and make that one a lancewal table "
    "(`lancewal table attach`; docs/how-to/attach-a-table.md shows both)"
)
"""Advice for a table that no command can repair.  ``attach`` also refuses duplicate keys, and names them."""

INDEX_LOST = "the store's listing is out of date, or the state is lost (`lancewal repair region`)"
"""Text for messages: why a region's state can end at a lower position than the table has merged."""
FLUSH_DAMAGED = "`lancewal repair generation PARTITION` rebuilds it from the log; run it for each partition"
"""Advice for a damaged flush while the generation is not merged.  Generations of several partitions may share the
flush's objects."""
LOG_LOST = "If Kafka still has the records, run `lancewal repair segment` for the object that is lost or damaged"
"""Advice if both a flush and its log are missing."""


class LancewalError(Exception):
    """Base of all errors that lancewal raises on purpose.  ``where`` names objects or offsets, for logs."""

    kind: ClassVar[str] = "lancewal_error"
    """The class's name in snake case."""
    exit_code: ClassVar[int] = BUG
    """Exit code of a command that ends by this error; set by the branch."""

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.where: dict[str, object] = where

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark executors): keep ``where``.
        return (_rebuild, (type(self), str(self), self.where))


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault as a value.  ``kind`` is stable: an error's own, or the name of a state.  ``message`` says where and what to
    do."""

    kind: str
    message: str

    @staticmethod
    def of(error: LancewalError, where: str = "") -> Problem:
        """Return the problem of an error, with ``where`` before the error's text."""
        return Problem(error.kind, f"{where}: {error}" if where else str(error))

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.message.splitlines())}"


def kind_of(error: Exception) -> str:
    """Return the kind of an error; the name of its class if it is not one of lancewal's."""
    return error.kind if isinstance(error, LancewalError) else type(error).__name__


def or_error(call: Callable[[], T]) -> T | LancewalError:
    """Return the result of the call, or the ``LancewalError`` that it raises: the answer for one item of a batch
    call."""
    try:
        return call()
    except LancewalError as error:
        return error


def or_corrupt(call: Callable[[], T]) -> T | Corrupt:
    """Return the result of the call, or the ``Corrupt`` that it raises.  Any other error is raised."""
    try:
        return call()
    except Corrupt as error:
        return error


def or_raised(answer: T | LancewalError) -> T:
    """Return the result for one item of a batch call, or raise the item's error."""
    if isinstance(answer, LancewalError):
        raise answer
    return answer


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as texts for people show it: ``1 row``, ``2 rows``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some_of(texts: Sequence[str], most: int) -> str:
    """Return the first ``most`` texts, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def _rebuild(cls: type[LancewalError], message: str, where: dict[str, object]) -> LancewalError:
    return cls(message, **where)


# -- the caller may try the same again -------------------------------------------------------------------------


class Retry(LancewalError):
    """An error after which the same call may succeed later."""

    exit_code = MAY_PASS


class StoreUnavailable(Retry):
    """The object store did not answer, or answered with a transient error."""


class StoreRefused(StoreUnavailable):
    """The object store refuses access: rights, credentials or the bucket are wrong.  A service waits until the cause is
    removed.
    """

    exit_code = ASKS_FOR_A_PERSON


class CatalogUnavailable(Retry):
    """The catalog did not answer.  Tables are still opened by their addresses."""


class CatalogRefused(CatalogUnavailable):
    """The catalog refuses access: user, password, a certificate or a right is wrong.  A service waits until the cause
    is removed.
    """

    exit_code = ASKS_FOR_A_PERSON


class KafkaUnavailable(Retry):
    """The broker did not answer."""


class KafkaRefused(KafkaUnavailable):
    """Broker and client do not trust each other: user, password or a certificate is wrong.  A service waits until the
    cause is removed.
    """

    exit_code = ASKS_FOR_A_PERSON


class RegistryUnavailable(Retry):
    """The schema registry did not answer, or answered with a transient error.  Partitions that need one of its schemas
    wait.
    """


class RegistryRefused(RegistryUnavailable):
    """The schema registry refuses access: user, password, a certificate or a right is wrong.  A service waits until the
    cause is removed.
    """

    exit_code = ASKS_FOR_A_PERSON


class KafkaBehind(Retry):
    """The topic lost its newest records, and a person accepted the loss.  The topic has not grown past the durable position
    yet."""


class TokenTimeout(Retry):
    """The read did not reach the positions of its token in time.  ``where`` has the positions reached and wanted."""


class CommitUnknown(Retry):
    """A table commit was sent, and it is unknown whether it landed."""


class SparkJobFailed(Retry):
    """Spark gave a job up, or could not be reached.  The message has the reason."""


class RewriteFailed(Retry):
    """Fragments could not be rewritten; the table is unchanged."""


class WriteFailed(Retry):
    """Lance could not write rows, and not because of the store; the table is unchanged."""


# -- the caller must look again --------------------------------------------------------------------------------


class Refresh(LancewalError):
    """The caller's knowledge is out of date.  The caller must read again."""

    exit_code = MAY_PASS


class PlanStale(Refresh):
    """An object that the plan needs has moved or vanished; plan again."""


class ContractChanged(Refresh):
    """The table's contract has a newer version than this process knows; read the contract again."""


class PlanRetriesExhausted(Refresh):
    """Planning again did not help; the message names the last reason."""


class StoreInconsistent(Refresh):
    """A listing or a read of the store showed an older state than one that is known to exist."""


# -- somebody else owns it -------------------------------------------------------------------------------------


class Fenced(LancewalError):
    """Another process has taken over."""

    exit_code = MAY_PASS


class OwnershipLost(Fenced):
    """The partition's state names another owner: another process has taken the partition over."""


# -- this process must end -------------------------------------------------------------------------------------


class StartAgain(LancewalError):
    """This process cannot go on; a new one can."""

    exit_code = MAY_PASS


class ProcessForked(StartAgain):
    """This process was forked off one that had used lancewal, and does not have its threads."""


class SparkStopped(StartAgain):
    """The Spark context of this process has ended, perhaps while it was made, and cannot be started again in it."""


# -- a person must act -----------------------------------------------------------------------------------------


class ActionNeeded(LancewalError):
    """A person must change something first."""

    exit_code = ASKS_FOR_A_PERSON


class InvalidInput(ActionNeeded, ValueError):
    """An argument, an option or a file is invalid."""


class WishUnreachable(ActionNeeded):
    """No setting fulfils the wishes given to ``lancewal estimate``; the message says what is possible."""


class InvalidSettings(ActionNeeded):
    """A setting is unknown, missing, malformed or contradicts another."""


class InvalidSchema(ActionNeeded):
    """A column, type or key declaration is not allowed."""


class ContractMismatch(ActionNeeded):
    """Settings or live state contradict the table's contract; both values are shown."""


class TableMissing(ActionNeeded):
    """There is no Lance table at the address, or it was deleted while a process worked on it."""


class TableUnknown(ActionNeeded):
    """The catalog has no table of this name, or the table was dropped."""


class CutMissing(ActionNeeded):
    """The catalog has no cut of this name, or the cut lacks what it needs."""


class BasePathsRefused(ActionNeeded):
    """The table's manifest leads to files outside the table's folder, and nobody has allowed that."""


class LinkRefused(ActionNeeded):
    """A symbolic link inside a table's folder is not followed."""


class TableExists(ActionNeeded):
    """The table to be created exists already, or something else is in its place."""


class TableElsewhere(ActionNeeded):
    """The table lies at another place than its contract says: it was moved or copied, or it has two addresses."""


class TableDropped(ActionNeeded):
    """The table was dropped.  ``lancewal table undrop`` takes that back until its objects are deleted."""


class NotALancewalTable(ActionNeeded):
    """The Lance table has no contract.  ``lancewal table attach`` makes it a lancewal table."""


class OtherGroup(ActionNeeded):
    """Another consumer group takes the table's records."""


class FormerGroup(ActionNeeded):
    """The table was moved to another consumer group; a process of the former one takes no record, and waits."""


class TopicMissing(ActionNeeded):
    """The topic does not exist."""


class KafkaForbidden(ActionNeeded):
    """The brokers refuse this user a right that lancewal needs; a service waits until the right is given."""


class TopicReplaced(ActionNeeded):
    """The topic was deleted and recreated: another topic id."""


class TopicUnsuitable(ActionNeeded):
    """The topic's configuration does not fit the contract (compaction, keys)."""


class PartitionCountChanged(ActionNeeded):
    """The topic has another number of partitions than the table's contract."""


class Misrouted(ActionNeeded):
    """A record lies in another partition than the one that the table's partitioner gives its region key, or its own key."""


class RegionConflict(ActionNeeded):
    """One primary key came through two partitions, and nothing says which of its rows is newer."""


class BadRecord(ActionNeeded):
    """A record is bad, and the policy ``stop`` stops its partition."""


class WrongFormat(ActionNeeded):
    """The first records of a partition are of another format than the table's, or are all bad of one kind."""


class SchemaUnknown(ActionNeeded):
    """The schema registry does not know the schema that records name, under the policy ``stop``."""


class ColumnUnknown(ActionNeeded):
    """The schema of records has a field for which the table has no column, under the policy ``reject``."""


class KeyFormChanged(ActionNeeded):
    """A record's key names another schema than the keys of the table, so its row may lie in another partition."""


class SchemaIdReused(ActionNeeded):
    """The schema registry has another schema for an id than the one by which records of the table were decoded."""


class TooManySchemas(ActionNeeded):
    """A table has as many stored schemas as are allowed, or a schema is too large to be stored."""


class RecordsUnreadable(ActionNeeded):
    """Kafka has records that its client cannot unpack, or that fail their checksum."""


class DeadLetterRefused(ActionNeeded):
    """The dead-letter topic refuses a dead letter for its size, even without the record's content."""


class DuplicateKeys(ActionNeeded):
    """A table to be attached, or files to be loaded, hold a primary key more than once."""


class RetentionLost(ActionNeeded):
    """Kafka no longer has records that lancewal has not made durable."""


class TopicTruncated(ActionNeeded):
    """The topic ends before a position up to which lancewal has made records durable."""


class TableReplaced(ActionNeeded):
    """The Lance table was overwritten, or another table was made in its place."""


class TableRestored(ActionNeeded):
    """The Lance table was restored to an older version."""


class MergedPositionUnknown(ActionNeeded):
    """The merged positions are unknown, since table versions that may hold them were removed."""


class MergeUnproven(ActionNeeded):
    """A merge landed, but a clean-up has removed table versions before it.  One of these could hold another merge."""


class VersionGone(ActionNeeded):
    """The table version was removed by a clean-up, or the table did not exist yet at the time asked for."""


class OutsideHistoryWindow(ActionNeeded):
    """A receipt needs generations that were merged longer ago than the history window keeps them."""


class SnapshotMissing(ActionNeeded):
    """There is no snapshot of this name."""


class SubscriptionMissing(ActionNeeded):
    """There is no subscription of this name, or it was dropped since."""


class RecordsGivenUp(ActionNeeded):
    """The record of a token was given up.  Or a receipt covers records of a lost segment that were not merged at its
    version.  They may have been given up before the receipt was made, or later."""


class SearchUnsupported(ActionNeeded):
    """A search cannot be answered, or not for all rows.  The message says why, and what to ask instead."""


class TooManyUnmerged(ActionNeeded):
    """A read found more unmerged keys than it takes into memory: ``unmerged_keys_max``."""


class TokenRejected(ActionNeeded):
    """The record of a token became a dead letter, so no read will show it."""


class StoreNotWritable(ActionNeeded):
    """The folder accepts no object: a file is in its place, or an object that was put is not there."""


class StoreUnsafe(ActionNeeded):
    """The store does not honour conditional PUTs, or a folder has no hard links.  The protocol is not safe on such a
    store."""


class FlusherPaused(ActionNeeded):
    """An operator has paused the flusher."""


class RepairRefused(ActionNeeded):
    """The conditions of a repair do not hold; nothing was changed."""


# -- stored bytes are wrong ------------------------------------------------------------------------------------


class Corrupt(LancewalError):
    """Stored bytes are not those that were written."""

    exit_code = DAMAGED


class ObjectCorrupt(Corrupt):
    """An object's checksum, length or structure is wrong."""


class ObjectTooLarge(ObjectCorrupt):
    """An object would be larger than readers accept, so it was not written."""


class ObjectMissing(Corrupt):
    """An object that must exist is not there."""


class FormatUnknown(Corrupt):
    """An object has a format version or form that this release does not read; the message names it."""


__all__ = [name for name, kind in list(vars().items()) if isinstance(kind, type) and issubclass(kind, LancewalError)]
"""The classes alone: ``lancewal.errors`` makes them public."""
