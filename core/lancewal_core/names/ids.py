"""The identifiers of the protocol.  Each is a distinct type, so that mypy finds a mix-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeVar

from lancewal_core.errors import LancewalError

E = TypeVar("E", bound=LancewalError)

TableUuid = NewType("TableUuid", str)
Making = NewType("Making", str)
"""Id drawn when a table is made at its place, by ``create`` or ``attach``.  A table that is dropped and made again
has another one."""
TopicId = NewType("TopicId", str)
SchemaKey = NewType("SchemaKey", str)
"""Name by which values call the schema they were written under: ``id-`` and the registry's number, or ``guid-`` and a UUID."""
LogId = NewType("LogId", str)
"""Id of the WAL that one ingest process writes for one table.  A process that starts again begins a new log."""
OwnerId = NewType("OwnerId", str)
Sequence = NewType("Sequence", int)
"""Number of a segment in its log, from 0, without holes."""
Position = NewType("Position", int)
"""The next offset to read in a Kafka partition."""
Generation = NewType("Generation", int)
"""Number of a generation, the rows of one MemTable; counted from 1 in each region."""
TableVersion = NewType("TableVersion", int)


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One partition of one topic, for one table."""

    topic: str
    topic_id: TopicId
    partition: int

    def __hash__(self) -> int:
        return self.partition  # plans look regions up by the ten thousand, and hardly ever those of two topics

    @property
    def name(self) -> str:
        """Stable text form; the region's name in region states, watermarks and receipts."""
        return f"{self.topic}/{self.topic_id}/{self.partition}"

    @property
    def place(self) -> dict[str, object]:
        """Topic and partition, as fields of an error or a report."""
        return {"topic": self.topic, "partition": self.partition}

    def error(self, kind: type[E], message: str, **where: object) -> E:
        """Return an error about the region: its message begins with the region's name, and it carries the name."""
        return kind(f"region {self.name}: {message}", region=self.name, **where)

    def partition_error(self, kind: type[E], message: str, **where: object) -> E:
        """Return an error about the partition in Kafka: its message begins with topic and partition, and it carries
        both."""
        return kind(f"topic {self.topic} partition {self.partition}: {message}", **self.place, **where)

    def record_error(self, kind: type[E], offset: int, message: str, **where: object) -> E:
        """Return an error about a record: its message begins with topic, partition and offset, and it carries all
        three."""
        place = f"topic {self.topic} partition {self.partition} offset {offset}"
        return kind(f"{place}: {message}", **{**where, **self.place, "offset": offset})


@dataclass(frozen=True, slots=True, order=True)
class Page:
    """Name of a state page, the object with the states of some regions of one topic.

    Page ``number`` has the partitions from n * number to n * (number + 1) - 1, where n is the contract's
    ``regions_per_page``.
    """

    topic: str
    topic_id: TopicId
    number: int
    making: Making | None
    """The table's making; None for a table of a release that had no makings."""

    @staticmethod
    def of(region: Region, regions_per_page: int, making: Making | None) -> Page:
        return Page(region.topic, region.topic_id, region.partition // regions_per_page, making)


def position_after(offset: int) -> Position:
    """Return the position right after one record."""
    return Position(offset + 1)


def topic_id(text: str) -> TopicId:
    """Return a topic id as ``kafka-topics --describe`` prints it.  ``text`` is that form, or ``str(Uuid)`` of the
    Python client."""
    return TopicId(text.rstrip("=").replace("+", "-").replace("/", "_"))
