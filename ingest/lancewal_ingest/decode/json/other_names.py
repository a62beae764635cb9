"""Values that use other names than the present ones, on the fast path.

Arrow's reader is given the former names as fields of their own, and skips all others.  So it does not see a name that
must be refused.  Therefore orjson reads each value first:

1. A value that orjson refuses, or that is not an object, is *doubtful*: the reference path decides on it.  Each other
   value is one JSON object, so the proof of ``columnar`` holds although Arrow refuses no unknown member.
2. A value is doubtful if one of its names is refused, or if it has two names of one column or member.  Names are
   examined at all levels.
3. A member that is passed over is not examined: it may hold any JSON, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_ingest.decode.json.strict import DEPTH_MAX
from lancewal_ingest.decode.json.transport import transport_type
from lancewal_ingest.decode.naming import Names, OtherName

Used = tuple[OtherName, ...]
_KEPT = 1024
"""Maximum number of cached sequences of member names.  There are few producers, and each writes few sequences."""
_KEPT_BYTES = 1 << 20
"""Maximum memory of the names in the cache, in bytes.  Values may have names that no other value has, and many of
them."""
_NAME_BYTES = 150
"""Memory of a name and its use in the cache, in bytes, in addition to its characters."""


def members_of(value: bytes) -> dict[str, Any] | None:
    """Return the members of an object, as orjson parses it: a repeated name has its last value.  Return None if the
    reference path must read the value.
    """
    try:
        members = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return members if isinstance(members, dict) else None


class NameReader:
    """Reader of the former, dropped and unknown names that values use."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._nested = any(inner is not None for inner in names.present.values())
        self._known: dict[tuple[str, ...], Used | None] = {}
        self._room = _KEPT_BYTES

    def read(self, value: bytes) -> Used | None:
        """Return the names in a value that are not present names; None if the value is doubtful."""
        if value.count(b"[") + value.count(b"{") > DEPTH_MAX:
            return None
        members = members_of(value)
        if members is None:
            return None
        names = tuple(members)
        if names in self._known:
            used = self._known[names]
        else:
            used = _used(self._names, names)
            nbytes = sum(map(len, names)) + _NAME_BYTES * len(names)
            if len(self._known) < _KEPT and nbytes <= self._room:
                self._known[names] = used
                self._room -= nbytes
        if used is None or not self._nested:
            return used
        try:
            return used + tuple(_within(self._names, members, ""))
        except _Doubtful:
            return None


def other_names(names: Names, members: Mapping[str, object]) -> Used:
    """Return the names that are not present names, from the members of a value that is a row."""
    return (*(_used(names, tuple(members)) or ()), *_within(names, members, ""))


class _Doubtful(Exception):
    """Error of a value whose names are refused."""


def _used(names: Names, found: Sequence[str]) -> Used | None:
    others = [names.use_of(name) for name in found if name not in names.present]
    if None in others or names.twice(found) is not None:
        return None
    return tuple(one for one in others if one is not None)


def _within(names: Names, members: Mapping[str, object], path: str) -> Iterator[OtherName]:
    """Yield the names within structs that are not present names.  ``members``: those of one level.  ``path``: the
    names of the structs around it.
    """
    for name, value in members.items():
        present = names.former.get(name, name)
        inner = names.present.get(present)
        if inner is not None:
            yield from _inside(inner, value, f"{path}{present}.")


def _inside(names: Names, value: object, path: str) -> Iterator[OtherName]:
    if isinstance(value, list):
        for item in value:
            yield from _inside(names, item, path)
    elif isinstance(value, dict):
        used = _used(names, tuple(value))
        if used is None:
            raise _Doubtful
        for one in used:
            yield OtherName(one.use, path + one.path)
        yield from _within(names, value, path)


def with_former(type_: pa.DataType, names: Names | None) -> pa.DataType:
    """Return the transport type of a column.  Its structs have additional fields for former names."""
    if names is None:
        return transport_type(type_)
    if pa.types.is_list(type_):
        return pa.list_(with_former(type_.value_type, names))
    return pa.struct(fields_with_former(type_, names))


def fields_with_former(
    level: pa.Schema | pa.StructType, names: Names, lenient: Mapping[str, pa.DataType] = MappingProxyType({})
) -> list[pa.Field]:
    """Return the fields of a level in transport types, followed by one field for each former name.

    ``lenient``: the transport types of columns that have lenient forms, by name.
    """
    types = {
        child.name: lenient.get(child.name) or with_former(child.type, names.present[child.name]) for child in level
    }
    return [pa.field(name, type_) for name, type_ in types.items()] + [
        pa.field(former, types[present]) for former, present in names.former.items()
    ]


def one_name_each(array: pa.StructArray, level: pa.Schema | pa.StructType, names: Names) -> pa.StructArray:
    """Merge each field with a former name into the field with the present name.  No row has a value under two names
    of one field.
    """
    children = []
    for child in level:
        column = array.field(array.type.get_field_index(child.name))
        for former, present in names.former.items():
            if present == child.name:
                column = pc.coalesce(column, array.field(array.type.get_field_index(former)))
        children.append(_inner(column, child.type, names.present[child.name]))
    fields = [pa.field(child.name, column.type) for child, column in zip(level, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _inner(array: pa.Array, type_: pa.DataType, names: Names | None) -> pa.Array:
    if names is None or pa.types.is_string(array.type):  # the text of a column with maps
        return array
    if pa.types.is_list(type_):
        items = _inner(array.values, type_.value_type, names)
        return pa.ListArray.from_arrays(array.offsets, items, mask=array.is_null())
    return one_name_each(array, type_, names)
