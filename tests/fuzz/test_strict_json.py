"""All stored JSON is read by one set of rules: what is no integer is none, no name stands twice, and bytes are UTF-8.

Each integer of a sound object is replaced by what looks like it, and each member is written a second time as it is: whichever
object it is, that is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, ObjectCorrupt
from lancewal_core.keys.catalog import decode_catalog
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names.ids import Generation, Position, TableVersion
from lancewal_core.region.flushes.manifest import decode_flush
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.table.conflicts_ref import ConflictsRef, decode_ref
from lancewal_core.table.contract import decode_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.subscriptions.stored import StoredSubscription, SubscriptionNames
from lancewal_core.table.watermarks import decode_merge_record, decode_watermarks, encode_watermarks
from lancewal_flusher.commit.facts import KeyDecision, MergeFacts, facts_of
from lancewal_flusher.commit.row_origins import PROPERTY_KEY_REGIONS, read_spans, region_properties
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.unmerged.left_out import METADATA_KEY, LeftOut, left_out_of, with_left_out
from tests.fuzz.test_every_kind import SEALED
from tests.golden import core_formats as core
from tests.golden import json_formats as texts
from tests.support.stored_objects import SOUND

REF = ConflictsRef("0badcafe", 1234, "0f" * 32, 3)
FACTS = MergeFacts(
    TableVersion(6),
    9,
    frozenset(["a.lance"]),
    {core.NORTH: frozenset(["a.lance"])},
    {core.NORTH: (Generation(1), Generation(4))},
    3,
    1,
    KeyDecision(core.NORTH, 2, {core.SOUTH: 1}, REF),
)
PROPERTIES = FACTS.properties()
SPANS = region_properties(
    {"a.lance": [(MergedFrom(core.NORTH, Position(7)), 3), (MergedFrom(core.SOUTH, Position(2)), 1)]}
)


@dataclass(frozen=True, slots=True)
class Stored:
    """``read`` takes the bytes in which ``content`` is stored, as ``sealed`` makes them."""

    read: Callable[[bytes], object]
    content: bytes
    sealed: Callable[[bytes], bytes] = bytes


def of_kind(kind: str, decode: Callable[[bytes, str], object], at: int = 0) -> Stored:
    sound = SOUND[kind]
    unsealed, sealed = SEALED.get(kind, (bytes, bytes))
    return Stored(lambda data: decode(data, sound.key), unsealed(sound.objects[at]), sealed)


def of_catalog(at: int) -> Stored:
    unsealed, sealed = SEALED["key catalog"]
    found = of_kind("key catalog", decode_catalog, at)
    return Stored(found.read, unsealed(SOUND["key catalog"].objects[at]) + b"}", lambda data: sealed(data[:-1]))


def of_property(name: str) -> Stored:
    def read(data: bytes) -> object:
        return facts_of(TransactionInfo("Update", 6, {**PROPERTIES, name: data.decode()}), TableVersion(7))

    return Stored(read, PROPERTIES[name].encode())


STORED: dict[str, Stored] = {
    "contract": of_kind("contract", decode_contract),
    "control": of_kind("control", Control.decode),
    "drain": of_kind("drain", Drain.decode),
    "subscription": of_kind("subscription", StoredSubscription.decode),
    "subscriptions": of_kind("list of subscriptions", SubscriptionNames.decode),
    "loss": of_kind("accepted loss", LossRecord.decode),
    "loss of a segment": of_kind("accepted loss", LossRecord.decode, at=1),
    "load": of_kind("beginning of a load", LoadRecord.decode),
    "catalog": of_catalog(0),
    "catalog with regions": of_catalog(1),
    "snapshot": of_kind("flush", decode_flush),
    "snapshot, repaired": of_kind("flush", decode_flush, at=1),
    "merge record": of_kind("merge record", decode_merge_record),
    "receipt": Stored(Receipt.from_json, texts.RECEIPT_LEFT_OUT.to_json().encode()),
    "left out": Stored(
        lambda data: left_out_of(pa.schema([], {METADATA_KEY: data})),
        (with_left_out(pa.schema([]), LeftOut(2, 1, (0, 3))).metadata or {})[METADATA_KEY],
    ),
    "watermarks": Stored(
        lambda data: decode_watermarks(data.decode(), "7"), encode_watermarks(texts.IN_FORCE.regions).encode()
    ),
    "conflicts": Stored(lambda data: decode_ref(data.decode(), "7"), REF.to_json().encode()),
    "key regions": Stored(
        lambda data: read_spans(TransactionInfo("Update", 6, {PROPERTY_KEY_REGIONS: data.decode()}), 7),
        SPANS[PROPERTY_KEY_REGIONS].encode(),
    ),
    **{name: of_property(name) for name in PROPERTIES},
}
stored = pytest.mark.parametrize("stored", STORED.values(), ids=STORED)


def spoiled(node: object) -> Iterator[str]:
    """The text of a JSON value with one thing wrong in it, each in turn."""
    if isinstance(node, dict):
        members = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in node.items()]
        for at, (name, value) in enumerate(node.items()):
            yield f"{{{', '.join([*members, members[at]])}}}"
            for other in spoiled(value):
                yield f"{{{', '.join([*members[:at], f'{json.dumps(name)}: {other}', *members[at + 1 :]])}}}"
    elif isinstance(node, list):
        items = [json.dumps(value) for value in node]
        for at, value in enumerate(node):
            for other in spoiled(value):
                yield f"[{', '.join([*items[:at], other, *items[at + 1 :]])}]"
    elif isinstance(node, bool):
        yield from (f"{int(node)}", f'"{node}"')
    elif isinstance(node, int):
        yield from (f'"{node}"', f"{node}.0", "true", "NaN")


@stored
def test_what_only_looks_like_it_is_refused(stored: Stored) -> None:
    stored.read(stored.sealed(stored.content))
    wrong = list(spoiled(json.loads(stored.content)))
    for text in wrong:
        with pytest.raises((ObjectCorrupt, InvalidInput)):
            assert stored.read(stored.sealed(text.encode())) is None, text
    assert wrong or json.loads(stored.content) == ["a.lance"]


@pytest.mark.parametrize(
    "name", ["contract", "control", "loss", "load", "drain", "subscription", "merge record", "receipt"]
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_bytes_are_utf_8(name: str, encoding: str) -> None:
    found = STORED[name]
    with pytest.raises((ObjectCorrupt, InvalidInput)):
        found.read(found.content.decode().encode(encoding))
