"""Hostile datums, decoded in a process of their own: it prints what became of each, and what it cost.

``python -m tests.ingest.decode.avro.hostile``
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from lancewal_ingest.decode.avro.decoder import AvroPayloads
from lancewal_ingest.decode.naming import Names, Naming
from tests.ingest.decode.avro.cases import decoder, number, record
from tests.ingest.decode.framed.hostile import Hostile, decode_all

NBYTES = 300_000
"""Bytes of a large datum."""
EMPTY = {"type": "record", "name": "Empty", "fields": []}
STRINGS = pa.list_(pa.string())


class Case(NamedTuple):
    name: str
    type: Any
    column: pa.DataType | None
    """None: the field is passed over."""
    data: bytes
    kind: str | None
    """The kind of the refusal; None if it is a row."""


def nested(name: str, *types: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{n}", "type": type_} for n, type_ in enumerate(types)],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def doubling(last: Any) -> dict[str, Any]:
    """A record of two records of two records and so on: a short schema of 2^40 values."""
    found = nested("D0", last, last)
    for level in range(1, 40):
        found = nested(f"D{level}", found, f"D{level - 1}")
    return found


def cases() -> Iterator[Case]:
    tree = nested("Tree", ["null", "Tree"])
    yield Case("20 million empty records", array(EMPTY), None, number(20_000_000) + b"\0", "malformed")
    yield Case(
        "20 million empty records in a list",
        array(EMPTY),
        pa.list_(pa.struct([("a", pa.int8())])),
        number(20_000_000) + b"\0",
        "malformed",
    )
    yield Case(
        "as many nulls as bytes, again and again", array("null"), None, (number(400_000) + b"") * 300_000, "malformed"
    )
    yield Case("5,000 deep", tree, None, b"\2" * 5000 + b"\0", "too_deep")
    yield Case("very deep", tree, None, b"\2" * NBYTES + b"\0", "too_deep")
    yield Case("arrays 5,000 deep", nested("T", array("T")), None, b"\2" * 5000 + b"\0" * 5000, "too_deep")
    yield Case(
        "maps 5,000 deep", nested("T", {"type": "map", "values": "T"}), None, b"\2\0" * 5000 + b"\0" * 5000, "too_deep"
    )
    yield Case("a record within itself", nested("T", "T"), None, b"\0" * 100, "too_deep")
    yield Case("a record within itself and more", nested("T", "int", "T"), None, b"\0" * NBYTES, "too_deep")
    yield Case("2^40 nulls", doubling("null"), None, b"", None)
    yield Case("2^40 integers", doubling("int"), None, b"\0" * NBYTES, "malformed")
    yield Case("2^40 lists", doubling(array("int")), None, b"\0" * NBYTES, "malformed")
    yield Case("an integer of very many bytes", "long", pa.int64(), b"\x80" * NBYTES, "malformed")
    yield Case("a length of 2^62", "string", pa.string(), number(2**62) + b"x" * 100, "malformed")
    yield Case("a length of -2^63", "bytes", pa.binary(), number(-(2**63)), "malformed")
    for count in (2**31, 2**62, -(2**62), -(2**63), 2**63 - 1):
        for items, column in (
            ("int", pa.list_(pa.int32())),
            ("float", pa.list_(pa.float32())),
            ("string", STRINGS),
            (EMPTY, None),
        ):
            yield Case(
                f"{count} items of {items!r:.9}", array(items), column, number(count) + b"\0" * 1000, "malformed"
            )
    yield Case("many empty texts", array("string"), STRINGS, number(150_000) + b"\0" * 150_001, None)
    yield Case(
        "many empty texts, one too few",
        array("string"),
        STRINGS,
        number(150_000) + b"\0" * 150_000,
        "malformed",
    )
    yield Case("very many integers", array("int"), pa.list_(pa.int64()), number(NBYTES) + b"\2" * NBYTES + b"\0", None)
    yield Case(
        "very many integers in blocks", array("int"), pa.list_(pa.int64()), b"\2\2" * (NBYTES // 2) + b"\0", None
    )
    yield Case(
        "integers of 10 bytes",
        array("long"),
        pa.list_(pa.int64()),
        number(10**5) + (b"\xff" * 9 + b"\1") * 10**5 + b"\0",
        None,
    )
    yield Case("very many nulls", array(["null", "string"]), STRINGS, number(NBYTES) + b"\0" * NBYTES + b"\0", None)
    structs = pa.list_(pa.struct([("f0", pa.int8()), ("f1", pa.string())]))
    pair = nested("P", "int", "null")
    yield Case("very many structs", array(pair), structs, number(NBYTES) + b"\2" * NBYTES + b"\0", None)
    yield Case(
        "very many structs in a struct",
        nested("O", array(pair)),
        pa.struct([("f0", structs)]),
        number(NBYTES) + b"\2" * NBYTES + b"\0",
        None,
    )
    lists = pa.list_(pa.list_(pa.int8()))
    yield Case("very many empty lists", array(array("int")), lists, number(NBYTES) + b"\0" * NBYTES + b"\0", None)
    yield Case("very many texts passed over", array("string"), None, number(NBYTES) + b"\0" * NBYTES + b"\0", None)
    yield Case(
        "very many keys passed over",
        {"type": "map", "values": "null"},
        None,
        number(NBYTES) + b"\0" * NBYTES + b"\0",
        None,
    )
    wide = nested("W", *["null"] * 2000, "int")
    yield Case("records of many nulls", array(wide), None, number(NBYTES) + b"\2" * NBYTES + b"\0", None)
    few = number(50) + b"\0" * 50 + b"\0"
    few = number(50) + few * 50 + b"\0"
    deep = pa.list_(pa.list_(pa.list_(pa.string())))
    yield Case("lists in lists in lists", array(array(array("string"))), deep, number(50) + few * 50 + b"\0", None)
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    yield Case("a decimal of very many bytes", decimal, pa.decimal128(38, 2), number(NBYTES) + b"\1" * NBYTES, "range")
    yield Case(
        "a text that is wrong in the end",
        "string",
        pa.string(),
        number(NBYTES) + "ż".encode() * (NBYTES // 2 - 1) + b"\xc5x",
        "malformed",
    )


def made(case: Case) -> AvroPayloads:
    columns = [pa.field("id", pa.int64())] + ([] if case.column is None else [pa.field("v", case.column)])
    naming = Naming(Names({field.name: None for field in columns}, ignores=True)) if case.column is None else Naming()
    return decoder(record([("id", "long"), ("v", case.type)]), pa.schema(columns), naming)


def main() -> None:
    decode_all(Hostile(case.name, made(case), b"\2" + case.data, case.column is not None) for case in cases())


if __name__ == "__main__":
    main()
