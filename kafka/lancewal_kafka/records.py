"""Consumed messages, column-wise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from confluent_kafka import Message


@dataclass(frozen=True, slots=True)
class Records:
    """Consumed messages of one region in offset order, column-wise: all lists have the same length."""

    offsets: list[int]
    timestamps: list[int]
    """Kafka's timestamps, milliseconds since 1970."""
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]] | None]

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int | None) -> Records:
        """Those at the places from ``begin`` on, before ``end``."""
        at = slice(begin, end)
        return Records(self.offsets[at], self.timestamps[at], self.keys[at], self.values[at], self.headers[at])

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """One behind the other; of several regions they are in no order."""
        columns = zip(*((p.offsets, p.timestamps, p.keys, p.values, p.headers) for p in parts), strict=True)
        return cls(*(list(chain.from_iterable(column)) for column in columns))

    def extend(self, more: Records) -> None:
        """Append messages of the same region that come after these."""
        self.offsets.extend(more.offsets)
        self.timestamps.extend(more.timestamps)
        self.keys.extend(more.keys)
        self.values.extend(more.values)
        self.headers.extend(more.headers)


# Unbound C methods, for ``map``.  The type hints do not know that a message without an error has all of these.
PARTITION: Any = Message.partition
_OFFSET: Any = Message.offset
_HEADERS: Any = Message.headers
_MILLISECONDS = itemgetter(1)


def as_records(messages: list[Message]) -> Records:
    """Messages of one partition, none of them an error, column-wise."""
    # One pass of C for each attribute: no Python code runs for a message.
    return Records(
        list(map(_OFFSET, messages)),
        list(map(_MILLISECONDS, map(Message.timestamp, messages))),
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        list(map(_HEADERS, messages)),
    )
