"""A table with a column of every type, and both ways to decode records of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.headers import ASIDE
from lancewal_ingest.decode.json import decoder as decoder_module
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.json.foreign import wrong_format
from lancewal_ingest.decode.json.growth import JsonGrowth
from lancewal_ingest.decode.json.reference import ReferenceDecoder
from lancewal_ingest.decode.json.strict import with_texts
from lancewal_ingest.decode.naming import PLAIN, Naming, OtherName
from lancewal_ingest.decode.outcomes import Decoded, Refusal
from lancewal_ingest.decode.record_keys import GivenKeys
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    NamesNoSchema,
    Ops,
    Places,
    ValueDecoder,
)
from lancewal_kafka.headers import HeaderList
from lancewal_kafka.records import Records

Header = tuple[str, bytes | None]

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("ok", pa.bool_()),
        ("i8", pa.int8()),
        ("i32", pa.int32()),
        ("u8", pa.uint8()),
        ("u64", pa.uint64()),
        ("f", pa.float64()),
        ("f4", pa.float32()),
        ("dec", pa.decimal128(5, 2)),
        ("wide", pa.decimal128(38, 30)),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("at_s", pa.timestamp("s", tz="Europe/Berlin")),
        ("local", pa.timestamp("ms")),
        ("fine", pa.timestamp("ns")),
        ("ints", pa.list_(pa.int32())),
        ("days", pa.list_(pa.date32())),
        ("floats", pa.list_(pa.float32())),
        ("st", pa.struct([("x", pa.int64()), ("day", pa.date32()), ("_", pa.string())])),
        ("sts", pa.list_(pa.struct([("f", pa.float64()), ("bin", pa.binary())]))),
        ("vec", pa.list_(pa.float32(), 2)),
        ("vec8", pa.list_(pa.float64(), 3)),
        ("bits", pa.list_(pa.uint8(), 2)),
        ("fix", pa.binary(3)),
        ("uid", pa.uuid()),
        ("t32", pa.time32("ms")),
        ("t32s", pa.time32("s")),
        ("t64", pa.time64("us")),
        ("t64n", pa.time64("ns")),
        ("took", pa.duration("us")),
        ("ls", pa.large_string()),
        ("lb", pa.large_binary()),
        ("fixes", pa.list_(pa.binary(3))),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("days_of", pa.map_(pa.string(), pa.list_(pa.date32()))),
        (
            "deep",
            pa.struct(
                [
                    (
                        "m",
                        pa.map_(pa.string(), pa.struct([("x", pa.int8()), ("mm", pa.map_(pa.string(), pa.float32()))])),
                    ),
                    ("s", pa.string()),
                ]
            ),
        ),
        ("all", pa.list_(pa.map_(pa.string(), pa.string()))),
        ("sty", pa.struct([("t", pa.time64("us")), ("u", pa.large_string()), ("d", pa.duration("ns"))])),
    ]
)
ROWS = RowSchema(COLUMNS, primary_key=("id", "k"), region_key=("k",))


def kafka_key(key: bytes) -> tuple[object, ...] | None:
    """``<id>|<k>``, which is enough to test with."""
    number, bar, name = key.partition(b"|")
    return (int(number), name.decode()) if bar and number.isdigit() else None


class KafkaKeys(NamesNoSchema):
    """Keys that a function decodes, and that are not compared with rows."""

    headers = ()
    growth = None

    def __init__(self, decode: Callable[[bytes], tuple[object, ...] | None]) -> None:
        self._decode = decode

    def deleted(self, given: GivenKeys) -> list[tuple[object, ...] | Refusal | None]:
        return [None if key is None else self._decode(key) for key in given.keys]

    def wrong(self, given: GivenKeys, rows: pa.RecordBatch) -> dict[int, Refusal]:
        return {}


def records(
    values: Sequence[bytes | None],
    *,
    headers: Sequence[list[Header] | None] | None = None,
    keys: Sequence[bytes | None] | None = None,
) -> Records:
    """Records at offsets 100, 103, 106, ... with timestamps from 5,000 ms."""
    n = len(values)
    return Records(
        offsets=[100 + 3 * i for i in range(n)],
        timestamps=[5_000 + i for i in range(n)],
        keys=list(keys or [None] * n),
        values=list(values),
        headers=list(headers or [None] * n),
    )


class Singly(NamesNoSchema):
    """The reference path alone."""

    def __init__(self, rows: RowSchema, naming: Naming = PLAIN) -> None:
        rows = rows.called(naming.fields)
        self.names = naming.in_values(rows).columns.names
        self.growth = JsonGrowth(rows)
        self.headers: Sequence[str] = ()
        self._texts = decoder_module._names_of_texts(naming)
        self._reference = ReferenceDecoder(rows, naming, Defaults(rows, naming).cells)

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        others = Counter[OtherName]()
        values = [with_texts(value, self._texts) or value for value in values]
        part, refused = self._reference.decode(values, ops, range(len(values)), others)
        return DecodedValues([part], refused, others)

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        return wrong_format(value, headers, self.names)


@dataclass(frozen=True, slots=True)
class Ways:
    """The decoder under test, and the reference path alone, with the same settings."""

    patches: bool = True
    record_bytes_max: int = 10_000_000
    rows: RowSchema = ROWS
    naming: Naming = PLAIN

    def decoder(self, values: ValueDecoder | None = None) -> Decoder:
        return Decoder(
            self.rows,
            values or JsonDecoder(self.rows, self.naming),
            patches=self.patches,
            record_bytes_max=self.record_bytes_max,
            keys=KafkaKeys(kafka_key),
        )

    def reference(self, batch: Records) -> Decoded:
        """Each record is looked at by itself, and each value decoded by itself."""
        with mock.patch.object(
            Decoder, "_plain_ops", lambda _, records, headers: np.full(len(records), ASIDE, np.uint8)
        ):
            return self.decoder(Singly(self.rows, self.naming)).decode(batch)

    def both(self, batch: Records, *, singly_max: int = 1) -> Decoded:
        """Decode both ways, assert that they agree, and give the result.

        With ``singly_max`` 1 every record that Arrow can read alone is read by Arrow.
        """
        with mock.patch.object(decoder_module, "SINGLY_MAX", singly_max):
            fast = self.decoder().decode(batch)
        slow = self.reference(batch)
        fast.rows.validate(full=True)
        assert fast.rejected == slow.rejected
        assert fast.other_names == slow.other_names
        assert fast.passed_over == slow.passed_over == {}
        assert fast.rows.schema.equals(slow.rows.schema)
        assert cells(fast.rows) == cells(slow.rows)
        accounted = fast.rows["_offset"].to_pylist() + [bad.offset for bad in fast.rejected]
        assert sorted(accounted) == batch.offsets
        return fast


def cells(rows: pa.RecordBatch) -> str:
    """All cells as text, in which -0.0 is not 0.0."""
    columns = {}
    for field in rows.schema:
        column = rows[field.name]
        if pa.types.is_timestamp(field.type):
            # Python has no nanoseconds.
            column = column.cast(pa.int64())
        columns[field.name] = column.to_pylist()
    return repr(columns)
