"""A status as a service shows it, for the page's tests: partitions that wait, move and stand, and merges."""

from __future__ import annotations

from lancewal_core.errors import Problem
from lancewal_core.process.status.facts import KafkaSpan, PartitionFacts, Rejections, TableFacts, WaitingGeneration
from lancewal_core.process.status.report import (
    Figures,
    MergeDone,
    TableStatus,
    partitions_of,
    problems_of,
    table_diagnosis,
)

NOW = 1_800_000_000_000
HOSTILE = "<script>alert(1)</script>\"'&lt;\u202e\x1b[2J</code></td>"
"""What a topic, an owner or an error could be called, were nothing to prevent it."""


def shown_status(partitions: int, name: str = "orders") -> TableStatus:
    """Of so many partitions: 3 is misrouted, of 11 all is rejected, every third waits for its seal, some lag."""
    table = TableFacts(NOW, name, merged_ms=NOW - 5000)
    found = partitions_of(table, [_figures(name, partition) for partition in range(partitions)])
    return TableStatus(
        seen_by="ingest",
        at_ms=NOW,
        uri=f"s3://lake/{name}",
        table_uuid=f"uuid-{name}",
        table_version=None,
        table_rows=None,
        table_fragments=None,
        contract_version=3,
        topic=name,
        topic_id=f"id-{name}",
        topic_partitions=partitions,
        primary_key=(name, "id"),
        region_key=(name,),
        group=f"lancewal-{name}",
        group_members=2,
        paused={"flusher": NOW + 1_000_000},
        last_merge_ms=NOW - 5000,
        diagnosis=table_diagnosis(table, found),
        partitions=found,
        problems=(*problems_of(table, found), f"Kafka does not answer: {name}"),
        unknown=(f"what is merged of {name}: `lancewal status`",),
        not_looked_at=(f"the rows of {name}",),
        foreign_columns=("vector",),
        keys_in_conflict=2,
        recent_merges=tuple(MergeDone(NOW - i * 10_000, 400 - i, 3, 5, 8000 + i) for i in range(6)),
    )


def _figures(name: str, partition: int) -> Figures:
    position = 100_000 + partition
    facts = PartitionFacts(
        name,
        partition,
        kafka=KafkaSpan(0, position, position, position),
        claimed=True,
        begun=0,
        owner=f"host-{name}-{partition % 2}",
        consumed=position,
        decoded=position,
        durable=position,
        rejections=Rejections(412, 0, name, 99_731) if partition == 11 else Rejections(rows=50),
        open=WaitingGeneration(9, NOW - 100_000, 5310, 1 << 20, NOW + 500_000) if partition % 3 == 0 else None,
        stopped=Problem(name, f"offset 5000 of {name} belongs elsewhere: `lancewal offset reject {name}`")
        if partition == 3
        else None,
    )
    return Figures(facts, 7, {"open": 1, "flushed": 1}, 5310, 1 << 20, freshness_s=partition + 0.25)
