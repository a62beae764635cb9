"""Identifiers in stored objects are words, in every decoder; what writes them makes such."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import google_crc32c
import pytest

from lancewal_core.errors import InvalidInput, LancewalError, ObjectCorrupt
from lancewal_core.keys.catalog import decode_catalog
from lancewal_core.names.ids import LogId, OwnerId
from lancewal_core.names.proto import mem_wal_pb2, wal_segment_pb2
from lancewal_core.names.words import WORD_MAX, as_word, is_word
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.region.pages.state_page import encode_page
from lancewal_core.region.state import decode_history, decode_state, encode_state
from lancewal_core.table.contract import decode_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import decode_merge_finished, decode_merge_record, merge_properties, watermarks_of
from lancewal_core.wal.entry import RejectedOffset
from lancewal_core.wal.segment import FOOTER_SIZE, decode_segment, encode_fence, encode_segment
from lancewal_flusher.commit.facts import facts_of
from lancewal_ingest import context
from lancewal_reader.point.receipt import Receipt
from tests.golden import core_formats as golden
from tests.golden import json_formats as texts
from tests.support.stored_objects import SOUND

NONE = ("", ".", "..", "a/b", "../x", "a b", "a\n", "\x1b]52;c;x\x07", "é", "\u202e", "x" * (WORD_MAX + 1))
"""No words."""
no_word = pytest.mark.parametrize("text", NONE, ids=range(len(NONE)))
Put = Callable[[Any, str], None]


def test_what_is_a_word() -> None:
    for text in ("a", "host-1.eu_2-0a1b", "x" * WORD_MAX, "...", "-"):
        assert is_word(text)
        assert as_word(text) == text
    for text in NONE:
        assert not is_word(text)
        assert is_word(as_word(text))


def test_an_owner_is_a_word_whatever_the_machine_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "büro\n/1", "h" * 400):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        assert is_word(context.new_owner())


# -- JSON ----------------------------------------------------------------------------------------------------------


def member(*path: str | int) -> Put:
    def put(content: Any, text: str) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = text

    return put


JSON: dict[str, tuple[str, Callable[[bytes, str], object], tuple[tuple[str | int, ...], ...]]] = {
    "contract": ("contract", decode_contract, (("table_uuid",), ("topic",), ("topic_id",))),
    "control": ("control", Control.decode, (("write_id",),)),
    "drain": ("drain", Drain.decode, (("write_id",),)),
    "accepted loss": ("accepted loss", LossRecord.decode, (("accepted_by",), ("segment",))),
    "beginning of a load": ("beginning of a load", LoadRecord.decode, (("topic_id",),)),
    "merge record": ("merge record", decode_merge_record, (("merge",), ("kind",))),
    "key catalog": (
        "key catalog",
        decode_catalog,
        (("write_id",), ("runs", 0, "name"), ("runs", 0, "files", 0, "name"), ("runs", 0, "parts", 0, "object")),
    ),
}


@no_word
@pytest.mark.parametrize("kind", JSON)
def test_members_of_json_objects(kind: str, text: str) -> None:
    name, decode, members = JSON[kind]
    sound = SOUND[name]
    for path in members:
        content = json.loads(sound.objects[0])
        content.pop("crc32c", None)
        decode(json.dumps(content).encode(), sound.key)
        member(*path)(content, text)
        with pytest.raises(ObjectCorrupt) as caught:
            decode(json.dumps(content).encode(), sound.key)
        message = str(caught.value)
        assert sound.key in message
        assert path[0] == "topic" or path[-1] in ("topic_id", "object") or str(path[-1]) in message
        assert message.isprintable()


@no_word
def test_the_mark_of_a_finished_merge(text: str) -> None:
    key = SOUND["finished merge"].key
    with pytest.raises(ObjectCorrupt, match=re.escape(key)):
        decode_merge_finished(text.encode(), key)


@no_word
def test_the_table_of_a_receipt(text: str) -> None:
    content = json.loads(texts.RECEIPT.to_json())
    with pytest.raises(InvalidInput, match="table"):
        Receipt.from_json(json.dumps({**content, "table": text}))


# -- protobuf --------------------------------------------------------------------------------------------------------


def sealed(message: Any) -> bytes:
    body = message.SerializeToString(deterministic=True)
    return bytes(body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body)))


INDEX_MEMBERS: dict[str, Put] = {
    "write_id": lambda m, text: setattr(m, "write_id", text),
    "owner_id": lambda m, text: setattr(m.mem_wal_list[1], "owner_id", text),
    "WAL location": lambda m, text: setattr(m.mem_wal_list[1], "wal_location", f"_lancewal/wal/{text}/"),
}


@no_word
@pytest.mark.parametrize("name", INDEX_MEMBERS)
def test_members_of_a_region_index(name: str, text: str) -> None:
    page = SOUND["history page"]
    for decode, key, data in (
        (decode_state, golden.STATES_KEY, encode_state(golden.INDEX)),
        (decode_history, page.key, page.objects[0]),
    ):
        if (name, key) == ("write_id", page.key):
            continue
        message = mem_wal_pb2.MemWalIndexDetails.FromString(data[:-6])
        INDEX_MEMBERS[name](message, text)
        with pytest.raises(ObjectCorrupt, match=name) as caught:
            decode(sealed(message), key)
        assert key in str(caught.value)
        assert str(caught.value).isprintable()


def rewritten(data: bytes, put: Callable[[Any], None]) -> bytes:
    """A segment or fence with another table, and checksums that match."""
    body_length, length = struct.unpack("<QI", data[-FOOTER_SIZE : -FOOTER_SIZE + 12])
    table = wal_segment_pb2.WalSegmentTable.FromString(data[body_length : body_length + length])
    put(table)
    made = table.SerializeToString(deterministic=True)
    checked = struct.pack("<QIII", body_length, len(made), google_crc32c.value(made), 1)
    return data[:body_length] + made + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"


@no_word
def test_members_of_segments_and_fences(text: str) -> None:
    segment, fence = SOUND["segment"].objects[0], encode_fence(golden.FENCE)
    decode_segment(rewritten(segment, lambda table: None), golden.SEGMENT_KEY)
    decode_segment(rewritten(fence, lambda table: None), golden.FENCE_KEY)
    for data, key, what, put in (
        (segment, golden.SEGMENT_KEY, "writer", lambda t: setattr(t, "writer", text)),
        (segment, golden.SEGMENT_KEY, "kind", lambda t: setattr(t.body.entries[0].rejected[0], "kind", text)),
        (fence, golden.FENCE_KEY, "writer", lambda t: setattr(t, "writer", text)),
        (fence, golden.FENCE_KEY, "writer_log", lambda t: setattr(t.fence, "writer_log", text)),
    ):
        with pytest.raises(ObjectCorrupt, match=what) as caught:
            decode_segment(rewritten(data, put), key)
        assert key in str(caught.value)
        assert str(caught.value).isprintable()


@no_word
def test_nothing_else_is_written(text: str) -> None:
    entry = replace(golden.SEGMENT.entries[0], rejected=(RejectedOffset(1002, text),))
    opened = golden.INDEX.generations[-1]
    writers: tuple[Callable[[], object], ...] = (
        lambda: encode_state(replace(golden.INDEX, write_id=text)),
        lambda: encode_page(replace(golden.STATES, write_id=text)),
        lambda: encode_state(
            replace(golden.INDEX, generations=(*golden.INDEX.generations[:-1], replace(opened, owner=OwnerId(text))))
        ),
        lambda: encode_segment(replace(golden.SEGMENT, writer=text), golden.ROWS.wal),
        lambda: encode_segment(replace(golden.SEGMENT, entries=(entry,)), golden.ROWS.wal),
        lambda: encode_fence(replace(golden.FENCE, writer=text)),
        lambda: encode_fence(replace(golden.FENCE, writer_log=LogId(text))),
    )
    for write in writers:
        with pytest.raises(LancewalError):
            write()


# -- transactions ----------------------------------------------------------------------------------------------------


@no_word
def test_a_merge_s_uuid_and_files_in_its_transaction(text: str) -> None:
    properties = merge_properties(texts.IN_FORCE.regions, text)
    with pytest.raises(ObjectCorrupt, match=r"lancewal\.merge"):
        watermarks_of(TransactionInfo("Update", 3, properties), 4)
    facts = {
        "lancewal.read_version": "3", "lancewal.fragments_below": "1", "lancewal.files": json.dumps(["a.lance"]),
        "lancewal.adopted": "{}", "lancewal.generations": "{}", "lancewal.rows_adopted": "0", "lancewal.rows_replaced": "0",
    }  # fmt: skip
    facts_of(TransactionInfo("Update", 3, facts), texts.IN_FORCE.version)
    facts["lancewal.files"] = json.dumps([f"{text}.lance" if text not in (".", "..") else text])
    with pytest.raises(ObjectCorrupt, match="names of data files"):
        facts_of(TransactionInfo("Update", 3, facts), texts.IN_FORCE.version)
