"""Contracts, flushes, merge records, watermarks and receipts: a value that comes back as it is, or a named error."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, InvalidInput, InvalidSchema, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Page, Position, Region, TableUuid, TableVersion, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flushes.manifest import Flush, FlushPart, Stretch, decode_flush, encode_flush
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Column, Contract, decode_contract, encode_contract
from lancewal_core.table.protocol import TransactionInfo, fragment_rows
from lancewal_core.table.watermarks import (
    InForce,
    Watermark,
    decode_merge_record,
    decode_watermarks,
    encode_merge_record,
    encode_watermarks,
)
from lancewal_flusher.commit.facts import KeyDecision, MergeFacts, facts_of
from lancewal_reader.point.receipt import METADATA_KEY, Receipt, receipt_of
from tests.support.fuzzing import MESSAGE_MAX, damaged, fuzz, memory_bound, outcome

MIB = 1 << 20
REGION = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 3)
CONTRACT_KEY = paths.contract_version(1, None)
FLUSH_KEY = paths.flush_file("0badcafe", FlushFile.MANIFEST)
LOSS_KEY = paths.loss_record(REGION, Position(5), None)
MERGE_KEY = paths.merge_record(TableVersion(7), None)

CONTRACT = Contract(
    table_uuid="uuid-1",
    topic="orders",
    topic_id="AAAAAAAAQACAAAAAAAAAAQ",
    partitions=2,
    primary_key=("id", "day"),
    region_key=("id",),
    start=(-1, 12),
    columns=(
        Column(name="id", type="int64", field_ids=(0,)),
        Column(name="day", type="date32", field_ids=(1,)),
        Column(name="words", type="list<struct<a: int32, b: string>>", field_ids=(2, 3, 4, 5)),
    ),
)
_PART = FlushPart(
    region=REGION,
    generation=Generation(4),
    first=Position(10),
    next=Position(25),
    rows=2,
    deletes=Stretch(2, 300, 17),
    patches=None,
    keys_crc32c=12345,
    sealed_at_ms=1_700_000_000_000,
    record_times=RecordTimes(-1, 1_700_000_000_000),
)
FLUSH = Flush(
    FLUSH_KEY,
    3,
    ('{"id": 0, "files": [{"path": "a.lance", "fields": [0, 1]}], "physical_rows": 3}',),
    (_PART, replace(_PART, region=Region("orders", REGION.topic_id, 9), rows=1, patches=Stretch(1, 70, 3))),
)
MARKS = {
    REGION: Watermark(Generation(4), Position(25)),
    Region("a.b", TopicId("t"), 0): Watermark(Generation(1), Position(0)),
}
MERGE = InForce(TableVersion(6), "merge-uuid", MARKS)
CONFLICTS = ConflictsRef("0badcafe", 1234, "0f" * 32, 3)
MERGE_WITH_CONFLICTS = replace(MERGE, conflicts=CONFLICTS)
RECEIPT = Receipt(TableUuid("uuid-1"), TableVersion(7), {REGION: Position(25)}, "/tables/t", 2)

# -- what a JSON value may be instead ------------------------------------------------------------------------------

DEEP = 100_000
hostile: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        2**31,
        2**63 - 1,
        2**63,
        2**64,
        10**30,
        0.5,
        1.0,
        1e308,
        math.inf,
        -math.inf,
        math.nan,
        "",
        "x",
        "1",
        "..",
        "../../x",
        "%2e%2e/x",
        "a\x00b",
        "\ud800",
        "x" * 3000,
        "orders/AAAAAAAAQACAAAAAAAAAAQ/03",
        "orders/AAAAAAAAQACAAAAAAAAAAQ/ 3",
        "orders/AAAAAAAAQACAAAAAAAAAAQ/٣",
        "../x/0",
        "list<" * 2000,
        "fixed_size_list<float32>[99999999999]",
        "decimal128(" + "9" * 5000 + ", 0)",
        [],
        {},
        [[]],
        {"x": []},
        [None],
    ]
)
anything = hostile.map(copy.deepcopy) | st.integers(-(2**65), 2**65) | st.text(max_size=5) | st.floats()


@st.composite
def changed(draw: st.DrawFn, source: object) -> Any:
    """``source``, a JSON value, with one to three of its nodes replaced, dropped, doubled or given another name."""
    root: Any = [json.loads(json.dumps(source))]
    for _ in range(draw(st.integers(1, 3))):
        places = _places(root)
        owner, name = draw(st.sampled_from(places))
        if isinstance(owner, dict) and name in owner and draw(st.integers(0, 3)) == 0:
            value = owner.pop(name)
            if draw(st.booleans()):
                owner[draw(st.sampled_from(["", "x", "../../x/0", "format", str(name) + " "]))] = value
        elif (isinstance(owner, list) and isinstance(name, int) and name < len(owner)) or isinstance(owner, dict):
            owner[name] = draw(anything)
    return root[0]


def _places(node: Any) -> list[tuple[Any, Any]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found: list[tuple[Any, Any]] = []
    for name, value in inner:
        found += [(node, name), *_places(value)]
    return found


def canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def summed(content: object) -> bytes:
    """A manifest of a flush with this content and a checksum that matches."""
    return json.dumps({"flush": content, "crc32c": google_crc32c.value(canonical(content))}).encode()


# -- what must hold of each ----------------------------------------------------------------------------------------


def judge_contract(data: bytes) -> Contract | None:
    with memory_bound(64 * MIB):
        read = outcome(lambda: decode_contract(data, CONTRACT_KEY), CONTRACT_KEY)
    if read is not None:
        assert decode_contract(encode_contract(read), CONTRACT_KEY) == read
        for region in read.regions[:3]:
            page = Page.of(region, read.regions_per_page, None)
            assert paths.parse_page_version(paths.page_version(page, 1)) == (page, 1)
        assert read.rows.wal.names[-4:] == ["_offset", "_timestamp", "_op", "_present"]
    return read


def judge_flush(data: bytes) -> Flush | None:
    with memory_bound(64 * MIB):
        read = outcome(lambda: decode_flush(data, FLUSH_KEY), FLUSH_KEY)
    if read is not None:
        assert decode_flush(encode_flush(read), FLUSH_KEY) == read
        assert len({(part.region, part.generation) for part in read.parts}) == len(read.parts) > 0
        rows, ends = 0, dict.fromkeys(FlushFile, 0)
        for found in read.generations:
            assert 0 <= found.first <= found.next
            assert found.rows_from == rows
            rows += found.rows
            for file, side in ((FlushFile.DELETES, found.deletes), (FlushFile.PATCHES, found.patches)):
                if side is not None:
                    assert (side.key, side.start) == (paths.flush_file("0badcafe", file), ends[file])
                    assert min(side.rows, side.size) > 0
                    ends[file] += side.size
            assert min(found.rows, found.rows_bytes, found.contract_version, found.changes, found.nbytes) >= 0
        assert rows == sum(map(fragment_rows, read.fragments))
        assert max(ends.values()) <= 1 << 30
    return read


def judge_merge(data: bytes) -> InForce | None:
    with memory_bound(64 * MIB):
        read = outcome(lambda: decode_merge_record(data, MERGE_KEY), MERGE_KEY)
    if read is not None:
        assert decode_merge_record(encode_merge_record(read, "merge"), MERGE_KEY) == read
        sound_marks(dict(read.regions))
        assert 0 <= read.version <= 7
        assert read.conflicts is None or paths.parse_conflicts_object(read.conflicts.key) == read.conflicts.merge
    return read


def judge_marks(data: bytes) -> dict[Region, Watermark] | None:
    text = data.decode("utf-8", "surrogateescape")
    with memory_bound(64 * MIB):
        read = outcome(lambda: decode_watermarks(text, "transaction 7"), "transaction 7")
    if read is not None:
        assert decode_watermarks(encode_watermarks(read), "transaction 7") == read
        sound_marks(read)
    return read


def sound_marks(marks: dict[Region, Watermark]) -> None:
    for region, mark in marks.items():
        assert paths.parse_region(region.name) == region
        assert paths.region_prefix(region, None).startswith(f"{paths.ROOT}regions/{region.topic}/")
        assert isinstance(mark.generation, int)
        assert isinstance(mark.next, int)
        assert 0 <= mark.generation < 2**64
        assert 0 <= mark.next < 2**64


def judge_receipt(data: bytes) -> Receipt | None:
    """A receipt comes from a person: what is wrong with it is ``InvalidInput``."""
    with memory_bound(64 * MIB):
        try:
            read = receipt_of(pa.schema([], {METADATA_KEY: data}))
        except InvalidInput as error:
            message = str(error)
            read = None
        else:
            message = ""
    if read is None:
        assert "receipt" in message
        assert len(message) < MESSAGE_MAX
        return None
    assert Receipt.from_json(read.to_json()) == read
    assert read.version >= 1
    sound_marks({region: Watermark(Generation(1), position) for region, position in read.positions.items()})
    return read


def judge_loss(data: bytes) -> LossRecord | None:
    with memory_bound(64 * MIB):
        read = outcome(lambda: LossRecord.decode(data, LOSS_KEY), LOSS_KEY)
    if read is not None:
        assert LossRecord.decode(read.encode(), LOSS_KEY) == read
    return read


FACTS = MergeFacts(
    TableVersion(6),
    9,
    frozenset(["a.lance"]),
    {REGION: frozenset(["a.lance"])},
    {REGION: (Generation(1), Generation(4))},
    3,
    1,
    KeyDecision(REGION, 2, {REGION: 1}, CONFLICTS),
)


def judge_facts(data: bytes) -> MergeFacts | None:
    """Each property of the transaction once with this text."""
    text, read = data.decode("utf-8", "surrogateescape"), None
    for name in FACTS.properties():
        info = TransactionInfo("Update", 6, {**FACTS.properties(), name: text})
        with memory_bound(64 * MIB):
            found = outcome(lambda info=info: facts_of(info, TableVersion(7)), "table version 7")  # type: ignore[misc] # a default has no type
        if found is not None:
            assert facts_of(TransactionInfo("Update", 6, found.properties()), TableVersion(7)) == found
            assert all(1 <= first <= last for first, last in found.generations.values())
            read = found
    return read


GOOD: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "contract": (judge_contract, encode_contract(CONTRACT)),
    "flush": (judge_flush, encode_flush(FLUSH)),
    "merge": (judge_merge, encode_merge_record(MERGE, "merge")),
    "merge with conflicts": (judge_merge, encode_merge_record(MERGE_WITH_CONFLICTS, "merge")),
    "settled": (judge_facts, KeyDecision(REGION, 2, {REGION: 1}, CONFLICTS).to_json().encode()),
    "watermarks": (judge_marks, encode_watermarks(MARKS).encode()),
    "loss": (judge_loss, LossRecord.encode(LossRecord(first=5, next=9, accepted_at_ms=1, accepted_by="o"))),
    "facts": (judge_facts, json.dumps({REGION.name: [1, 4]}).encode()),
    "receipt": (judge_receipt, RECEIPT.to_json().encode()),
}
kinds = pytest.mark.parametrize("kind", GOOD)


@kinds
def test_the_objects_are_sound(kind: str) -> None:
    judge, data = GOOD[kind]
    assert judge(data) is not None


@kinds
@fuzz(60)
@given(data=st.binary(max_size=100))
def test_any_bytes(kind: str, data: bytes) -> None:
    GOOD[kind][0](data)


@kinds
@fuzz(80)
@given(draw=st.data())
def test_damaged_objects(kind: str, draw: st.DataObject) -> None:
    judge, data = GOOD[kind]
    judge(draw.draw(damaged([data])))


@kinds
@fuzz(150)
@given(draw=st.data())
def test_other_values_in_its_members(kind: str, draw: st.DataObject) -> None:
    judge, data = GOOD[kind]
    content = json.loads(data)
    if kind == "flush":
        judge(summed(draw.draw(changed(content["flush"]))))
    else:
        judge(json.dumps(draw.draw(changed(content))).encode())


@kinds
@pytest.mark.parametrize(
    "deep", [b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'"' + b"\\" * DEEP, b"9" * DEEP]
)
def test_deep_and_long_values(kind: str, deep: bytes) -> None:
    judge, data = GOOD[kind]
    assert judge(deep) is None
    name = next(iter(json.loads(data))).encode()
    assert judge(b'{"' + name + b'":' + deep + b"}") is None
    judge(data.rstrip()[:-1] + b',"more":' + deep + b"}")


def test_an_object_is_only_taken_under_its_own_key() -> None:
    for key in (paths.flush_file("0badcaff", FlushFile.MANIFEST), paths.flush_file("0badcafe", FlushFile.DELETES), "x"):
        with pytest.raises(ObjectCorrupt, match=key):
            decode_flush(GOOD["flush"][1], key)
    with pytest.raises(ObjectCorrupt, match="version 1"):
        decode_contract(GOOD["contract"][1], paths.contract_version(2, None))


def test_later_formats_are_named() -> None:
    later: dict[str, tuple[Callable[[bytes], object], bytes]] = {
        "contract": (
            lambda d: decode_contract(d, CONTRACT_KEY),
            GOOD["contract"][1].replace(b'"format": 1', b'"format": 9'),
        ),
        "loss": (lambda d: LossRecord.decode(d, LOSS_KEY), GOOD["loss"][1].replace(b'"format": 1', b'"format": 9')),
        "merge": (
            lambda d: decode_merge_record(d, MERGE_KEY),
            GOOD["merge"][1].replace(b'"format": "1"', b'"format": "9"'),
        ),
        "flush": (
            lambda d: decode_flush(d, FLUSH_KEY),
            summed({**json.loads(GOOD["flush"][1])["flush"], "format": 9, "parts": "of another kind"}),
        ),
    }
    for read, data in later.values():
        with pytest.raises(FormatUnknown, match="9"):
            read(data)


WORDS = "int64 string list struct decimal128 timestamp fixed_size_list float32 uint8 us UTC a 0 2 38 99999999999 ٣"
tokens = st.sampled_from([*WORDS.split(), *"<>[](),: "])


@fuzz(300)
@given(st.lists(tokens, max_size=14).map("".join) | st.text(max_size=20))
def test_column_types(text: str) -> None:
    try:
        found = parse_type(text)
    except InvalidSchema as error:
        message = str(error)
    else:
        assert parse_type(format_type(found)) == found
        return
    assert repr(text)[:20] in message
    assert len(message) < MESSAGE_MAX


@pytest.mark.parametrize("text", ["list<" * DEEP, "struct<a: " * DEEP, "decimal128(" + "9" * DEEP, "x" * DEEP])
def test_column_types_without_end(text: str) -> None:
    with memory_bound(64 * MIB), pytest.raises(InvalidSchema) as raised:
        parse_type(text)
    assert len(str(raised.value)) < MESSAGE_MAX
