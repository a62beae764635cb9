"""The error tree: one class per thing a caller can do about it.

Every error has a stable ``kind`` (used in logs, metrics and dead letters) and a message that says what is wrong,
where (topic, partition, offset or object) and what to do.  The six branches say what the caller does:

* ``Retry``: the same call may succeed later (store or broker unavailable).
* ``Refresh``: what the caller knows is out of date; plan again from the newest state.
* ``Fenced``: somebody else owns this now; stop touching it.
* ``StartAgain``: this process cannot go on, another one can; end, and be started again.
* ``InvalidInput``: a person must change an input, a setting or the environment.
* ``Corrupt``: stored bytes are not what was written; stop and name the object.
"""

from __future__ import annotations

from typing import ClassVar

ATTACH_A_COPY = (
    "copy the table's rows, not its folder, into a new Lance table and make that one a lancewal table "
    "(`lancewal table attach`; docs/how-to/attach-a-table.md shows both)"
)
"""The way on where no command mends a table; ``attach`` also refuses keys that are there twice, and names them."""

INDEX_LOST = "the store's listing is out of date, or the index is lost (`lancewal repair index`)"
"""Why an index can end below what the table has merged."""
SNAPSHOT_DAMAGED = "`lancewal repair snapshot` makes it anew from the log"
"""The way on while the generation is not merged."""
LOG_LOST = "Where Kafka still has the records: `lancewal repair segment` of the object that is lost or damaged"
"""The way on where neither a snapshot nor its log is there."""


class LancewalError(Exception):
    """Base of all errors that lancewal raises on purpose.  ``where`` names objects or offsets, for logs."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.where: dict[str, object] = where

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark executors): keep ``where``.
        return (_rebuild, (type(self), str(self), self.where))


def _rebuild(cls: type[LancewalError], message: str, where: dict[str, object]) -> LancewalError:
    return cls(message, **where)


# -- the caller may try the same again -------------------------------------------------------------------------


class Retry(LancewalError):
    """The same call may succeed later."""

    kind = "retry"


class StoreUnavailable(Retry):
    """The object store did not answer, or answered with a passing fault."""

    kind = "store_unavailable"


class KafkaUnavailable(Retry):
    """The broker did not answer."""

    kind = "kafka_unavailable"


class KafkaBehind(Retry):
    """The topic has lost its tail, a person has accepted that, and it has not grown beyond what is durable yet."""

    kind = "kafka_behind"


class CommitUnknown(Retry):
    """A table commit was sent and its fate could not be learned yet."""

    kind = "commit_unknown"


class SparkJobFailed(Retry):
    """Spark gave up a job, or could not be reached; the message has its reason."""

    kind = "spark_job_failed"


class RewriteFailed(Retry):
    """Fragments could not be written anew; the table is as it was."""

    kind = "rewrite_failed"


# -- the caller must look again --------------------------------------------------------------------------------


class Refresh(LancewalError):
    """What the caller knows is out of date."""

    kind = "refresh"


class PlanStale(Refresh):
    """An object that the plan needs has moved or vanished; plan again."""

    kind = "plan_stale"


class ContractChanged(Refresh):
    """The table's contract has a newer version than the one worked by; read it again."""

    kind = "contract_changed"


class PlanRetriesExhausted(Refresh):
    """Planning again did not help; the message names the last reason."""

    kind = "plan_retries_exhausted"


class StoreInconsistent(Refresh):
    """A listing or a probe gave an older state than one that is known to exist."""

    kind = "store_inconsistent"


# -- somebody else owns it -------------------------------------------------------------------------------------


class Fenced(LancewalError):
    """Somebody else owns this now."""

    kind = "fenced"


class OwnershipLost(Fenced):
    """The region index names another owner."""

    kind = "ownership_lost"


# -- this process must end -------------------------------------------------------------------------------------


class StartAgain(LancewalError):
    """This process cannot go on; a new one can."""

    kind = "start_again"


class SparkStopped(StartAgain):
    """The Spark context of this process has ended, also while it was made, and cannot be had again in it."""

    kind = "spark_stopped"


# -- a person must act -----------------------------------------------------------------------------------------


class InvalidInput(LancewalError):
    """A person must change an input, a setting or the environment."""

    kind = "invalid_input"


class SettingsError(InvalidInput):
    """A setting is unknown, missing, malformed or contradicts another."""

    kind = "settings"


class SchemaError(InvalidInput):
    """A column, type or key declaration is not allowed."""

    kind = "schema"


class ContractMismatch(InvalidInput):
    """Settings or live state contradict the table's contract; both values are shown."""

    kind = "contract_mismatch"


class TableMissing(InvalidInput):
    """There is no Lance table at the address."""

    kind = "table_missing"


class BasePathsRefused(InvalidInput):
    """The table's manifest leads to files outside the table's folder, and nobody has allowed it."""

    kind = "base_paths_refused"


class TableExists(InvalidInput):
    """What is to be made is there already, or something else is in its place."""

    kind = "table_exists"


class TableElsewhere(InvalidInput):
    """The table lies at another place than its contract says: it was moved or copied, or it has two addresses."""

    kind = "table_elsewhere"


class NotALancewalTable(InvalidInput):
    """A Lance table without a contract: ``lancewal table attach`` makes it one."""

    kind = "not_a_lancewal_table"


class TopicMissing(InvalidInput):
    """The topic does not exist."""

    kind = "topic_missing"


class TopicReplaced(InvalidInput):
    """The topic was deleted and recreated: another topic id."""

    kind = "topic_replaced"


class TopicUnsuitable(InvalidInput):
    """The topic's configuration cannot carry what the contract says (compaction, keys)."""

    kind = "topic_unsuitable"


class PartitionCountChanged(InvalidInput):
    """The topic has another number of partitions than the table's contract."""

    kind = "partition_count_changed"


class Misrouted(InvalidInput):
    """A record lies in another partition than murmur2 of its region key, or of its own key, gives."""

    kind = "misrouted"


class RegionConflict(InvalidInput):
    """One primary key came through two regions: nothing says which of its rows is newer."""

    kind = "region_conflict"


class BadRecordStop(InvalidInput):
    """A bad record under the policy ``stop``."""

    kind = "bad_record"


class RecordsUnreadable(InvalidInput):
    """Records in Kafka that its client cannot unpack, or that fail their checksum."""

    kind = "records_unreadable"


class DeadLetterRefused(InvalidInput):
    """The dead-letter topic refuses a letter for its size, even without what was in the record."""

    kind = "dead_letter_refused"


class DuplicateKeys(InvalidInput):
    """A table to be attached holds a primary key more than once."""

    kind = "duplicate_keys"


class RetentionLost(InvalidInput):
    """Kafka no longer has records that are not durable here."""

    kind = "retention_lost"


class LogTruncated(InvalidInput):
    """The topic ends before a position that is already durable here."""

    kind = "log_truncated"


class TableReplaced(InvalidInput):
    """The Lance table was overwritten or recreated."""

    kind = "table_replaced"


class TableRestored(InvalidInput):
    """The Lance table was restored to an older version."""

    kind = "table_restored"


class WatermarkUnknown(InvalidInput):
    """Table versions that may hold watermarks are gone."""

    kind = "watermark_unknown"


class MergeUnproven(InvalidInput):
    """A merge landed, but versions before it are gone that could hold another merge."""

    kind = "merge_unproven"


class VersionGone(InvalidInput):
    """The table version was removed by a clean-up."""

    kind = "version_gone"


class OutsideHistoryWindow(InvalidInput):
    """A receipt needs generations that were merged longer ago than the history window keeps them."""

    kind = "outside_history_window"


class RecordsGivenUp(InvalidInput):
    """A receipt covers records of a lost segment that a person has given up since, or had just given up."""

    kind = "records_given_up"


class StoreNotWritable(InvalidInput):
    """The store takes no object from us."""

    kind = "store_not_writable"


class StoreUnsafe(InvalidInput):
    """The store does not honour conditional PUTs: nothing of the protocol holds on it."""

    kind = "store_unsafe"


class FlusherPaused(InvalidInput):
    """An operator has paused the flusher."""

    kind = "flusher_paused"


class RepairRefused(InvalidInput):
    """The conditions of a repair do not hold; nothing was changed."""

    kind = "repair_refused"


# -- stored bytes are wrong ------------------------------------------------------------------------------------


class Corrupt(LancewalError):
    """Stored bytes are not what was written."""

    kind = "corrupt"


class ObjectCorrupt(Corrupt):
    """An object's checksum, length or structure is wrong."""

    kind = "object_corrupt"


class ObjectTooLarge(ObjectCorrupt):
    """An object would have become larger than any reader takes; it was not written."""

    kind = "object_too_large"


class ObjectMissing(Corrupt):
    """An object that must exist is not there."""

    kind = "object_missing"


class FormatUnknown(Corrupt):
    """An object has a format version or form that this release does not read; the message names it."""

    kind = "format_unknown"
