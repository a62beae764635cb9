"""The feed that an airport would send: each flight's life as messages, in the order in which it happened.

 1. Two days before the flight's day its schedule is published: a full row (upsert).
 2. At departure a patch with the aircraft, the time and the delay.
 3. At arrival another patch.  A flight that landed somewhere else has an arrival time, but neither delay nor air time:
    its patch sets them to null.  Some flights have no arrival patch.
 4. An hour after the planned departure of a flight that never left, a delete.

A flight has about three messages.  All messages are ordered by the time of the event (UTC), so patches of thousands of
flights interleave and each flight's messages stay in order.  The Kafka key is the region key: origin and carrier, as the
JSON array that lancewal expects for a key of several columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from lancewal_demo.flights import MISSING

COLUMNS = {
    "flight_date": "date32",
    "carrier": "string",
    "flight": "int32",
    "origin": "string",
    "sched_dep_time": "int32",
    "dest": "string",
    "sched_arr_time": "int32",
    "distance": "int32",
    "time_hour": "timestamp[us, UTC]",
    "tailnum": "string",
    "dep_time": "int32",
    "dep_delay": "int32",
    "arr_time": "int32",
    "arr_delay": "int32",
    "air_time": "int32",
    "sent_at": "timestamp[ms, UTC]",
}
"""The table's columns.  Times of day are hours * 100 + minutes, delays and air time minutes, the distance miles."""
PRIMARY_KEY = ("flight_date", "carrier", "flight", "origin", "sched_dep_time")
REGION_KEY = ("origin", "carrier")
SENT_AT = "sent_at"
"""When the producer sent the message; the only column that is not in the CSV file."""

Operation = Literal["upsert", "patch", "delete"]

_SCHEDULE = (*PRIMARY_KEY, "dest", "sched_arr_time", "distance", "time_hour")
_DEPARTURE = (*PRIMARY_KEY, "tailnum", "dep_time", "dep_delay")
_ARRIVAL = (*PRIMARY_KEY, "arr_time", "arr_delay", "air_time")

_PUBLISHED, _DEPARTED, _ARRIVED, _CANCELLED = range(4)
_EVENTS: dict[int, tuple[Operation, tuple[str, ...]]] = {
    _PUBLISHED: ("upsert", _SCHEDULE),
    _DEPARTED: ("patch", _DEPARTURE),
    _ARRIVED: ("patch", _ARRIVAL),
    _CANCELLED: ("delete", PRIMARY_KEY),
}

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_PUBLISHED_AHEAD_S = 2 * _DAY_S
_CANCELLED_AFTER_S = _HOUR_S
_TAXIING_S = 20 * _MINUTE_S
_DIVERTED_S = 6 * _HOUR_S
"""Time from departure to arrival that is assumed if the air time is unknown."""
_LIVE_RATIO = 0.15


class Message(NamedTuple):
    """One event of one flight."""

    at: int
    """When it happened, seconds since 1970."""
    key: bytes
    """Kafka's key."""
    operation: Operation
    """What it does to the row: the header ``lancewal.op``."""
    columns: dict[str, Any]
    """Column to JSON value, without ``sent_at``."""


def first_live(messages: int) -> int:
    """Return the number of the first message of the live part: the last 15 % of ``messages`` messages."""
    return messages - round(messages * _LIVE_RATIO)


@dataclass(frozen=True)
class Feed:
    """The messages of some flights; ``len`` is the number of messages."""

    flights: pa.Table
    """The CSV file's columns, and ``flight_date``."""

    @staticmethod
    def read(csv: Path) -> Feed:
        texts = pyarrow.csv.ConvertOptions(
            null_values=[MISSING],
            strings_can_be_null=True,
            column_types={"carrier": pa.string(), "tailnum": pa.string(), "time_hour": pa.timestamp("s", tz="UTC")},
        )
        flights = pyarrow.csv.read_csv(csv, convert_options=texts)
        parts = [pc.utf8_lpad(flights[name].cast(pa.string()), 2, padding="0") for name in ("year", "month", "day")]
        return Feed(flights.append_column("flight_date", pc.binary_join_element_wise(*parts, "-")))

    def __len__(self) -> int:
        return len(self._order.at)

    def messages(self, start: int = 0, stop: int | None = None) -> Iterator[Message]:
        """Yield the messages from number ``start`` up to before ``stop``, or to the end."""
        order, columns, keys = self._order, self._columns, self._keys
        chosen = slice(start, stop)
        for at, event, row in zip(
            order.at[chosen].tolist(), order.event[chosen].tolist(), order.row[chosen].tolist(), strict=True
        ):
            operation, names = _EVENTS[event]
            yield Message(at, keys[row], operation, {name: columns[name][row] for name in names})

    @cached_property
    def _order(self) -> _Order:
        """The events in the order of their times; events at the same time are in the order of the flights."""
        minutes = pc.multiply(self.flights["minute"], _MINUTE_S)
        scheduled = _integers(pc.add(self.flights["time_hour"].cast(pa.int64()), minutes))
        has_departed, has_arrived = _valid(self.flights["dep_time"]), _valid(self.flights["arr_time"])
        departed = scheduled + _integers(self.flights["dep_delay"]) * _MINUTE_S
        in_the_air = _integers(self.flights["air_time"]) * _MINUTE_S
        arrived = departed + np.where(_valid(self.flights["air_time"]), in_the_air, _DIVERTED_S) + _TAXIING_S
        everything = np.ones(len(scheduled), dtype=np.bool_)
        events = [
            (_PUBLISHED, everything, scheduled // _DAY_S * _DAY_S - _PUBLISHED_AHEAD_S),
            (_DEPARTED, has_departed, departed),
            (_ARRIVED, has_departed & has_arrived, arrived),
            (_CANCELLED, ~has_departed, scheduled + _CANCELLED_AFTER_S),
        ]
        at = np.concatenate([times[chosen] for _, chosen, times in events])
        event = np.concatenate([np.full(np.count_nonzero(chosen), number) for number, chosen, _ in events])
        row = np.concatenate([np.flatnonzero(chosen) for _, chosen, _ in events])
        order = np.lexsort((event, row, at))
        return _Order(at[order], event[order], row[order])

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        """JSON values of all flights by column, for the columns of the messages."""
        columns = {name: self.flights[name] for name in COLUMNS if name in self.flights.column_names}
        columns["time_hour"] = pc.strftime(columns["time_hour"], "%Y-%m-%dT%H:%M:%SZ")
        return {name: values.to_pylist() for name, values in columns.items()}

    @cached_property
    def _keys(self) -> list[bytes]:
        """Kafka's key of each flight."""
        values = zip(*(self._columns[name] for name in REGION_KEY), strict=True)
        known: dict[tuple[Any, ...], bytes] = {}
        keys = []
        for value in values:
            if value not in known:
                known[value] = json.dumps(value, separators=(",", ":")).encode()
            keys.append(known[value])
        return keys


@dataclass(frozen=True, slots=True)
class _Order:
    """The events of all flights; each array has one number for each event."""

    at: npt.NDArray[np.int64]
    event: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]


def _integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return found


def _valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy()
    return found
