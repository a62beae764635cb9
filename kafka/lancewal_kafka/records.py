"""Consumed messages as columns: a list of offsets, of keys, of values and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from lancewal_kafka.headers import UNREADABLE_HEADERS, HeaderList, MessageHeaders


@dataclass(frozen=True, slots=True)
class Records:
    """Consumed messages of one region in offset order, as columns: all lists have the same length."""

    offsets: list[int]
    timestamps: list[int]
    """Kafka's timestamps, milliseconds since 1970."""
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: MessageHeaders | list[HeaderList | None]
    """Headers of each message.  Records made of consumed messages have ``MessageHeaders``; others may have a list."""

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int | None) -> Records:
        """Return the records at the indexes from ``begin`` on, before ``end``; None: all to the last."""
        at = slice(begin, end)
        return Records(self.offsets[at], self.timestamps[at], self.keys[at], self.values[at], self.headers[at])

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """Return the records of all parts, one part after the other.  If the parts are of several regions, their
        offsets do not ascend."""
        columns = zip(*((p.offsets, p.timestamps, p.keys, p.values) for p in parts), strict=True)
        offsets, timestamps, keys, values = (list(chain.from_iterable(column)) for column in columns)
        return cls(offsets, timestamps, keys, values, MessageHeaders.joined(p.headers for p in parts))

    def extend(self, more: Records) -> None:
        """Append messages of the same region with higher offsets."""
        self.offsets.extend(more.offsets)
        self.timestamps.extend(more.timestamps)
        self.keys.extend(more.keys)
        self.values.extend(more.values)
        self.headers.extend(more.headers)


# Unbound C methods, for ``map``.  The type hints do not know that a message without an error has all of these.
TOPIC: Any = Message.topic
PARTITION: Any = Message.partition
_OFFSET: Any = Message.offset
_HEADERS: Any = Message.headers
_MILLISECONDS = itemgetter(1)


def as_records(messages: Sequence[Message]) -> Records:
    """Return messages as columns, in the same order.  None of the messages may be an error."""
    # One pass of C for each attribute: no Python code runs for a message.
    return Records(
        list(map(_OFFSET, messages)),
        list(map(_MILLISECONDS, map(Message.timestamp, messages))),
        list(map(Message.key, messages)),
        list(map(Message.value, messages)),
        _headers(messages),
    )


def _headers(messages: Sequence[Message]) -> MessageHeaders:
    """Return the headers of each message; ``UNREADABLE_HEADERS`` if a name is not UTF-8.

    Each message is asked for its headers once.  If a name is not UTF-8, a second call returns a null name, and
    comparing that name crashes the process.
    """
    asked = map(_HEADERS, messages)
    found: list[HeaderList | None] = []
    while len(found) < len(messages):
        try:
            found.extend(asked)  # what came before an error stays in the list
        except (UnicodeDecodeError, SystemError) as error:  # the client may give a result and an error at once
            if not isinstance(error.__cause__ or error, UnicodeDecodeError):
                raise
            found.append(UNREADABLE_HEADERS)
    return MessageHeaders(found)


def by_partition(messages: Sequence[Message]) -> dict[int, Records]:
    """Return messages as columns, by partition.  None of the messages may be an error.

    The client returns messages of all partitions in one list, several of one partition in a row.  Columns are made of
    all messages at once, and then divided by partition.
    """
    partitions = np.fromiter(map(PARTITION, messages), np.int64, len(messages))
    starts = _run_starts(partitions)
    named = partitions[starts].tolist()
    if len(set(named)) < len(named):  # a partition has several runs: made one, in their order
        order = np.argsort(partitions, kind="stable")
        messages, partitions = [messages[at] for at in order.tolist()], partitions[order]
        starts = _run_starts(partitions)
        named = partitions[starts].tolist()
    columns = as_records(messages)
    if len(named) == 1:
        return {named[0]: columns}
    borders = pairwise([*starts, len(messages)])
    return {partition: columns.part(begin, end) for partition, (begin, end) in zip(named, borders, strict=False)}


def _run_starts(partitions: npt.NDArray[np.int64]) -> list[int]:
    if not len(partitions):
        return []
    return [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist()]
