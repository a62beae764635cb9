"""Hostile payloads, decoded in a process of their own: it prints what became of each, and what it cost.

``python -m tests.ingest.decode.framed.protobuf.hostile``
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from lancewal_ingest.decode.naming import Names, Naming
from tests.ingest.decode.framed.hostile import Hostile, decode_all
from tests.ingest.decode.framed.protobuf.cases import HEAD, decoder, tagged, varint

NBYTES = 300_000
"""Bytes of a large payload."""
PAIR = pa.struct([("a", pa.int32()), ("s", pa.string())])
DEEP = 12
"""Levels of the structs of a column."""


class Case(NamedTuple):
    name: str
    field: str
    column: pa.DataType | None
    """None: the field is passed over."""
    data: bytes
    kind: str | None
    """The kind of the refusal; None if it is a row."""


def nested(levels: int) -> pa.DataType:
    column = PAIR
    for _ in range(levels):
        column = pa.struct([("t", column), ("s", pa.string())])
    return column


def within(levels: int, data: bytes) -> bytes:
    for _ in range(levels):
        data = tagged(1, 2, data)
    return data


def cases() -> Iterator[Case]:
    many = NBYTES // 2
    strings, numbers, pairs = "repeated string v = 2;", "repeated int64 v = 2;", "repeated Pair v = 2;"
    yield Case("very many empty texts", strings, pa.list_(pa.string()), tagged(2, 2) * many, None)
    yield Case("very many empty messages", pairs, pa.list_(PAIR), tagged(2, 2) * many, None)
    yield Case(
        "a message in very many pieces", "Pair v = 2;", PAIR, tagged(2, 2, tagged(1, 0, b"\1")) * (NBYTES // 4), None
    )
    yield Case("very many numbers in one run", numbers, pa.list_(pa.int64()), tagged(2, 2, b"\1" * NBYTES), None)
    yield Case("very many numbers with tags", numbers, pa.list_(pa.int64()), tagged(2, 0, b"\1") * many, None)
    yield Case("very many empty runs", numbers, pa.list_(pa.int64()), tagged(2, 2) * many, None)
    yield Case(
        "numbers of 10 bytes", numbers, pa.list_(pa.int64()), tagged(2, 2, (b"\xff" * 9 + b"\1") * (NBYTES // 10)), None
    )
    yield Case("very many booleans", "repeated bool v = 2;", pa.list_(pa.bool_()), tagged(2, 2, b"\1" * NBYTES), None)
    yield Case("very many names", "repeated Kind v = 2;", pa.list_(pa.string()), tagged(2, 2, b"\0" * NBYTES), None)
    yield Case("very many floats with tags", "repeated float v = 2;", pa.list_(pa.float32()),
               tagged(2, 5, b"\0" * 4) * (NBYTES // 5), None)  # fmt: skip
    yield Case("a value again and again", "optional int64 v = 2;", pa.int64(), tagged(2, 0, b"\1") * many, None)
    yield Case(
        "members of a oneof in turn",
        "oneof o { Pair v = 2; int32 w = 3; }",
        PAIR,
        (tagged(2, 2) + tagged(3, 0, b"\1")) * (NBYTES // 4) + tagged(2, 2),
        None,
    )
    yield Case("a number of very many bytes", "optional int64 v = 2;", pa.int64(), tagged(2, 0) + b"\x80" * NBYTES,
               "malformed")  # fmt: skip
    yield Case("a tag of very many bytes", "optional int64 v = 2;", pa.int64(), b"\x80" * NBYTES, "malformed")
    for length in (2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1):
        for field, column in ((strings, pa.list_(pa.string())), (numbers, pa.list_(pa.int64())), ("Pair v = 2;", PAIR)):
            data = varint(2 << 3 | 2) + varint(length) + b"x" * 100
            yield Case(f"a length of {length} of {field[:14]}", field, column, data, "malformed")
    yield Case("very many unknown numbers", "optional int64 v = 2;", pa.int64(),
               b"".join(tagged(number, 0, b"\1") for number in range(20, 20 + NBYTES // 5)), None)  # fmt: skip
    yield Case("groups, deep", "optional int64 v = 2;", pa.int64(), tagged(9, 3) * NBYTES, "too_deep")
    yield Case("very many groups", "optional int64 v = 2;", pa.int64(), (tagged(9, 3) + tagged(9, 4)) * many, None)
    yield Case("a tree in a tree, passed over", "Tree v = 2;", None, tagged(2, 2, within(10_000, b"")), None)
    levels = tagged(2, 2, within(DEEP, tagged(2, 2, b"x" * NBYTES)))
    yield Case("messages in messages", "Tree v = 2;", nested(DEEP - 1), levels, None)
    lists = pa.list_(pa.struct([("l", pa.list_(pa.struct([("l", pa.list_(PAIR))])))]))
    few = tagged(1, 2, tagged(1, 2) * 50) * 50
    yield Case("lists in lists in lists", "repeated Lists v = 2;", lists, tagged(2, 2, few) * 50, None)
    yield Case("messages of very many fields", "repeated Wide v = 2;", pa.list_(PAIR),
               tagged(2, 2, tagged(1, 0, b"\1")) * (NBYTES // 4), None)  # fmt: skip
    yield Case("a map of very many empty entries", "map<string, int64> v = 2;", pa.map_(pa.string(), pa.int64()),
               tagged(2, 2) * many, "duplicate_member")  # fmt: skip
    yield Case("a map of very many keys", "map<string, int64> v = 2;", pa.map_(pa.string(), pa.int64()),
               b"".join(tagged(2, 2, tagged(1, 2, b"%d" % number)) for number in range(NBYTES // 9)), None)  # fmt: skip
    yield Case("a text that is wrong in the end", "string v = 2;", pa.string(),
               tagged(2, 2, "ż".encode() * (NBYTES // 2) + b"\xc5"), "malformed")  # fmt: skip
    yield Case("packed numbers passed over", "repeated int64 v = 2;", None, tagged(2, 2, b"\x80" * NBYTES), None)


def ignoring(type_: pa.DataType) -> Names | None:
    """Names of a struct that pass over all others."""
    if pa.types.is_list(type_):
        return ignoring(type_.value_type)
    if not pa.types.is_struct(type_):
        return None
    return Names({member.name: ignoring(member.type) for member in type_}, ignores=True)


def made(case: Case) -> Hostile:
    columns = [pa.field("id", pa.int64())] + ([] if case.column is None else [pa.field("v", case.column)])
    naming = Naming(Names({field.name: ignoring(field.type) for field in columns}, ignores=True))
    messages = "message Pair { int32 a = 1; string s = 2; } message Tree { Tree t = 1; string s = 2; }"
    messages += "message Lists { repeated Inner l = 1; message Inner { repeated Pair l = 1; } }"
    more = "".join(f"int32 f{number} = {number};" for number in range(3, 10_000))
    messages += f"message Wide {{ int32 a = 1; string s = 2; {more} }}"
    text = HEAD.format(syntax="proto3") + f"{messages} message Row {{ int64 id = 1; {case.field} }}"
    return Hostile(case.name, decoder(text, pa.schema(columns), naming), b"\x08\1" + case.data, case.column is not None)


if __name__ == "__main__":
    decode_all(map(made, cases()))
