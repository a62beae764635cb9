"""Defaults of columns that are structs, or lists of structs, when the members of these structs change.

A default is JSON that uses the contract's names of members (``Column.default``).  Members are identified by their
ids, so two members may swap their names.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from lancewal_core.rows.carry import Tree


class _Literal(str):
    """A number of a JSON text, kept as its text, so that no digit is lost."""


def carried_default(text: str, before: Tree, after: Tree) -> str:
    """Return the default ``text`` of the column ``before`` with the member names of ``after``, the same column later.

    A member that ``after`` lacks is left out.  If no member was added, dropped or renamed, ``text`` is returned as it
    is."""
    if _names(before) == _names(after):
        return text
    value = json.loads(text, parse_int=_Literal, parse_float=_Literal)
    return _json(_carried(value, before, after))


def _names(tree: Tree) -> list[tuple[int, str]]:
    return [(member.id, member.name) for inner in tree.within for member in inner.all()]


def _carried(value: Any, before: Tree, after: Tree) -> Any:
    if isinstance(value, list) and pa.types.is_list(before.type):
        return [_carried(item, before.within[0], after.within[0]) for item in value]
    if not isinstance(value, dict):
        return value
    then = {member.name: member for member in before.within}
    now = {member.id: member for member in after.within}
    pairs = ((item, then[name], now.get(then[name].id)) for name, item in value.items() if name in then)
    return {new.name: _carried(item, old, new) for item, old, new in pairs if new is not None}


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, _Literal) else json.dumps(value)
