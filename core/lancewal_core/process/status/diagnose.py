"""Diagnosis of a partition: the first step that is stalled, why, and what to do.  Pure: it depends on the facts
alone.

Guarantees
 1. Each rule uses only known facts.  A rule that lacks a fact gives no diagnosis.
 2. A problem is named before anything that waits by itself, and the problem of an earlier step before a later one.
 3. A short delay is not a problem.  A step may take ``STANDS_S``, a flush three times as long, and a merge
    ``STANDS_S`` longer than the settings say.  Ages compare clocks of several machines, so a short one proves
    nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lancewal_core.errors import Problem, counted
from lancewal_core.process.clock import utc_text
from lancewal_core.process.status.causes import Cause, PathStep, Urgency
from lancewal_core.process.status.facts import STANDS_S, PartitionFacts, TableFacts, WaitingGeneration
from lancewal_core.table.control import until_text

_STEPS = list(PathStep)
_STATES = list(Urgency)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The first step that is stalled, and the suggested action."""

    step: PathStep
    """Step at which records stop, on their way from Kafka to a reader."""
    kind: str
    """Stable name of the cause; if an error is the cause, the kind of the error."""
    state: Urgency
    """``problem`` needs a person; ``waits`` goes on by itself, or when an operator says so; ``moving``; ``idle``."""
    message: str
    """The facts that were seen."""
    do: str
    """Suggested action; empty if nothing is to be done."""

    @property
    def text(self) -> str:
        return f"{self.message}. {self.do}" if self.do else self.message


Rule = Callable[[TableFacts, PartitionFacts], Diagnosis | None]


def diagnose(table: TableFacts, partition: PartitionFacts) -> Diagnosis:
    """Return the diagnosis of one partition."""
    found = [diagnosis for rule in _RULES if (diagnosis := rule(table, partition)) is not None]
    return first(found) or _end(table, partition)


def overall(table: TableFacts, partitions: Sequence[Diagnosis], *, all_of_them: bool = True) -> Diagnosis:
    """Return the diagnosis of a table from its own facts and the diagnoses of its partitions.

    ``all_of_them``: ``partitions`` has all partitions of the table, as far as they are known.
    """
    if table.kafka is not None:
        return _said(Cause.KAFKA_NOT_ASKED, table.kafka)
    silent = bool(partitions) and all(found.kind == Cause.NOTHING_PRODUCED.kind for found in partitions)
    if silent and all_of_them and table.rounds is None:
        return _found(
            Cause.NOTHING_PRODUCED,
            f"Topic {table.topic} never had a record in any partition",
            "Check whether the producer writes to this topic at these brokers (table.topic, kafka.bootstrap_servers): a "
            "table reads no other",
        )
    # Rounds that fail before anything is known of partitions have no partition to say it.
    rounds = [] if table.rounds is None else [_said(Cause.ROUNDS_FAIL, table.rounds)]
    found = first([*partitions, *rounds])
    if found is not None and found.state is Urgency.IDLE:  # partitions without records say nothing of those with some
        return max(partitions, key=lambda one: (_STEPS.index(one.step), one.kind != Cause.UNKNOWN.kind))
    return found or _found(Cause.UNKNOWN, "Nothing is known of any partition")


def first(found: Iterable[Diagnosis]) -> Diagnosis | None:
    """Return the most urgent diagnosis; among equally urgent ones that of the earliest step.  Return None if there is
    none."""
    return min(found, key=lambda one: (_STATES.index(one.state), _STEPS.index(one.step)), default=None)


# -- the rules, in the order of the way --------------------------------------------------------------------------


def _gone(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    at = it.begins
    if it.kafka is None or at is None:
        return None
    low, end = it.kafka.low, it.kafka.end
    accept = f"`lancewal offset accept-loss {it.topic}-{it.partition}`, then restart ingest"
    reached = "durable up to" if it.durable is not None else "the table starts at"
    if low > at:
        return _found(
            Cause.RETENTION_LOST,
            f"{reached} position {at}, but Kafka begins at {low}: offsets {at} to {low - 1} were deleted before they became "
            "durable",
            f"To go on without them: {accept}",
        )
    if it.durable is not None and at > end:
        return _found(
            Cause.TOPIC_TRUNCATED,
            f"durable up to position {at}, but Kafka ends at {end}: the topic lost its tail",
            f"Stop its producers. Once you know the reason, go on after the durable position: {accept}. Ingest waits until "
            "Kafka has grown up to that position",
        )
    return None


def _nothing_came(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    """Diagnose a partition in which Kafka has no record for this table, and has had none since the table was made."""
    if it.kafka is None or it.claimed is None or (it.claimed and it.durable != it.begun):
        return None
    low, high = it.kafka.low, it.kafka.high
    if high == 0:
        return _found(
            Cause.NOTHING_PRODUCED,
            "no record was ever produced to it",
            "If some should have been, look at the producer's topic, brokers and partitioner",
        )
    start = it.begun if it.begun is not None else it.start
    if low == high and (start is None or start >= high):
        return _found(
            Cause.RETENTION_PASSED,
            f"Kafka has no record any more: offsets 0 to {high - 1} were deleted before the table began",
            "Produce them again, or load them with `lancewal table load`; the topic's retention.ms says how long records stay",
        )
    if start is not None and start >= high > low:
        return _found(
            Cause.STARTS_BEHIND,
            f"the table starts at position {start}, and all records that Kafka has ({low} to {high - 1}) lie before it",
            "They are never read: the start is fixed when the table is created (table.start). To have them, create the "
            "table again with table.start: earliest, or load them with `lancewal table load`",
        )
    return None


def _waits_in_kafka(it: PartitionFacts) -> bool:
    """Return whether Kafka has records that are not durable, of open transactions too."""
    return it.kafka is not None and it.kafka.high > (it.kafka.low if it.begins is None else it.begins)


def _waits_long(it: PartitionFacts) -> bool:
    return it.kafka is not None and it.kafka.recent > (it.kafka.low if it.begins is None else it.begins)


def _not_consumed(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    """Diagnose records that wait in Kafka and that ingest does not consume: it is paused, throttled or absent, or
    stalls at one record."""
    if it.refused is not None:
        return _said(Cause.CANNOT_OPEN, it.refused)
    explained = it.stopped is not None or it.schema is not None or _not_stored(table, it) is not None
    if explained or not _waits_in_kafka(it) or it.kafka is None:
        return None
    seen = f"records up to position {it.kafka.high} wait"
    state = Urgency.PROBLEM if _waits_long(it) else Urgency.WAITS
    if "ingest" in table.paused:
        return _found(
            Cause.INGEST_PAUSED,
            f"{seen}; ingest is paused {until_text(table.paused['ingest'])}",
            "`lancewal resume ingest`",
        )
    if table.throttled:
        return _found(
            Cause.THROTTLED,
            f"{seen}; ingest's memory is full, so it consumes nothing",
            "If it stays so: check whether flushes reach the store, or raise ingest.memory_bytes_max",
        )
    if table.members == 0:
        return _found(
            Cause.NO_INGEST,
            f"{seen}, and no ingest runs: its consumer group has no member",
            "`lancewal ingest run`",
            state,
        )
    if it.claimed is False:
        return _found(
            Cause.NOT_OPENED,
            f"{seen}, and no ingest has ever opened it",
            "Is ingest started with these settings? Its log, /readyz and /status name what keeps it from opening a partition",
            state,
        )
    if it.misrouted_why and it.misrouted_to is not None:
        return _found(
            Cause.MISROUTED,
            f"stops at position {it.durable}: the record there belongs to {_place(it.misrouted_to)}. {it.misrouted_why}",
            _past_misrouted(it),
        )
    return _stands(table, it) if _waits_long(it) else None


def _place(partition: int) -> str:
    return "no partition" if partition < 0 else f"partition {partition}"


def _past_misrouted(it: PartitionFacts) -> str:
    return (
        "Correct the producer, or make another table if the producers are right. To skip such records, without a "
        "restart: `lancewal table alter --on "
        "misrouted=dead-letter`; to go on without this record alone: "
        f"`lancewal offset reject {it.topic}-{it.partition}-{it.durable}`"
    )


def _stands(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if it.kafka is None or it.durable is None or it.changed_ms is None or _young(table, it.changed_ms):
        return None
    since = utc_text(it.changed_ms)
    seen = f"is stalled at position {it.durable} since {since}, though records up to position {it.kafka.high} wait"
    if it.durable >= it.kafka.end:
        return _found(
            Cause.OPEN_TRANSACTION,
            f"{seen}. A transaction is open from position {it.kafka.end} on: later records cannot be read until it ends",
            "Find its producer (`kafka-transactions.sh find-hanging`) and end it",
        )
    if it.misrouted_to is not None:
        return _found(
            Cause.MISROUTED,
            f"{seen}. The key of the record there belongs to {_place(it.misrouted_to)}: the producer uses another "
            "partitioner than the table's (`lancewal table show`)",
            _past_misrouted(it),
        )
    if it.owner_wrote_ms is not None and _young(table, it.owner_wrote_ms):
        why = "The owner writes for other partitions, so this one has stopped"
    else:
        why = "The partition has stopped, or no ingest has it"
    return _found(
        Cause.STANDS,
        f"{seen}. {why}",
        "The log of ingest, its /readyz and its /status name the reason",
    )


def _stopped(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    return None if it.stopped is None else _said(Cause.STOPPED, it.stopped)


def _without_schema(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    return None if it.schema is None else _said(Cause.WAITS_FOR_SCHEMA, it.schema)


def _rejected(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    found = it.rejections
    if found.records == 0 or found.rows > 0:
        return None
    example = f"{it.topic}-{it.partition}-{found.offset}"
    if found.records == 1:
        seen = f"the newest record did not become a row, for the reason {found.kind}: {example}"
    else:
        reason = f"the most frequent reason is {found.kind}, as at {example}"
        seen = f"none of the newest {found.records} records became a row; {reason}"
    later = ""
    if it.kafka is not None and it.consumed is None and _waits_in_kafka(it):
        # Only its owner knows before STANDS_S whether it has stopped.
        later = (
            f". Records up to position {it.kafka.high} wait. If they stay, the partition has stopped for another reason, "
            "which ingest's /status names"
        )
    return _found(
        Cause.ALL_REJECTED,
        f"{seen}. Earlier records may have become rows{later}",
        "`lancewal dead-letter list` counts them by reason and column. Correct the producer, or the table's columns and "
        "format, and send them again. The problem is over once a newer record becomes a row",
    )


def _not_stored(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if table.not_stored is None or it.decoded is None or it.durable is None or it.decoded <= it.durable:
        return None
    return _said(Cause.NOT_STORED, table.not_stored)


def _in_memtable(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if it.open is None:
        return None
    seen = f"generation {it.open.generation} has {counted(it.open.rows, 'row')}, {it.open.nbytes} bytes in the WAL"
    if table.members == 0 and it.open.since_ms is not None and not _young(table, it.open.since_ms):
        return _found(
            Cause.ABANDONED,
            f"{seen}, and no ingest runs that would seal it: strong reads see it, the merged table does not",
            "`lancewal ingest run`: it takes over these rows",
        )
    if it.open.due_ms is None:
        return None
    if it.open.due_ms + STANDS_S * 1000 < table.now_ms:
        return _found(
            Cause.SEAL_OVERDUE,
            f"{seen}, and was to be sealed by {utc_text(it.open.due_ms)}",
            "Look at ingest's log and /readyz. The store accepts no new state, the owner is gone, or its ingest.seal_age_s "
            "is longer than the setting here",
        )
    if it.open.due_ms < table.now_ms:
        return _found(
            Cause.SEAL_LIMITS,
            f"{seen}, and is to be sealed since {utc_text(it.open.due_ms)}",
            "Strong reads see these rows already. If ingest was killed, another one seals them: Kafka gives it the partition "
            "after session.timeout.ms",
        )
    return _found(
        Cause.SEAL_LIMITS,
        f"{seen}: below ingest's seal limits, it is sealed by {utc_text(it.open.due_ms)} at the latest",
        "Strong reads see these rows already. To have them in the merged table sooner, lower ingest.seal_age_s",
    )


def _not_flushed(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if it.sealed is None:
        return None
    seen = f"generation {it.sealed.generation} is sealed{_since(it.sealed)}, and not flushed"
    # Ingest flushes at once; what it left behind, the flusher takes after as long.
    if it.sealed.since_ms is None or table.now_ms - it.sealed.since_ms < 3 * STANDS_S * 1000:
        return _found(Cause.FLUSH_UNDER_WAY, seen)
    return _found(
        Cause.NOT_FLUSHED,
        f"{seen}: its ingest is gone or cannot write, and no flusher has taken it over",
        "`lancewal flusher run`; if one runs, its log and /readyz name what is missing in the WAL",
    )


def _not_merged(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if it.held is not None:
        return _said(Cause.HELD_BACK, it.held)
    if it.unmerged is None:
        return None
    seen = f"generation {it.unmerged.generation} is flushed{_since(it.unmerged)}, and not merged"
    if "flusher" in table.paused:
        return _found(
            Cause.FLUSHER_PAUSED,
            f"{seen}; the flusher is paused {until_text(table.paused['flusher'])}",
            "`lancewal resume flusher`",
        )
    if table.rounds is not None:
        return _said(Cause.ROUNDS_FAIL, table.rounds)
    since = it.unmerged.since_ms
    if since is None or table.now_ms - since < (table.merge_after_s + STANDS_S) * 1000:
        return _found(Cause.MERGE_DUE, seen)
    if table.merged_ms is not None and table.merged_ms > since:
        return _found(
            Cause.PASSED_BY,
            f"{seen}, though a merge landed at {utc_text(table.merged_ms)}",
            "An object that its merge needs may be damaged: the flusher's log, its /readyz and its /status name it",
        )
    if table.merged_ms is not None:
        last = f"the last merge landed at {utc_text(table.merged_ms)}"
    else:
        last = "no merge ever landed" if it.merged is None else "the time of the last merge is unknown"
    return _found(
        Cause.NO_FLUSHER,
        f"{seen}; {last}",
        "No flusher runs (`lancewal flusher run`), or its rounds fail: then its log, /readyz and /status name the reason",
    )


def _not_read(table: TableFacts, it: PartitionFacts) -> Diagnosis | None:
    if table.read_version is None or it.merged is None or (it.read or 0) >= it.merged:
        return None
    return _found(
        Cause.READER_BEHIND,
        f"the reader has version {table.read_version} open, which holds the partition up to position {it.read or 0}; the "
        f"table's newest, {table.version}, up to {it.merged}",
        "Open the table again, or check out its newest version: an open Lance dataset stays at its version. The `version` of "
        "the dataset, or of the read's receipt, tells",
    )


_RULES: tuple[Rule, ...] = (
    _gone,
    _nothing_came,
    _not_consumed,
    _stopped,
    _without_schema,
    _rejected,
    _not_stored,
    _in_memtable,
    _not_flushed,
    _not_merged,
    _not_read,
)


def _end(table: TableFacts, it: PartitionFacts) -> Diagnosis:
    """Return the diagnosis of a partition in which no step is stalled."""
    if _waits_in_kafka(it):
        return _found(Cause.MOVING, "records arrive, and nothing is stalled")
    if it.merged is None and it.durable is None:
        return _found(Cause.UNKNOWN, "nothing is known of this partition from here")
    if it.kafka is not None and table.table_rows == 0 and it.merged is not None and it.merged == it.durable:
        if table.keys_in_conflict:
            return _found(
                Cause.NO_ROWS_LEFT,
                f"all records are merged up to position {it.merged}, and the table has no row. Keys that came through two "
                f"partitions, and wait for a decision: {table.keys_in_conflict}",
                "`lancewal conflict list` names them, `lancewal conflict settle` decides",
            )
        return _found(
            Cause.NO_ROWS_LEFT,
            f"all records are merged up to position {it.merged}, and the table has no row left. Its records were "
            "deletes, or the rows expired, or were deleted since",
            "`lancewal table show` names the time to live; `lancewal verify` compares the table with its records",
        )
    return _found(Cause.CAUGHT_UP, "all known records are merged and readable")


# -- making one -----------------------------------------------------------------------------------------------------


def _found(cause: Cause, message: str, do: str = "", state: Urgency | None = None) -> Diagnosis:
    """Return a diagnosis.  ``state``: a state other than the cause's own."""
    return Diagnosis(cause.step, cause.kind, state or cause.state, message, do)


def _said(cause: Cause, failure: Problem) -> Diagnosis:
    """Return a diagnosis with the text of an error.  That text says where the error occurred and what to do."""
    return Diagnosis(cause.step, failure.kind, cause.state, failure.message, "")


def _young(table: TableFacts, at_ms: int) -> bool:
    return table.now_ms - at_ms <= STANDS_S * 1000


def _since(waiting: WaitingGeneration) -> str:
    return "" if waiting.since_ms is None else f" since {utc_text(waiting.since_ms)}"
