"""Answers of the brokers about a table's topic and ingest's consumer group.

A silent broker, or a missing or replaced topic, becomes a failure in the result, and the rest of the status is shown.
If the settings name no brokers, none is asked.  This is not a failure, and Kafka's client need not be installed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancewal_core.errors import ActionNeeded, LancewalError, Problem, counted
from lancewal_core.names.ids import Position
from lancewal_core.process.status.facts import STANDS_S, KafkaSpan
from lancewal_core.record_keys.key_format import KeyCodec
from lancewal_core.record_keys.why_misrouted import why_misrouted
from lancewal_core.rows.murmur2 import NO_PARTITION
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.checks import check_allowed
from lancewal_core.table.contract import Contract

if TYPE_CHECKING:
    from lancewal_kafka.group_member import MemberTable
    from lancewal_kafka.topic import GroupMember, TopicInspector

NO_BROKERS = "Kafka's positions and ingest's group: no broker is given (kafka.bootstrap_servers)"
_PEEKED_MAX = 8
"""Upper bound of the number of partitions whose next record is fetched."""


@dataclass(slots=True)
class KafkaLook:
    """Findings about Kafka.

    ``spans`` has Kafka's positions by partition; empty if nothing is known of the topic.  ``members`` is the number of
    members of ingest's consumer group, None if it is unknown.
    """

    spans: Mapping[int, KafkaSpan] = field(default_factory=dict)
    members: int | None = None
    group_unknown: str = ""
    """Why ``members`` is unknown although the topic is known: the user may not ask, or there is no coordinator yet."""
    same_count: bool = True
    """Whether the topic has as many partitions as the contract says."""
    failure: Problem | None = None
    """Why nothing is known of the topic: the brokers do not answer, or the topic is not the table's."""
    problems: list[str] = field(default_factory=list)
    """Other problems that a person must solve."""


def look_at_kafka(settings: Settings, contract: Contract, uri: str, now_ms: int, timeout_s: float) -> KafkaLook:
    """Ask the brokers about the topic and the group.  Their errors become part of the result and are never raised."""
    found = KafkaLook()
    if not settings.kafka.bootstrap_servers:
        return found
    from lancewal_kafka.topic import TopicInspector  # the status of a table can do without Kafka's client

    group = settings.kafka.group(contract.table_uuid)
    try:
        check_allowed(settings, contract.topic, contract.dead_letters)
        inspector = TopicInspector(settings.kafka.client(), timeout_s)
        found.spans = _spans(inspector, contract, now_ms, found)
    except LancewalError as error:
        found.failure = Problem.of(error)
        return found
    if not found.spans:
        return found
    try:
        members = inspector.members(contract.topic, group)
    except LancewalError as error:  # not every user may see the group, and that is no problem of the table
        found.group_unknown = str(error)
        return found
    found.members = len(members)
    found.problems += foreign_members(group, members, contract, uri)
    return found


@dataclass(frozen=True, slots=True)
class MisroutedRecord:
    """The partition to which a misrouted record belongs, and why it may lie in another one."""

    belongs: int
    """Partition that the record belongs in; -1: none."""
    why: str = ""
    """Sentence about what is wrong, the key or the partition; empty if the row could not be read, and only the key was
    checked."""


def misrouted(settings: Settings, contract: Contract, waiting: Mapping[int, int]) -> dict[int, MisroutedRecord]:
    """Read one record of each partition, at its position in ``waiting``, and return the misrouted ones by partition.

    Only the first ``_PEEKED_MAX`` partitions are read.  Records that cannot be judged are left out.  If Kafka does not
    answer, the result is empty.
    """
    from lancewal_kafka.retention import KafkaRetention

    positions = {p: Position(at) for p, at in list(waiting.items())[:_PEEKED_MAX]}
    group = settings.kafka.group(contract.table_uuid)
    try:
        records = KafkaRetention(settings.kafka.client(), contract.topic, group).records(positions)
    except LancewalError:
        return {}  # it only makes a diagnosis more exact
    placed = {p: _placed(contract, found.keys[0], found.values[0]) for p, found in records.items()}
    return {p: found for p, found in placed.items() if found is not None and found.belongs != p}


def _placed(contract: Contract, key: bytes | None, value: bytes | None) -> MisroutedRecord | None:
    """Return the partition in which a record belongs, and what is wrong if it lies in another one.  None if neither key
    nor value shows the partition."""
    if contract.partitioner == "none":
        return None
    by_key, codec = None if key is None else contract.partition_of(key), contract.key_codec
    encoded = None if codec is None else _encoded(contract, codec, key, value)
    if codec is not None and encoded is None:
        return None if by_key is None else MisroutedRecord(by_key)
    why = why_misrouted(contract.record_rows, contract.key_format, key, encoded, contract.partitioner)
    if encoded is not None:
        return MisroutedRecord(contract.partition_of(encoded), why)
    return MisroutedRecord(NO_PARTITION if by_key is None else by_key, why)


def _encoded(contract: Contract, codec: KeyCodec, key: bytes | None, value: bytes | None) -> bytes | None:
    """Return the bytes of the record key that the region key in the value gives.  None if the value is not plain JSON
    with these columns.  For a delete, return its own key if it is one of the table's."""
    rows = contract.record_rows
    if value is None:  # a delete, if its key is one of the table's
        is_key = key is not None and set(rows.region_key) == set(rows.primary_key) and codec.decode(key) is not None
        return key if is_key else None
    if len(value) > contract.record_bytes_max:
        return None
    try:
        row = json.loads(value)
        return codec.encode([row[name] for name in rows.region_key])
    except (ValueError, RecursionError, LookupError, TypeError, ActionNeeded):
        return None  # not a JSON object, or a value does not fit its column: only ingest can judge


def _spans(inspector: TopicInspector, contract: Contract, now_ms: int, found: KafkaLook) -> Mapping[int, KafkaSpan]:
    """Return the positions in Kafka by partition; empty if the topic was replaced.  Findings are added to ``found``."""
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        found.failure = Problem(
            "topic_replaced",
            f"topic {contract.topic} has id {topic.topic_id}, the contract says {contract.topic_id}: it was deleted "
            "and recreated",
        )
        return {}
    if topic.partitions != contract.partitions:
        found.same_count = False
        found.problems.append(
            f"topic {contract.topic} has {counted(topic.partitions, 'partition')}, the contract says {contract.partitions}. "
            "Stop the producers, start ingest again, and let ingest and flusher take the records of the old ones. Then: "
            f"`lancewal table alter --partitions {topic.partitions}`"
        )
    partitions = range(min(topic.partitions, contract.partitions))
    lows = inspector.begins(contract.topic, partitions)
    recent = inspector.since(contract.topic, partitions, now_ms - int(STANDS_S * 1000), committed=False)
    ends = inspector.ends(contract.topic, partitions)
    highs = inspector.ends(contract.topic, partitions, committed=False)
    # Records of an open transaction wait too, though nobody can read them yet.
    return {
        p: KafkaSpan(lows[p], ends[p], highs[p], highs[p] if (first := recent[p]) is None else min(first, highs[p]))
        for p in partitions
    }


def foreign_members(group: str, members: Sequence[GroupMember], contract: Contract, uri: str) -> list[str]:
    """Return a problem for each other table whose ingest is in the group: each table then gets only some of the partitions.

    Members that work at the contract's place belong to this table, even if ``uri`` is a copy of the folder, such as a
    backup.
    """
    from lancewal_kafka.group_member import parse_member_id

    here = contract.place or place_of(uri)
    found: dict[MemberTable, list[str]] = defaultdict(list)
    for member in members:
        of = parse_member_id(member.client_id)
        if of is not None and not (of.table_uuid == contract.table_uuid and same_place(of.place, here)):
            found[of].append(member.host)
    return [
        f"consumer group {group}: {counted(len(hosts), 'member')} for the table {of.table_uuid} at {of.place} "
        f"({', '.join(sorted(set(hosts)))}). Each of the two tables gets the records of a part of the partitions only. "
        "Stop them. If that table is a copy of this one, `lancewal table attach` or `table moved` makes it a table of its "
        "own. If both have the same kafka.group_id, give them two, or none"
        for of, hosts in found.items()
    ]
