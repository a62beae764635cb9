"""The values inside the golden files of the core's formats, and how the files came to be.

A golden file is written once, when its format version is new, and never again: it stands for the objects in people's
stores.  ``python -m tests.golden.core_formats`` writes the files that do not exist yet, and no others.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from lancewal_core.keys.code import code_keys
from lancewal_core.keys.conflicts import Conflicts, encode_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.keys.run import encode_part, sorted_entries
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.region.pages.packed_record import pack_record
from lancewal_core.region.pages.state_page import PageRecord, StatePage, encode_page
from lancewal_core.region.state import (
    GenerationRecord,
    GenerationState,
    HistoryPage,
    RegionState,
    encode_history,
    encode_state,
)
from lancewal_core.region.transitions import Claimant, first_claim
from lancewal_core.rows.fold import fold
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.bundle import Bundle, Copy, encode_bundle
from lancewal_core.wal.entry import Entry, NoRowYet, RejectedOffset
from lancewal_core.wal.segment import Fence, Segment, encode_fence, encode_segment

FOLDER = Path(__file__).parent

NORTH = Region("orders.eu", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 0)
SOUTH = Region("orders.eu", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 12)

ROWS = RowSchema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("country", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("weight", pa.float64()),
            ("paid", pa.bool_()),
            ("due", pa.date32()),
            ("changed", pa.timestamp("us", tz="UTC")),
            ("photo", pa.binary()),
            ("vector", pa.list_(pa.float32(), 2)),
            ("tags", pa.list_(pa.string())),
        ]
    ),
    primary_key=("id", "country"),
    region_key=("id",),
)

_NOON = datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.UTC)
ROW_VALUES: list[dict[str, object]] = [
    {
        "id": 1,
        "country": "Österreich",
        "price": Decimal("12.50"),
        "weight": 0.25,
        "paid": True,
        "due": datetime.date(2024, 3, 1),
        "changed": _NOON,
        "photo": b"\x00\xff",
        "vector": [1.0, -2.0],
        "tags": ["a", None, ""],
        "_offset": 1000,
        "_timestamp": _NOON,
        "_op": int(Op.UPSERT),
        "_present": None,
    },
    {"id": 2, "country": "", "_offset": 1001, "_timestamp": _NOON, "_op": int(Op.DELETE)},
    # A patch that sets price and sets weight to null: bits 0 to 3.
    {
        "id": 1,
        "country": "Österreich",
        "price": Decimal("-0.01"),
        "_offset": 1004,
        "_timestamp": _NOON,
        "_op": int(Op.PATCH),
        "_present": b"\x0f\x00",
    },
]

SEGMENT = Segment(
    LogId("0f3c-ingest"),
    Sequence(41),
    "ingest-7d9f",
    (
        Entry(
            NORTH,
            Position(1000),
            Position(1007),
            3,
            pa.RecordBatch.from_pylist(ROW_VALUES, schema=ROWS.wal),
            (RejectedOffset(1002, "not_json"), RejectedOffset(1006, "missing_key")),
        ),
        Entry(SOUTH, Position(0), Position(1), 3, pa.RecordBatch.from_pylist([], schema=ROWS.wal), ()),
    ),
    1_709_208_000_123,
)
SEGMENT_KEY = paths.wal_segment(SEGMENT.log, SEGMENT.sequence)

BUNDLE = Bundle(
    SEGMENT.log,
    SEGMENT.sequence,
    SEGMENT.writer,
    (
        Copy(SEGMENT, 4_711, '"0badcafe-1"'),
        Copy(
            replace(
                SEGMENT,
                sequence=Sequence(42),
                entries=(
                    Entry(NORTH, Position(1007), Position(1008), 3, SEGMENT.entries[1].rows, ()),
                    Entry(
                        SOUTH,
                        Position(1),
                        Position(1005),
                        3,
                        SEGMENT.entries[0].rows,
                        (RejectedOffset(1002, "not_json"),),
                    ),
                ),
                written_at_ms=1_709_208_000_456,
            ),
            4_712,
            '"0badcafe-2"',
        ),
    ),
)

FENCE = Fence(LogId("a1"), Sequence(8), "b2", 1_700_000_000_000, LogId("c3"))
FENCE_KEY = paths.wal_segment(FENCE.log, FENCE.sequence)


def _generation(
    number: int,
    state: GenerationState,
    positions: tuple[int, int | None],
    sequences: tuple[int, int | None],
    flushed: str | None = None,
    merged: tuple[int, int] | None = None,
    times: tuple[int, int, int, int] | None = None,
) -> GenerationRecord:
    """``times``: sealed and flushed at, lowest and highest record time; None: not known."""
    return GenerationRecord(
        generation=Generation(number),
        state=state,
        owner=OwnerId("ingest-7d9f"),
        log=LogId("0f3c-ingest"),
        first=Position(positions[0]),
        next=None if positions[1] is None else Position(positions[1]),
        first_sequence=Sequence(sequences[0]),
        end_sequence=None if sequences[1] is None else Sequence(sequences[1]),
        flush=flushed,
        merged_version=None if merged is None else TableVersion(merged[0]),
        merged_at_ms=None if merged is None else merged[1],
        sealed_at_ms=None if times is None else times[0],
        flushed_at_ms=None if times is None or flushed is None else times[1],
        record_times=None if times is None or positions[0] == positions[1] else RecordTimes(times[2], times[3]),
    )


def _flush(generation: int, region: Region = NORTH) -> str:
    return paths.flush_file(f"0badcafe-{region.partition}-{generation}", paths.FlushFile.MANIFEST)


_TIMES = (1_709_207_990_123, 1_709_207_991_456, -1, 1_709_207_989_000)

INDEX = RegionState(
    NORTH,
    3,
    (
        _generation(7, GenerationState.MERGED, (500, 500), (30, 30), _flush(7), (18, 1_709_208_000_000), _TIMES),
        _generation(8, GenerationState.MERGED, (500, 503), (30, 33), _flush(8), (19, 1_709_208_060_000), _TIMES),
        _generation(9, GenerationState.FLUSHED, (503, 100_000), (33, 36), _flush(9), times=_TIMES),
        _generation(10, GenerationState.FLUSHED, (100_000, 2**20), (36, 38), _flush(10)),
        _generation(11, GenerationState.SEALED, (2**20, 2**40), (38, 41), times=_TIMES),
        _generation(12, GenerationState.OPEN, (2**40, None), (41, None)),
    ),
    Generation(7),
    Position(500),
    "5a0c1b77",
)

INDEX_WITHOUT_ROWS = replace(INDEX, no_row_yet=NoRowYet(41, "not_json"))
INDEX_WITH_RECORD_TIME = replace(INDEX, trimmed_record_time_max_ms=1_709_207_989_000)

EAST = Region("orders.eu", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 7)
STATES = StatePage(
    Page.of(NORTH, 16, None),
    16,
    "77c0ffee",
    {
        0: PageRecord(pack_record(encode_state(INDEX)), 1_709_208_060_500),
        7: PageRecord(
            pack_record(
                encode_state(
                    replace(  # as a release claims that does not count rejected records
                        first_claim(
                            EAST, 3, Position(12), Claimant(OwnerId("ingest-1"), LogId("11aa"), Sequence(4)), "b7"
                        ),
                        no_row_yet=None,
                    )
                )
            ),
            1_709_208_000_250,
        ),
    },
)
STATES_KEY = paths.page_version(STATES.page, 44)

PAGE = HistoryPage(
    SOUTH,
    2,
    (
        _generation(1, GenerationState.MERGED, (0, 9), (0, 2), _flush(1, SOUTH), (2, 1_700_000_000_000)),
        _generation(2, GenerationState.MERGED, (9, 2**33), (2, 3), _flush(2, SOUTH), (3, 1_700_000_100_000), _TIMES),
    ),
)
PAGE_KEY = paths.history_page(SOUTH, Generation(1), None)

KEY_ENTRIES = sorted_entries(
    code_keys(pa.table({"id": pa.array([3, 1, 1]), "country": ["Österreich", "", "a;1"]})),
    np.array([0, 1, 2**31], np.uint32),
    np.array([1, 0, 0], np.uint32),
)
KEY_ENTRIES_WITH_REGIONS = replace(KEY_ENTRIES, regions=np.array([1, -1, 0], np.int32))

_OPERATIONS = pa.RecordBatch.from_pylist(ROW_VALUES, ROWS.wal)
CONFLICTS = (
    Conflicts.none(ROWS)
    .with_waiting(NORTH, fold([_OPERATIONS.slice(0, 2)], ROWS), Position(1000), Position(1002))
    .with_waiting(SOUTH, fold([_OPERATIONS.slice(2)], ROWS), Position(0), Position(1005))
    .with_owner(MergedFrom(NORTH, Position(990)), pa.table({"id": [1], "country": ["Österreich"]}, ROWS.key))
)
CONFLICTS_WITH_IDS = replace(CONFLICTS, schema=replace(ROWS, ids=tuple((i,) for i in range(len(ROWS.columns)))))
CONFLICTS_KEY = paths.conflicts_object("0badcafe")


def encoded() -> dict[str, bytes]:
    """Today's bytes, by the name of the golden file."""
    return {
        "wal_segment_1.arrow": encode_segment(SEGMENT, ROWS.wal),
        "bundle_1.arrow": encode_bundle(BUNDLE.copies, ROWS.wal),
        "fence_1.arrow": encode_fence(FENCE),
        "region_index_1.binpb": encode_state(INDEX),
        "region_index_1_record_time.binpb": encode_state(INDEX_WITH_RECORD_TIME),
        "region_index_1_no_row_yet.binpb": encode_state(INDEX_WITHOUT_ROWS),
        "state_page_1.binpb": encode_page(STATES),
        "key_part_1.arrow": encode_part(KEY_ENTRIES),
        "key_part_1_regions.arrow": encode_part(KEY_ENTRIES_WITH_REGIONS),
        "conflicts_1.arrow": encode_conflicts(CONFLICTS, "0badcafe")[0],
        "conflicts_1_ids.arrow": encode_conflicts(CONFLICTS_WITH_IDS, "0badcafe")[0],
        "history_page_1.binpb": encode_history(SOUTH, PAGE.contract_version, PAGE.generations),
    }


if __name__ == "__main__":
    for name, data in encoded().items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(data)
