"""Keys in conflict, in the form that people read, and the keys that people name.

A key is a JSON array of the primary key's columns, in their order.  Strings, integers and booleans are written as
they are, binaries in base64, dates, times and uuids as text.  Dates and timestamps outside the years 1 to 9999 are texts
like ``-719163 days since 1970``.  A key has exactly one text, so the text finds the key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput, LancewalError, or_error
from lancewal_core.keys.conflicts import FIRST, NEXT, REGION, Conflicts
from lancewal_core.names.ids import Region
from lancewal_core.rows.column_types import storage_rows
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.schema import OP, Op
from lancewal_core.store.json_object import region_named

_WORDS = {Op.UPSERT: "row", Op.DELETE: "delete", Op.PATCH: "patch"}


@dataclass(frozen=True, slots=True)
class WaitingKeys:
    """Waiting records of one key in one region.

    ``state``: the result of these records: row, delete or patch.  They lie from position ``first`` up to ``next``."""

    region: str
    partition: int
    state: str
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class KeyInConflict:
    """A key that waits for a decision.  ``owner``: the region whose records of the key are in the table, or None."""

    key: list[object]
    owner: str | None
    waiting: tuple[WaitingKeys, ...]


def keys_in_conflict(conflicts: Conflicts, limit: int) -> tuple[KeyInConflict, ...]:
    """Return the first ``limit`` keys that wait for a decision, in the order of the primary key.

    Millions may wait, so only the keys that are returned become Python objects.
    """
    names = list(conflicts.schema.primary_key)
    keys = conflicts.waiting_keys
    by_key = pc.sort_indices(storage_rows(keys.select(names)), sort_keys=[(name, "ascending") for name in names])
    first = keys.take(by_key[:limit]).combine_chunks()
    shown = KeySet(first)
    owners = _rows_of(conflicts.owners, shown)
    owner_of = dict(zip(_texts(owners.select(names)), owners[REGION].to_pylist(), strict=True))
    found: dict[str, list[WaitingKeys]] = {text: [] for text in _texts(first)}
    waiting = _rows_of(conflicts.waiting, shown)
    columns = (waiting[name].to_pylist() for name in (REGION, OP, FIRST, NEXT))
    for text, region, op, first_, next_ in zip(_texts(waiting.select(names)), *columns, strict=True):
        state = _WORDS[Op(op)]
        found[text].append(WaitingKeys(region, region_named(region).partition, state, first_, next_))
    return tuple(
        KeyInConflict(json.loads(text), owner_of.get(text), tuple(sorted(some, key=lambda w: w.region)))
        for text, some in found.items()
    )


def _rows_of(rows: pa.Table, keys: KeySet) -> pa.Table:
    return rows.filter(pa.array(keys.contains([rows[name] for name in keys.names])))


def keys_named(conflicts: Conflicts, named: Sequence[str]) -> pa.Table:
    """Return the waiting keys that the texts name.  Raises ``InvalidInput`` if a text is not a key, or the key does not
    wait.
    """
    values: dict[str, object] = {}
    for text in named:
        try:
            values[text] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _no_key(text, f"is not JSON ({error})") from error
    # Millions may wait, so only keys that may be named become texts.
    schema = conflicts.waiting_keys.schema
    keys = [key for value in values.values() if (key := _key(value, schema)) is not None]
    named_keys = distinct(pa.concat_tables([schema.empty_table(), *keys]), conflicts.schema)
    waiting = _rows_of(conflicts.waiting_keys, KeySet(named_keys))
    texts, wanted = _texts(waiting), {_text(value): text for text, value in values.items()}
    missing = [text for plain, text in wanted.items() if plain not in texts]
    if missing:
        raise _no_key(missing[0], "does not wait for a decision")
    return waiting.filter(pa.array([text in wanted for text in texts], pa.bool_()))


def _key(values: object, schema: pa.Schema) -> pa.Table | None:
    """Return the key with these JSON values; None if they are not a key of this schema."""
    from lancewal_reader.forms.key_text import key_of_values

    if not isinstance(values, list) or len(values) != len(schema) or None in values:
        return None
    key = or_error(lambda: key_of_values(schema, values))
    return None if isinstance(key, LancewalError) else key


def _no_key(text: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"--key {text[:200]!r} {why}: name the primary key as `lancewal conflict list` shows it, a JSON array of its "
        "columns. Nothing was changed"
    )


def keys_of_region(conflicts: Conflicts, region: Region) -> pa.Table:
    """Return all waiting keys that the region owns, or of which it has waiting records."""
    say = conflicts.keys_of(region)
    return conflicts.waiting_keys.filter(pa.array(say.contains(conflicts.waiting_keys.columns)))


def _texts(keys: pa.Table) -> list[str]:
    columns = [_plain(column) for column in keys.columns]
    return [_text(list(values)) for values in zip(*columns, strict=True)]


def _plain(column: pa.ChunkedArray) -> list[object]:
    if column.type == pa.uuid():
        return list(map(str, column.to_pylist()))
    if pa.types.is_temporal(column.type):
        return _times(column)
    if column.type in (pa.binary(), pa.large_binary()) or pa.types.is_fixed_size_binary(column.type):
        return [base64.b64encode(value).decode() for value in column.to_pylist()]
    return list(column.to_pylist())


def _times(column: pa.ChunkedArray) -> list[object]:
    """Return times as Arrow's texts.  Times outside the years 1 to 9999 have the texts of ``plain_rows``, which commands
    read as keys.
    """
    from lancewal_reader.forms.plain_rows import plain_rows

    plain = [row["time"] for batch in pa.table({"time": column}).to_batches() for row in plain_rows(batch)]
    texts = column.cast(pa.string()).to_pylist()
    return [far if str(far).endswith(" since 1970") else text for far, text in zip(plain, texts, strict=True)]


def _text(key: object) -> str:
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))
