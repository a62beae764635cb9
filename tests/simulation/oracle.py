"""What the rows must be: records as a producer makes them, and their fold by a plain dict.

Nothing here uses lancewal's own fold or decoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

import pyarrow as pa

from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import Op

Headers = list[tuple[str, bytes | None]] | None
Values = Mapping[str, object]

COLUMNS = {"k": "int64", "a": "string", "b": "int64"}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic, and what it means: ``op`` is None for one that is no row."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: Headers
    op: Op | None
    k: int
    values: Values
    passed_over: bool = False
    """Whether a record that is no row is not bad either."""

    @property
    def bad(self) -> bool:
        """Whether an entry lists it."""
        return self.op is None and not self.passed_over


@dataclass(frozen=True, slots=True)
class KeyState:
    """What a sequence of operations makes of a key.  A ``partial`` has only the values that its patches set."""

    kind: Literal["row", "gone", "partial"]
    values: tuple[tuple[str, object], ...]

    @staticmethod
    def of(kind: Literal["row", "gone", "partial"], values: Values) -> KeyState:
        return KeyState(kind, tuple(sorted(values.items())))


NULLS: Values = {"a": None, "b": None}


def draw(
    rng: Random,
    offset: int,
    timestamp: int,
    key: bytes,
    k: int,
    patches: bool = True,
    types: Mapping[str, str] = COLUMNS,
) -> Record:
    """Some record of a key, with columns of these types."""
    kind = rng.random()
    if kind < 0.03:
        # By the offset, not by chance: what is drawn behind it stays as it is.
        misspelt: Headers = [("lancewal.Op", b"delete")]
        cut: Headers = [("lancewal.kind", b"too_large"), ("lancewal.value.bytes", b"2000000")]
        bad: list[tuple[bytes | None, Headers]] = [
            (b"{oops", None),
            (b"[]", None),
            (b'{"k": null}', None),
            (json.dumps({"k": k}).encode(), misspelt) if offset % 2 else (None, cut),
        ]
        return Record(offset, timestamp, key, *rng.choice(bad), None, k, {})
    if kind < 0.2:
        delete: list[tuple[str, bytes | None]] = [("lancewal.op", b"delete")]
        value = None if kind < 0.1 else json.dumps({"k": k}).encode()
        return Record(offset, timestamp, key, value, None if value is None else delete, Op.DELETE, k, {})
    values: dict[str, object] = {"a": f"{key.decode()}@{offset}", "b": offset if rng.random() < 0.8 else None}
    if types is not COLUMNS:
        values = {n: _value(rng, n, parse_type(t), offset) for n, t in types.items() if n != "k"}
    for name in [name for name in values if rng.random() < 0.3]:
        del values[name]
    value = json.dumps({"k": k, **values}).encode()
    if kind < 0.6 or not patches:
        nulls = NULLS if types is COLUMNS else {}
        return Record(offset, timestamp, key, value, None, Op.UPSERT, k, {**nulls, **values})
    return Record(offset, timestamp, key, value, [("lancewal.op", b"patch")], Op.PATCH, k, values)


def _value(rng: Random, name: str, type_: pa.DataType, offset: int) -> object:
    """Some value of a column or member: an integer of 64 bits may be one that 32 bits do not hold."""
    kind = rng.random()
    if kind < 0.1:
        return None
    if pa.types.is_struct(type_):
        return {f.name: _value(rng, f.name, f.type, offset) for f in type_ if rng.random() < 0.8}
    if pa.types.is_list(type_):
        return [_value(rng, name, type_.value_type, offset) for _ in range(rng.randint(0, 2))]
    if pa.types.is_string(type_):
        return f"{name}@{offset}"
    return offset + (1 << 40 if pa.types.is_int64(type_) and kind < 0.3 else 0)


def upsert(offset: int, timestamp: int, key: bytes, k: int) -> Record:
    """A record that sets every column."""
    values: dict[str, object] = {"a": f"{key.decode()}@{offset}", "b": offset}
    return Record(offset, timestamp, key, json.dumps({"k": k, **values}).encode(), None, Op.UPSERT, k, values)


def fold(records: Iterable[Record], nulls: Values = NULLS) -> dict[int, KeyState]:
    """State of each key that these records touch, beginning with nothing known.  ``nulls``: of a row that a patch makes."""
    states: dict[int, KeyState] = {}
    for record in records:
        before = states.get(record.k)
        match record.op:
            case None:
                continue
            case Op.UPSERT:
                states[record.k] = KeyState.of("row", record.values)
            case Op.DELETE:
                states[record.k] = KeyState.of("gone", {})
            case Op.PATCH if before is None:
                states[record.k] = KeyState.of("partial", record.values)
            case Op.PATCH if before.kind == "gone":
                states[record.k] = KeyState.of("row", {**nulls, **record.values})
            case Op.PATCH:
                states[record.k] = KeyState.of(before.kind, {**dict(before.values), **record.values})
    return states


def rows(records: Iterable[Record], before: Mapping[int, Values] | None = None) -> dict[int, Values]:
    """The rows of a table that had the rows ``before`` these records; by default it was empty."""
    found = dict(before or {})
    for k, state in fold(records).items():
        base = found.pop(k, NULLS)
        if state.kind != "gone":
            found[k] = {**(base if state.kind == "partial" else NULLS), **dict(state.values)}
    return found
