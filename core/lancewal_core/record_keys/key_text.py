"""The spelling that one producer gives JSON keys: names, order and spaces.  It is learned from one key, to compare
many keys at once.

1. Every text that ``KeyText.of`` makes is a JSON object with the row's own values.  Only names, spaces and
   punctuation come from the key that was learned from, and they stand where JSON has them.  So a record's key that
   equals this text is the row's key.
2. A key that differs from the text may still be the row's, in another spelling.  The caller decodes such keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.record_keys.json_compact import json_texts, json_value, writes
from lancewal_core.rows.byte_view import join_texts

_MEMBER = re.compile(rb'[ \t\n\r]*([{,])[ \t\n\r]*("(?:[^"\\\x00-\x1f]|\\.)*")[ \t\n\r]*:[ \t\n\r]*')
_END = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class KeyText:
    """The exact spelling of JSON keys: names, order and spaces, without the values."""

    before: tuple[tuple[str, bytes], ...]
    """Each member's column, and the bytes of the key before the member's value."""
    end: bytes

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the key of each row in this spelling, as a binary array."""
        pieces: list[bytes | pa.Array] = []
        for name, before in self.before:
            column = rows.column(name)
            quote = b'"' if writes(column.type) == "text" else b""
            pieces += [before, quote, json_texts(column), quote]
        return join_texts([*pieces, self.end])


def key_text(key: bytes, row: Mapping[str, object], called: Mapping[str, str]) -> KeyText | None:
    """Return the spelling of ``key``; None unless the key holds the values of ``row`` as ``json_compact`` writes
    them.

    ``called``: for each name that a member may have, its column.
    """
    before: list[tuple[str, bytes]] = []
    at = 0
    while (found := _MEMBER.match(key, at)) is not None and (found[1] == b"{") is not bool(before):
        try:
            name = called.get(json.loads(found[2]))
        except ValueError:
            return None
        value = None if name is None else row.get(name)
        if name is None or not isinstance(value, str | int):
            return None
        text = json_value(value)
        if not key.startswith(text, found.end()):
            return None
        before.append((name, found[0]))
        at = found.end() + len(text)
    end = _END.fullmatch(key, at)
    if end is None or sorted(name for name, _ in before) != sorted(row):
        return None
    return KeyText(tuple(before), end[0])
