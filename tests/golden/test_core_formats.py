"""Every stored format version of the core stays readable, and what is written today is what was written then."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pyarrow as pa
import pytest

from lancewal_core.keys.conflicts import decode_conflicts
from lancewal_core.keys.run import decode_part
from lancewal_core.region.pages.state_page import decode_page
from lancewal_core.region.state import decode_history, decode_state
from lancewal_core.region.states import state_in
from lancewal_core.rows.murmur2 import murmur2
from lancewal_core.wal.bundle import decode_bundle
from lancewal_core.wal.segment import Segment, decode_segment
from tests.golden import core_formats as golden


def stored(name: str) -> bytes:
    return (golden.FOLDER / name).read_bytes()


def test_the_segment_is_read() -> None:
    assert decode_segment(stored("wal_segment_1.arrow"), golden.SEGMENT_KEY) == golden.SEGMENT


def test_the_segments_rows_are_the_values_that_went_in() -> None:
    read = decode_segment(stored("wal_segment_1.arrow"), golden.SEGMENT_KEY)
    assert isinstance(read, Segment)
    rows = read.entries[0].rows.to_pylist()
    names = golden.ROWS.wal.names
    assert rows == [{name: values.get(name) for name in names} for values in golden.ROW_VALUES]
    assert rows[0]["changed"] == datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert read.entries[1].rows.num_rows == 0


def test_the_segments_body_is_a_plain_arrow_stream() -> None:
    with pa.ipc.open_stream(stored("wal_segment_1.arrow")) as stream:
        assert [batch.num_rows for batch in stream] == [3]


def test_the_bundle_is_read() -> None:
    assert decode_bundle(stored("bundle_1.arrow"), golden.BUNDLE.key) == golden.BUNDLE
    with pa.ipc.open_stream(stored("bundle_1.arrow")) as stream:
        assert [batch.column("_offset").to_pylist() for batch in stream] == [[1000, 1001, 1004] * 2]


def test_the_fence_is_read() -> None:
    assert decode_segment(stored("fence_1.arrow"), golden.FENCE_KEY) == golden.FENCE


def test_the_fences_bytes_are_those_of_the_format_page() -> None:
    assert stored("fence_1.arrow") == bytes.fromhex(
        "0a026131 1008 1a026232 2080d095ffbc31 32040a026333"
        "0000000000000000 17000000 97d741de 01000000 da5550c8 4c57414c"
    )


def test_the_key_part_is_read() -> None:
    read = decode_part(pa.py_buffer(stored("key_part_1.arrow")), "here")
    assert read.keys.texts is not None
    found = sorted(zip(read.keys.texts.to_pylist(), read.rows.tolist(), read.files.tolist(), strict=True))
    assert found == [(b"1;0:", 1, 0), (b"1;3:a;1", 2**31, 0), (b"3;11:\xc3\x96sterreich", 0, 1)]
    assert read.keys.numbers.tolist() == sorted(murmur2(text) for text, _, _ in found)
    assert read.regions is None


def test_the_ids_of_columns_are_beside_the_keys_in_conflict() -> None:
    data = stored("conflicts_1_ids.arrow")
    with pa.ipc.open_stream(pa.py_buffer(data)[8:]) as stream:
        assert stream.schema.metadata == {
            b"lancewal.field_ids": json.dumps(golden.CONFLICTS_WITH_IDS.schema.ids).encode()
        }
    read = decode_conflicts(data, golden.CONFLICTS_KEY, golden.CONFLICTS_WITH_IDS.schema)
    assert read == golden.CONFLICTS_WITH_IDS


def test_the_keys_in_conflict_are_read() -> None:
    read = decode_conflicts(stored("conflicts_1.arrow"), golden.CONFLICTS_KEY, golden.ROWS)
    assert read == golden.CONFLICTS
    places = zip(*(read.waiting[name].to_pylist() for name in ("id", "_op", "_region", "_first", "_next")), strict=True)
    assert list(places) == [
        (1, 0, golden.NORTH.name, 1000, 1002),
        (2, 1, golden.NORTH.name, 1000, 1002),
        (1, 2, golden.SOUTH.name, 0, 1005),
    ]
    assert [(row["id"], row["_region"], row["_merged"]) for row in read.owners.to_pylist()] == [
        (1, golden.NORTH.name, 990)
    ]


def test_the_key_part_with_regions_is_read() -> None:
    read = decode_part(pa.py_buffer(stored("key_part_1_regions.arrow")), "here")
    assert read.regions is not None
    assert read.regions.tolist() == [1, -1, 0]
    assert read.rows.tolist() == golden.KEY_ENTRIES.rows.tolist()


def test_the_index_is_read() -> None:
    for name, expected in (
        ("", golden.INDEX),
        ("_record_time", golden.INDEX_WITH_RECORD_TIME),
        ("_no_row_yet", golden.INDEX_WITHOUT_ROWS),
    ):
        assert decode_state(stored(f"region_index_1{name}.binpb"), golden.STATES_KEY, golden.NORTH) == expected


def test_the_state_page_is_read() -> None:
    read = decode_page(stored("state_page_1.binpb"), golden.STATES_KEY)
    assert replace(read, records={}) == replace(golden.STATES, records={})
    assert {p: r.changed_at_ms for p, r in read.records.items()} == {0: 1_709_208_060_500, 7: 1_709_208_000_250}
    assert state_in(read, golden.NORTH, golden.STATES_KEY) == golden.INDEX
    assert state_in(read, golden.EAST, golden.STATES_KEY) == state_in(golden.STATES, golden.EAST, golden.STATES_KEY)


def test_the_history_page_is_read() -> None:
    assert decode_history(stored("history_page_1.binpb"), golden.PAGE_KEY) == golden.PAGE


@pytest.mark.parametrize("name", ["fence_1.arrow", "region_index_1.binpb", "history_page_1.binpb"])
def test_what_is_written_today_has_the_same_bytes(name: str) -> None:
    """Not asked of segments and pages: their compressed bytes may change with the Arrow release."""
    assert golden.encoded()[name] == stored(name)
