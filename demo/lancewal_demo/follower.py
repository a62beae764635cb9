"""``python -m lancewal_demo.follower TABLE OUTPUT``: a reader that repeats strong reads and measures freshness.

The reader keeps one table open and repeats a strong read of the rows that were sent lately.  For each read it appends a
line of JSON to OUTPUT (``Sight``): how many messages the read took into account, and the ages of the rows that it saw for
the first time.  The age of a row is the time from its sending by the producer to the end of the read.

A first sight is exact: the table gets the rows of one region key in the order in which they were sent.  So a row is new
if it was sent after every row of its region key that was seen before.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_demo.feed import REGION_KEY, SENT_AT

_LOOK_BACK_MS = 30_000
"""Time in ms by which partitions may lag apart without a row being overlooked."""
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Sight:
    """The result of one strong read."""

    at: float
    """When the read finished, in seconds since 1970."""
    seconds: float
    version: int
    """Version of the table."""
    visible: int
    """Messages that the read took into account, all partitions together."""
    ages: dict[str, int]
    """Age in ms -> number of rows seen for the first time."""


def main(uri: str, output: Path) -> None:
    from lancewal_reader.point.receipt import receipt_of
    from lancewal_reader.table import open_table

    table = open_table(uri)
    seen = Seen()
    with open(output, "w", buffering=1) as lines:
        while True:
            started = time.monotonic()
            since = datetime.fromtimestamp(max(0, seen.newest_ms - _LOOK_BACK_MS) / 1000, UTC)
            rows = table.to_arrow(
                [*REGION_KEY, SENT_AT], filter=f"{SENT_AT} >= timestamp '{since:%Y-%m-%d %H:%M:%S.%f}+00:00'"
            )
            now, seconds = time.time(), time.monotonic() - started
            receipt = receipt_of(rows.schema)
            ages = seen.first_seen(rows, round(now * 1000))
            sight = Sight(now, seconds, receipt.version, sum(receipt.positions.values()), ages)
            lines.write(json.dumps(asdict(sight)) + "\n")
            # It leaves the machine as much time as it takes: the services run on the same cores.
            time.sleep(max(_PAUSE_S, seconds))


class Seen:
    """Remembers the newest ``sent_at`` that was seen of each region key."""

    def __init__(self) -> None:
        self.newest_ms = 0
        self._newest: dict[str, int] = {}

    def first_seen(self, rows: pa.Table, now_ms: int) -> dict[str, int]:
        """Return the ages in ms of the rows that are new, and remember these rows as seen."""
        if rows.num_rows == 0:
            return {}
        keys = pc.binary_join_element_wise(*(rows[name] for name in REGION_KEY), " ").combine_chunks()
        keys = keys.dictionary_encode()
        names = keys.dictionary.to_pylist()
        sent = rows[SENT_AT].cast(pa.int64()).to_numpy()
        before = np.array([self._newest.get(name, -1) for name in names])
        place = keys.indices.to_numpy()
        newest = before.copy()
        np.maximum.at(newest, place, sent)
        self._newest.update(zip(names, newest.tolist(), strict=True))
        self.newest_ms = max(self.newest_ms, int(newest.max()))
        ages = now_ms - sent[sent > before[place]]
        return {str(age): count for age, count in Counter(ages.tolist()).items()}


class Sights:
    """The follower's file, read while it grows."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._read_to = 0
        self.all: list[Sight] = []

    def visible(self) -> int:
        """Return the number of messages that the newest read took into account."""
        self.all.extend(self._new())
        return self.all[-1].visible if self.all else 0

    def ages_after(self, at: float) -> Counter[int]:
        """Return by age in ms the numbers of rows seen for the first time by reads that finished after ``at``."""
        ages: Counter[int] = Counter()
        for sight in self.all:
            if sight.at > at:
                ages.update({int(age): count for age, count in sight.ages.items()})
        return ages

    def _new(self) -> Iterator[Sight]:
        if not self._output.exists():
            return
        with open(self._output, "rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._read_to += len(line)
                yield Sight(**json.loads(line))


def percentile(ages: Counter[int], percent: float) -> int | None:
    """Return the smallest age that at least ``percent`` of the rows do not exceed; None if there are no rows."""
    wanted, count = ages.total() * percent / 100, 0
    for age in sorted(ages):
        count += ages[age]
        if count >= wanted:
            return age
    return None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
