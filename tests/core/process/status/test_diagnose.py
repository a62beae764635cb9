"""Every cause that is declared, made of facts and named; and that nothing is said of what is not known."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from lancewal_core.errors import Problem
from lancewal_core.process.status.causes import Cause, PathStep, Urgency
from lancewal_core.process.status.diagnose import Diagnosis, diagnose, first, overall
from lancewal_core.process.status.facts import (
    STANDS_S,
    KafkaSpan,
    PartitionFacts,
    Rejections,
    TableFacts,
    WaitingGeneration,
)

NOW = 1_800_000_000_000
OLD = NOW - int(10 * STANDS_S * 1000)
YOUNG = NOW - 1000
TABLE = TableFacts(NOW, "orders", members=2, table_rows=7, version=9, merged_ms=OLD - 1)
LAG = KafkaSpan(0, 100, 100, 100)
"""All records are old."""
FRESH = KafkaSpan(0, 100, 100, 0)
DONE = PartitionFacts(
    "orders",
    3,
    kafka=LAG,
    claimed=True,
    begun=0,
    owner="host-a",
    durable=100,
    flushed=100,
    merged=100,
    read=100,
)
"""Everything has come to the end."""
BEHIND = replace(DONE, durable=40, flushed=40, merged=40, read=40, changed_ms=OLD)
"""Old records wait, and nothing has moved for long."""
NEVER = replace(DONE, claimed=False, begun=None, owner=None, durable=None, flushed=None, merged=None, read=None)


@dataclass(frozen=True)
class Case:
    cause: Cause
    state: Urgency
    table: TableFacts
    partition: PartitionFacts
    words: str
    """In the message or in what to do."""
    kind: str = ""
    """Where it is an error's."""


FAILED = Problem("misrouted", "offset 40 belongs to partition 1; `lancewal offset reject orders-3-40`")
CASES: dict[str, Case] = {
    "nothing was produced": Case(
        Cause.NOTHING_PRODUCED, Urgency.IDLE, TABLE, replace(NEVER, kafka=KafkaSpan(0, 0, 0, 0)), "producer's topic"
    ),
    "nothing was produced, and an ingest waits for it": Case(
        Cause.NOTHING_PRODUCED,
        Urgency.IDLE,
        TABLE,
        replace(DONE, kafka=KafkaSpan(0, 0, 0, 0), durable=0, flushed=None, merged=None),
        "no record was ever produced",
    ),
    "retention has passed before the first claim": Case(
        Cause.RETENTION_PASSED, Urgency.IDLE, TABLE, replace(NEVER, kafka=KafkaSpan(100, 100, 100, 100)), "retention.ms"

    ),
    "the start lies behind all records": Case(
        Cause.STARTS_BEHIND, Urgency.IDLE, TABLE, replace(NEVER, start=100), "starts at position 100"
    ),
    "the start lies behind all records, and an ingest waits there": Case(
        Cause.STARTS_BEHIND,
        Urgency.IDLE,
        TABLE,
        replace(DONE, begun=100, durable=100, flushed=None, merged=None),
        "(0 to 99) lie before it",
    ),
    "retention has passed what is durable": Case(
        Cause.RETENTION_LOST, Urgency.PROBLEM, TABLE, replace(BEHIND, kafka=KafkaSpan(60, 100, 100, 100)), "offsets 40 to 59"

    ),
    "retention has passed the start": Case(
        Cause.RETENTION_LOST,
        Urgency.PROBLEM,
        TABLE,
        replace(NEVER, start=10, kafka=KafkaSpan(60, 100, 100, 100)),
        "the table starts at position 10, but Kafka begins at 60",
    ),
    "the topic has lost its tail": Case(
        Cause.TOPIC_TRUNCATED, Urgency.PROBLEM, TABLE, replace(DONE, kafka=KafkaSpan(0, 90, 90, 90)), "ends at 90"
    ),
    "no ingest": Case(
        Cause.NO_INGEST, Urgency.PROBLEM, replace(TABLE, members=0), BEHIND, "`lancewal ingest run`"
    ),
    "no ingest, of a new table": Case(Cause.NO_INGEST, Urgency.PROBLEM, replace(TABLE, members=0), NEVER, "no member"),
    "no ingest, and records that have just come": Case(
        Cause.NO_INGEST, Urgency.WAITS, replace(TABLE, members=0), replace(NEVER, kafka=FRESH), "no member"
    ),
    "ingest is paused": Case(
        Cause.INGEST_PAUSED,
        Urgency.WAITS,
        replace(TABLE, paused={"ingest": "resumed"}),
        BEHIND,
        "`lancewal resume ingest`",
    ),
    "no ingest has opened it": Case(Cause.NOT_OPENED, Urgency.PROBLEM, TABLE, NEVER, "has ever opened it"),
    "its owner cannot open it": Case(
        Cause.CANNOT_OPEN,
        Urgency.PROBLEM,
        TABLE,
        replace(NEVER, refused=Problem("object_corrupt", "the index is damaged")),
        "the index is damaged",
        "object_corrupt",
    ),
    "a transaction is open": Case(
        Cause.OPEN_TRANSACTION,
        Urgency.PROBLEM,
        TABLE,
        replace(BEHIND, kafka=KafkaSpan(0, 40, 100, 100)),
        "from position 40 on",
    ),
    "ingest's memory is full": Case(
        Cause.THROTTLED, Urgency.WAITS, replace(TABLE, throttled=True), BEHIND, "ingest.memory_bytes_max"
    ),
    "it stands": Case(Cause.STANDS, Urgency.PROBLEM, TABLE, BEHIND, "position 40"),
    "it stands, and its owner does not": Case(
        Cause.STANDS, Urgency.PROBLEM, TABLE, replace(BEHIND, owner_wrote_ms=YOUNG), "writes for other partitions"
    ),
    "keys are misrouted": Case(
        Cause.MISROUTED, Urgency.PROBLEM, TABLE, replace(BEHIND, misrouted_to=1), "`lancewal offset reject orders-3-40`"

    ),
    "keys are misrouted, and a way out needs no restart": Case(
        Cause.MISROUTED,
        Urgency.PROBLEM,
        TABLE,
        replace(BEHIND, misrouted_to=1),
        "`lancewal table alter --on misrouted=dead-letter`",
    ),
    "a record is misrouted, and its row tells why at once": Case(
        Cause.MISROUTED,
        Urgency.PROBLEM,
        TABLE,
        replace(BEHIND, kafka=FRESH, changed_ms=YOUNG, misrouted_to=1, misrouted_why="It has no key"),
        "stops at position 40: the record there belongs to partition 1. It has no key. Correct the producer",
    ),
    "a record belongs nowhere": Case(
        Cause.MISROUTED,
        Urgency.PROBLEM,
        TABLE,
        replace(BEHIND, kafka=FRESH, changed_ms=YOUNG, misrouted_to=-1, misrouted_why="It has no key"),
        "stops at position 40: the record there belongs to no partition. It has no key.",
    ),
    "a schema is missing": Case(
        Cause.WAITS_FOR_SCHEMA, Urgency.PROBLEM, TABLE, replace(BEHIND, schema=FAILED), FAILED.message, "misrouted"
    ),
    "its owner has stopped it": Case(
        Cause.STOPPED, Urgency.PROBLEM, TABLE, replace(BEHIND, stopped=FAILED), FAILED.message, "misrouted"
    ),
    "all records are rejected": Case(
        Cause.ALL_REJECTED,
        Urgency.PROBLEM,
        TABLE,
        replace(DONE, rejections=Rejections(12, 0, "not_json", 77)),
        "12 records became a row; the most frequent reason is not_json, as at orders-3-77. Earlier records",
    ),
    "the only newest record is rejected": Case(
        Cause.ALL_REJECTED,
        Urgency.PROBLEM,
        TABLE,
        replace(DONE, rejections=Rejections(1, 0, "not_json", 77)),
        "the newest record did not become a row, for the reason not_json: orders-3-77. Earlier records may have become rows",
    ),
    "all records are rejected, and later ones wait since shortly": Case(
        Cause.ALL_REJECTED,
        Urgency.PROBLEM,
        TABLE,
        replace(BEHIND, kafka=FRESH, changed_ms=YOUNG, rejections=Rejections(1, 0, "key_form", 39)),
        "Records up to position 100 wait. If they stay, the partition has stopped for another reason, which ingest's /status",
    ),
    "the store takes nothing": Case(
        Cause.NOT_STORED,
        Urgency.PROBLEM,
        replace(TABLE, not_stored=Problem("store_unavailable", "S3 says 503")),
        replace(BEHIND, consumed=60, decoded=60),
        "S3 says 503",
        "store_unavailable",
    ),
    "seal limits are not reached": Case(
        Cause.SEAL_LIMITS,
        Urgency.WAITS,
        TABLE,
        replace(DONE, merged=40, open=WaitingGeneration(2, YOUNG, 60, 4096, NOW + 500_000)),
        "sealed by 2027-01-15T08:08:20Z",
    ),
    "a seal is due": Case(
        Cause.SEAL_LIMITS,
        Urgency.WAITS,
        TABLE,
        replace(DONE, merged=40, open=WaitingGeneration(2, YOUNG, 60, 4096, NOW - 1)),
        "is to be sealed since 2027-01-15T07:59:59.999Z",
    ),
    "a seal is overdue": Case(
        Cause.SEAL_OVERDUE,
        Urgency.PROBLEM,
        TABLE,
        replace(DONE, merged=40, open=WaitingGeneration(2, OLD, 60, 4096, OLD + 1000)),
        "was to be sealed by",
    ),
    "no ingest, and rows in its WAL": Case(
        Cause.ABANDONED,
        Urgency.PROBLEM,
        replace(TABLE, members=0),
        replace(DONE, merged=40, open=WaitingGeneration(2, OLD, 60, 4096, NOW + 1000)),
        "takes over",
    ),
    "a flush is under way": Case(
        Cause.FLUSH_UNDER_WAY, Urgency.WAITS, TABLE,
        replace(DONE, merged=40, sealed=WaitingGeneration(2, YOUNG)), "sealed since"
    ),
    "nobody flushes": Case(
        Cause.NOT_FLUSHED, Urgency.PROBLEM, TABLE,
        replace(DONE, merged=40, sealed=WaitingGeneration(2, OLD)), "`lancewal flusher run`"
    ),
    "the flusher is paused": Case(
        Cause.FLUSHER_PAUSED,
        Urgency.WAITS,
        replace(TABLE, paused={"flusher": "resumed"}),
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, OLD)),
        "`lancewal resume flusher`",
    ),
    "rounds fail": Case(
        Cause.ROUNDS_FAIL,
        Urgency.PROBLEM,
        replace(TABLE, rounds=Problem("table_restored", "somebody has restored version 3")),
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, YOUNG)),
        "restored version 3",
        "table_restored",
    ),
    "it is held back": Case(
        Cause.HELD_BACK,
        Urgency.PROBLEM,
        TABLE,
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, YOUNG), held=Problem("object_missing", "x.lance is missing")),
        "x.lance is missing",
        "object_missing",
    ),
    "a merge is due": Case(
        Cause.MERGE_DUE, Urgency.WAITS, TABLE,
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, YOUNG)), "flushed since"
    ),
    "merges pass it by": Case(
        Cause.PASSED_BY,
        Urgency.PROBLEM,
        replace(TABLE, merged_ms=YOUNG),
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, OLD)),
        "though a merge landed",
    ),
    "no flusher": Case(
        Cause.NO_FLUSHER, Urgency.PROBLEM, TABLE,
        replace(DONE, merged=40, unmerged=WaitingGeneration(2, OLD)), "`lancewal flusher run`"
    ),
    "a reader looks at an older version": Case(
        Cause.READER_BEHIND,
        Urgency.PROBLEM,
        replace(TABLE, read_version=4),
        replace(DONE, read=40),
        "version 4 open, which holds the partition up to position 40; the table's newest, 9, up to 100",
    ),
    "no row is left": Case(
        Cause.NO_ROWS_LEFT, Urgency.IDLE, replace(TABLE, table_rows=0), DONE, "deletes, or the rows expired"
    ),
    "no row is there, and keys wait for a decision": Case(
        Cause.NO_ROWS_LEFT,
        Urgency.IDLE,
        replace(TABLE, table_rows=0, keys_in_conflict=2),
        DONE,
        "Keys that came through two partitions, and wait for a decision: 2. `lancewal conflict list`",
    ),
    "it moves": Case(Cause.MOVING, Urgency.MOVING, TABLE, replace(BEHIND, kafka=FRESH, changed_ms=YOUNG), "is stalled"),
    "it has caught up": Case(Cause.CAUGHT_UP, Urgency.IDLE, TABLE, DONE, "merged and readable"),
    "nothing is known": Case(Cause.UNKNOWN, Urgency.IDLE, TableFacts(NOW, "orders"), PartitionFacts("orders", 3), "known"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_cause_is_named(name: str) -> None:
    case = CASES[name]
    found = diagnose(case.table, case.partition)
    assert (found.step, found.kind, found.state) == (case.cause.step, case.kind or case.cause.kind, case.state)
    assert case.words in found.text


def test_a_stop_comes_before_rejected_records_for_its_owner_at_once_and_for_others_after_a_while() -> None:
    """The records before the one that has stopped the partition were all rejected."""
    seen = replace(BEHIND, rejections=Rejections(1, 0, "key_form", 39))
    assert (
        diagnose(TABLE, replace(seen, kafka=FRESH, changed_ms=YOUNG, consumed=60, stopped=FAILED)).kind == FAILED.kind
    )
    assert diagnose(TABLE, seen).kind == "stands"
    owner = diagnose(TABLE, replace(seen, kafka=FRESH, changed_ms=YOUNG, consumed=60))
    assert (owner.kind, "wait" in owner.message) == ("all_rejected", False)


def test_the_topic_s_causes_are_those_of_the_whole_table() -> None:
    gone = Problem("topic_missing", "topic orders does not exist")
    found = overall(replace(TABLE, kafka=gone), [diagnose(TABLE, DONE)])
    assert (found.step, found.kind, found.state) == (PathStep.KAFKA, "topic_missing", Urgency.PROBLEM)
    empty = diagnose(TABLE, replace(NEVER, kafka=KafkaSpan(0, 0, 0, 0)))
    found = overall(TABLE, [empty, empty])
    assert (found.kind, found.state) == ("nothing_produced", Urgency.IDLE)
    assert "a table reads no other" in found.do
    assert overall(TABLE, [empty, diagnose(TABLE, DONE)]).kind != "nothing_produced"
    assert overall(TABLE, []).kind == "unknown"
    blank = diagnose(TableFacts(NOW, "orders"), PartitionFacts("orders", 3))
    assert [overall(TABLE, found).kind for found in ([blank, blank], [blank, diagnose(TABLE, DONE), blank])] == [
        "unknown",
        "caught_up",
    ]
    failing = replace(TABLE, rounds=Problem("table_restored", "restored"))
    assert [overall(failing, found).kind for found in ([], [empty])] == ["table_restored"] * 2


def test_every_declared_cause_is_made_here() -> None:
    assert {case.cause for case in CASES.values()} | {Cause.KAFKA_NOT_ASKED} == set(Cause)
    kinds = [cause.kind for cause in Cause]
    assert sorted(kinds) == sorted(set(kinds))


def test_a_problem_comes_before_what_waits_and_the_first_step_before_a_later_one() -> None:
    """An OPEN generation that waits for its seal hides no flusher that does not run."""
    waits = replace(
        DONE, merged=40, open=WaitingGeneration(3, YOUNG, 1, 1, NOW + 1000), unmerged=WaitingGeneration(2, OLD)
    )
    assert diagnose(TABLE, waits).kind == "no_flusher"
    assert diagnose(replace(TABLE, members=0), replace(waits, durable=60)).kind == "no_ingest"


def test_what_is_not_known_is_not_claimed() -> None:
    """From any set of facts, taking one away never makes a problem of what was none."""
    for table, partition in ((TABLE, DONE), (TABLE, CASES["seal limits are not reached"].partition)):
        for field in fields(PartitionFacts):
            if field.default is None and field.name not in ("claimed", "merged", "read"):
                unknown: dict[str, Any] = {field.name: None}
                found = diagnose(table, replace(partition, **unknown))
                assert found.state is not Urgency.PROBLEM, field.name
        found = diagnose(replace(table, members=None, table_rows=None, merged_ms=None), partition)
        assert found.state is not Urgency.PROBLEM


def test_without_a_broker_what_is_stored_is_judged() -> None:
    blind = replace(TABLE, members=None)
    assert diagnose(blind, replace(DONE, kafka=None)).kind == "caught_up"
    stuck = replace(DONE, kafka=None, merged=40, unmerged=WaitingGeneration(2, OLD))
    assert diagnose(blind, stuck).kind == "no_flusher"


def test_nothing_stands_first_where_nothing_stands() -> None:
    assert first([]) is None
    two = [Diagnosis(step, "k", Urgency.PROBLEM, "m", "") for step in (PathStep.MERGED, PathStep.KAFKA)]
    assert first(two) == two[1]
