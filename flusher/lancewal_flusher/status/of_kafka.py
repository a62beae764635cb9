"""What the brokers say of a table's topic and of ingest's group.

A broker that is silent, a topic that is missing or another one, is a failure of the look and hides nothing else.  Where no
brokers are named, nothing is asked: that is no failure, and Kafka's client need not be installed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_core.errors import LancewalError
from lancewal_core.ids import Position
from lancewal_core.process.status.facts import STANDS_S, Failure, KafkaSpan
from lancewal_core.rows.murmur2 import partitions_of
from lancewal_core.settings.load import Settings
from lancewal_core.store.place import place_of, same_place
from lancewal_core.table.contract import Contract

if TYPE_CHECKING:
    from lancewal_kafka.group_member import MemberTable
    from lancewal_kafka.topic import GroupMember, TopicInspector

NO_BROKERS = "Kafka's positions and ingest's group: no broker is given (kafka.bootstrap_servers)"
_PEEKED_MAX = 8
"""Partitions of which the record is fetched at which they stand."""


@dataclass(slots=True)
class KafkaLook:
    """What was found.  ``spans`` is empty, and ``members`` None, where it is not known."""

    spans: Mapping[int, KafkaSpan] = field(default_factory=dict)
    members: int | None = None
    group_unknown: str = ""
    """Why ``members`` is not known of a topic that answers: a user who may not ask, or brokers without a coordinator yet."""
    failure: Failure | None = None
    """Why the topic cannot be asked, or is not the table's."""
    problems: list[str] = field(default_factory=list)
    """What else wants a person."""


def look_at_kafka(settings: Settings, contract: Contract, uri: str, now_ms: int, timeout_s: float) -> KafkaLook:
    """Ask what there is to ask; never raises what a broker says."""
    found = KafkaLook()
    if not settings.kafka.bootstrap_servers:
        return found
    from lancewal_kafka.topic import TopicInspector  # the status of a table can do without Kafka's client

    group = settings.kafka.group(contract.table_uuid)
    try:
        inspector = TopicInspector(settings.kafka.client(), timeout_s)
        found.spans = _spans(inspector, contract, now_ms, found)
    except LancewalError as error:
        found.failure = Failure(error.kind, str(error))
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


def misrouted(settings: Settings, contract: Contract, standing: Mapping[int, int]) -> dict[int, int]:
    """Where the records at these positions belong by their keys, of those that lie elsewhere: a sign, as far as keys tell."""
    from lancewal_kafka.retention import KafkaRetention

    positions = {p: Position(at) for p, at in sorted(standing.items())[:_PEEKED_MAX]}
    group = settings.kafka.group(contract.table_uuid)
    try:
        keys = KafkaRetention(settings.kafka.client(), contract.topic, group).keys(positions)
    except LancewalError:
        return {}  # it only makes a diagnosis more exact
    belongs = partitions_of(pa.array(list(keys.values()), pa.binary()), contract.partitions).tolist()
    return {partition: place for partition, place in zip(keys, belongs, strict=True) if place != partition}


def _spans(inspector: TopicInspector, contract: Contract, now_ms: int, found: KafkaLook) -> Mapping[int, KafkaSpan]:
    """What Kafka has by partition; empty where it has another topic."""
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        found.failure = Failure(
            "topic_replaced",
            f"topic {contract.topic} has id {topic.topic_id}, the contract says {contract.topic_id}: it was deleted "
            "and recreated",
        )
        return {}
    if topic.partitions != contract.partitions:
        found.problems.append(
            f"topic {contract.topic} has {topic.partitions} partitions, the contract says {contract.partitions}. Once "
            "producers are stopped, and ingest, started again, and flusher have taken what the old ones hold: `lancewal "
            f"table alter --partitions {topic.partitions}`"
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
    """A problem for each other table that members of the group work for: both get a part of the partitions only.

    Those at the contract's place are its own, also where it is a copy of the folder, such as a backup, that is looked at.
    """
    from lancewal_kafka.group_member import parse_member_id

    here = contract.place or place_of(uri)
    found: dict[MemberTable, list[str]] = defaultdict(list)
    for member in members:
        of = parse_member_id(member.client_id)
        if of is not None and not (of.table_uuid == contract.table_uuid and same_place(of.place, here)):
            found[of].append(member.host)
    return [
        f"consumer group {group}: {len(hosts)} members ({', '.join(sorted(set(hosts)))}) work for the table "
        f"{of.table_uuid} at {of.place}: each of the two tables gets the records of a part of the partitions only. Stop them; "
        "if that table is a copy of this one, `lancewal table attach` or `table moved` makes it one of its own; if both have "
        "the same kafka.group_id, give them two, or none"
        for of, hosts in found.items()
    ]
