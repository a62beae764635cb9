"""A table with rows of three contracts, all unmerged at once, and a dict that says what it holds at each point.

==========  =====================================================================================================
contract    columns
==========  =====================================================================================================
first       ``KEY``, ``n`` (int32), ``old`` (string), ``text``, ``v`` (vector of float32), ``w`` (another one), ``tags``
second      ``note`` is added, with a default; ``text`` is renamed to ``words``
third       ``old`` is dropped and added again as int64; ``n`` becomes int64, ``v`` a vector of float64
==========  =====================================================================================================

The columns change by the real command and the flusher's real widening.  Rows of all three lie in flushes and in the log,
above merged rows of the first one; one generation has entries of two contracts.  The table is made once for a run.  Tests
that write take a copy.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from lancewal_core.store.address import place_of
from lancewal_core.table.columns.changes import Added, Change, Dropped, Renamed, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Contract, read_contract
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from lancewal_ingest.append.bundling import LEAST
from lancewal_ingest.regions.policy import BUNDLE_SEGMENTS
from lancewal_reader.point.at import At, Point
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from tests.support.pipeline import FIRST_MS, KEY, Key, Pipeline, Row, moment

WIDTH = 4
COLUMNS = pa.schema(
    [
        *KEY,
        ("n", pa.int32()),
        ("old", pa.string()),
        ("text", pa.string()),
        ("v", pa.list_(pa.float32(), WIDTH)),
        ("w", pa.list_(pa.float32(), WIDTH)),
        ("tags", pa.list_(pa.string())),
    ]
)
SECOND: Sequence[Change] = [Added(("note",), pa.string(), '"none"'), Renamed(("text",), "words")]
DROP: Sequence[Change] = [Dropped(("old",))]
THIRD: Sequence[Change] = [
    Added(("old",), pa.int64()),
    Widened(("n",), pa.int64()),
    Widened(("v",), pa.list_(pa.float64(), WIDTH)),
]
NAMES = [
    ["region", "id", "n", "old", "text", "v", "w", "tags"],
    ["region", "id", "n", "old", "words", "v", "w", "tags", "note"],
    ["region", "id", "n", "words", "v", "w", "tags", "note", "old"],
]
"""Columns of each contract, by hand."""
MERGED = 120
LARGE = 2**40
APART_MS = 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the table, by every kind of point that names it."""

    rows: dict[Key, Row]
    names: list[str]
    ends: list[int]
    token: Token
    points: dict[str, Point]


def vector(*of: int) -> list[float]:
    """Numbers that float32 and float64 have alike."""
    return [((of[0] * 7 + sum(of[1:]) * 3 + at * at) % 64) / 8 - 4 for at in range(WIDTH)]


def words(id: int) -> str:
    return f"w{id % 5} w{id % 7} w9" + (" w33" if id % 40 == 3 else "")


class ThreeContracts(Pipeline):
    """See the module docstring."""

    def __init__(self, folder: Path, *, flushing: bool = True, **terms: Any) -> None:
        self.flushing = flushing
        self.defaults: Row = {}
        self.moments: list[Moment] = []
        super().__init__(
            folder, COLUMNS, partitions=2, seed=35, seal_rows=10**6, batch=40, record_ms=self._record_time, **terms
        )

    def _record_time(self, partition: int, offset: int) -> int:
        """Records of a state are older than those of the next one, in all partitions."""
        return FIRST_MS + APART_MS * sum(offset >= end for end in self._ends_of(partition))

    def _ends_of(self, partition: int) -> list[int]:
        return [end for state in self.moments for end in state.ends[partition : partition + 1]]

    # -- the oracle ----------------------------------------------------------------------------------------------

    def upsert(self, region: str, id: int, **values: Any) -> None:
        super().upsert(region, id, **values)
        self.oracle[region, id] = {**self.oracle[region, id], **self.defaults, **values}

    def changed(self, changes: Sequence[Change]) -> None:
        """The real command, and what it makes of the rows."""
        change_columns(self.store, self.table, self.clock, lambda: uuid.uuid4().hex, changes)
        rows = self.oracle.values()
        for change in changes:
            (name,) = change.path
            match change:
                case Added(default=default):
                    for row in rows:
                        row[name] = None
                    if default is not None:
                        self.defaults[name] = json.loads(default)
                case Renamed(name=after):
                    for row in (*rows, *([self.defaults] if name in self.defaults else [])):
                        row[after] = row.pop(name)
                case Dropped():
                    for row in rows:
                        del row[name]
        self.by_newest()

    def by_newest(self) -> None:
        """Producers write by the newest columns from now on; workers at work hear of it by themselves."""
        self.contract: Contract = read_contract(self.store, self.uri)
        self.columns = self.contract.rows.table

    # -- what happens --------------------------------------------------------------------------------------------

    def fill(self) -> None:
        for id in range(MERGED):
            values = {
                "n": id,
                "old": f"o{id}",
                "text": words(id),
                "v": vector(id),
                "w": vector(id, 1),
                "tags": [f"t{id % 3}"],
            }
            self.upsert(f"r{id % 6}", id, **values)
        self.merge_all()
        dataset: Any = lance.dataset(self.uri)
        dataset.create_scalar_index("text", "INVERTED")
        dataset.create_index("w", "IVF_FLAT", num_partitions=2, metric="l2")
        self.remember()
        self.first()
        self.changed(SECOND)
        self.second()
        self.changed(DROP)
        self.changed(THIRD)
        self.widen()
        self.third()

    def widen(self) -> None:
        state = WideningState()
        assert isinstance(widen_next(self.flusher(), state, 60.0), WideningDone)
        self.by_newest()

    def first(self) -> None:
        """Rows of the first contract: flushed, and in the log."""
        self.upsert("r0", 0, n=1, old="first", text="w1 w21", v=vector(1, 1), w=vector(2, 2), tags=["a"])
        self.patch("r1", 1, n=-1, text="w1 w22")
        self.patch("r2", 2, old="patched old")
        self.patch("r9", 900, tags=["no row yet"], v=vector(9))
        self.delete("r3", 3)
        self.delete("r4", 4)
        for id in range(200, 212):
            self.upsert(f"r{id % 6}", id, n=id, old=f"o{id}", text=words(id), v=vector(id), w=vector(id, 1))
        self.flush_now()
        self.patch("r5", 5, old="in the log", n=55, v=vector(5, 5))
        self.upsert("r0", 6, n=66, old="in the log")
        self.upsert("r1", 220, text="w1 w23", v=vector(220), w=vector(3, 3))
        self.small_segments(300, LEAST, tags=["first"])
        self.remember()

    def second(self) -> None:
        """Rows of the second contract, some of them in a generation with rows of the first."""
        self.upsert("r0", 0, n=2, old="second", words="w2 w21", w=vector(4, 4))  # the default
        self.patch("r1", 1, note="patched")
        self.upsert("r1", 7, n=77, note=None, words="w2 w9")  # not the default
        self.patch("r2", 2, words="w2 w22")
        self.upsert("r3", 3, old="again", words="w2 w33", v=vector(3, 3), w=vector(5, 5), note="n3")
        self.patch("r9", 900, note="still no upsert")
        self.delete("r1", 13)
        for id in range(230, 240):
            self.upsert(f"r{id % 6}", id, n=id, words=words(id), v=vector(id), w=vector(id, 1), note=f"n{id}")
        self.flush_now()
        self.patch("r5", 5, note="second log", old="second log")
        self.upsert("r2", 241, old="o241", words="w2 w23", v=vector(241), w=vector(6, 6))
        self.small_segments(400, LEAST, words="w2 w24")
        self.remember()

    def third(self) -> None:
        """Rows of the third contract: flushed with rows of the second, and in the log."""
        self.patch("r0", 0, n=LARGE, old=3)
        self.upsert("r1", 1, n=LARGE + 1, words="w3 w21", v=[0.1, 0.2, 0.3, 0.4], w=vector(7, 7), old=1)
        self.patch("r2", 2, v=[1e-3, 0.1, 1e12, 4.0], note="n2")
        self.patch("r4", 4, old=44)
        self.delete("r2", 8)
        for id in range(250, 258):
            more = {"words": words(id), "v": [id / 10] * WIDTH, "w": vector(id, 1), "note": "3"}
            self.upsert(f"r{id % 6}", id, n=LARGE + id, old=id, **more)
        self.flush_now()
        self.patch("r5", 5, old=5, words="w3 w23")
        self.patch("r9", 900, n=LARGE, old=900)
        self.upsert("r3", 260, n=-LARGE, words="w3 w33", v=[0.7] * WIDTH, w=vector(8, 8), old=-1, tags=["z"])
        self.small_segments(500, BUNDLE_SEGMENTS, old=7)
        self.settle()
        self.remember()

    def flush_now(self) -> None:
        """What is durable is FLUSHED, if this table has flushes at all."""
        self.ingest()
        if self.flushing:
            self.hand_over()
            self.ingest()

    def small_segments(self, id: int, count: int, **values: Any) -> None:
        """At least so many, each with one record: ingest copies them into a bundle."""
        for n in range(count + 1):
            self.upsert(f"r{n % 6}", id + n, n=n, **values)
            self.ingest()

    def remember(self) -> None:
        """The state of now, by every kind of point."""
        ends = [len(sent) for sent in self._messages]
        rows = {key: dict(row) for key, row in self.oracle.items()}
        receipt, at = open_table(self.uri).receipt(), moment()
        points: dict[str, Point] = {
            "receipt": receipt,
            "timestamp": At.timestamp(datetime.fromtimestamp(at / 1000, UTC)),
            "positions": At.positions(dict(enumerate(ends))),
            "record time": At.record_time(
                datetime.fromtimestamp((FIRST_MS + APART_MS * len(self.moments) + 1) / 1000, UTC)
            ),
        }
        token = Token.of(*(("orders", partition, end - 1) for partition, end in enumerate(ends)))
        self.moments.append(Moment(rows, self.columns.names, ends, token, points))

    def copied(self, folder: Path) -> ThreeContracts:
        other = super().copied(folder)
        assert isinstance(other, ThreeContracts)
        other.record_ms = other._record_time
        other.replace_worker()
        other.defaults, other.moments = dict(self.defaults), []
        for state in self.moments:
            receipt = state.points["receipt"]
            assert isinstance(receipt, Receipt)
            points = {**state.points, "receipt": replace(receipt, place=place_of(other.uri))}
            other.moments.append(replace(state, points=points))
        other.oracle = copy.deepcopy(self.oracle)
        return other
