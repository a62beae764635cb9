"""What an ingest worker of a world is given beside store and Kafka, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lancewal_core.errors import Corrupt, DeadLetterRefused, KafkaUnavailable
from lancewal_core.names.ids import OwnerId, Region
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.append.draining import drain_of
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.registry.lookups import SchemaLookups
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from tests.simulation.memory_kafka import MemorySource
from tests.support.silent_observer import SilentObserver

if TYPE_CHECKING:
    from tests.simulation.world import Process, World


class DeadLetters:
    """Dead letters that are acknowledged, or are not."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        self._world.scheduler.switch("dead letters")
        if self._world.faults_of(self._process.group).unavailable("produce", "dead letters"):
            raise KafkaUnavailable("no acknowledgement of a dead letter")
        taken = self._world.checker.rejected.setdefault(region.partition, set())
        for letter in rejected:
            if (region.partition, letter.offset) in self._world.refused_letters:
                raise DeadLetterRefused("too large", partition=region.partition, offset=letter.offset)
            taken.add(letter.offset)


class MemberObserver(SilentObserver):
    """Tells the world what a member holds for durable, which is compared with what is stored at that very moment: a little
    later another member may have made it so."""

    def __init__(self, world: World) -> None:
        self._world = world

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None:
        self._know(region, record.first)

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None:
        self._know(entry.region, entry.next)

    def _know(self, region: Region, position: int) -> None:
        self._world.know(region.partition, position)
        self._world.checker.check_region(region, position)

    def failed(self, act: str, cause: object) -> None:
        lost = isinstance(cause, Corrupt) and self._world.losses.named_by(cause)
        self._world.note(f"failed {act}: {'a segment is lost' if lost else type(cause).__name__}")


def ingest_worker(world: World, process: Process) -> tuple[IngestWorker, MemorySource]:
    """An ingest worker with limits so small that everything happens often."""
    faults = world.faults_of(process.group)
    context = IngestContext(*process.opened(world.contract).parts, process.new_id, group=world.consumer_group)
    if world.registry is not None:
        schemas = WriterSchemas(context.store, world.contract.making)
        lookups = SchemaLookups(schemas, world.registry, context.tasks, context.clock, process.new_id, world.contract)
        context = replace(context, schemas=lookups)
    source = MemorySource(
        process.name, world.topic, world.group, world.scheduler, process.rng,
        lambda: faults.unavailable("kafka", "broker"),
    )  # fmt: skip
    if len(world.topic.partitions) > world.contract.partitions:
        context = replace(context, drain=drain_of(context, source))
    rng = process.rng
    worker = IngestWorker(
        context,
        source,
        DeadLetters(world, process),
        Preparer(world.contract, context.drain, context.stored_schemas),
        OwnerId(process.name),
        MemberObserver(world),
        world.settings.seals
        or SealPolicy(rows=rng.choice([5, 15, 40]), age_s=rng.choice([1.0, 3.0]), log_distance=rng.choice([3, 8])),
        MemoryPolicy(),
        WorkerLimits(
            linger_s=0.02,
            idle_position_s=0.2,
            offset_commit_s=0.5,
            retry_s=0.1,
            damaged_s=0.3,
            settle_s=1.0,
            bundle_segments=world.settings.bundle_segments,
        ),
    )
    return worker, source
