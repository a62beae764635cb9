"""Random statements for two tables of PostgreSQL, of all kinds that a connector of change events treats in its own way.

``things`` has large values of each shape that PostgreSQL leaves out of its log when they do not change.  ``fulls`` has REPLICA
IDENTITY FULL, and arrays whose absence shows as null otherwise.  ``shadow`` has what ``fulls`` would have without TRUNCATE: a
trigger keeps it.

No time lies before 1582-10-15, and no number is NaN or infinite: Debezium does not give those as they are.  Arrays of
``things`` are never NULL, but for one that never holds large values.  Only columns without DEFAULT are nullable.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg

KEYS = 97
"""Keys of rows are below it: a prime, so that a multiple of a key modulo it is another key."""
Change = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SourceTable:
    sql: str
    columns: Mapping[str, object]
    """Of a Lance table that follows it."""


_LARGE = ("long", "blob", "doc", "tags", "blobs", "ids", "counts")
"""Columns of ``things`` with large values, one of each shape."""
THINGS = SourceTable(
    "CREATE TABLE things (id int PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz, small int[], long text,"
    " blob bytea, doc jsonb, tags text[] NOT NULL DEFAULT '{}', blobs bytea[] NOT NULL DEFAULT '{}',"
    " ids uuid[] NOT NULL DEFAULT '{}', counts bigint[] NOT NULL DEFAULT '{}');"
    + "".join(f"ALTER TABLE things ALTER {name} SET STORAGE EXTERNAL;" for name in _LARGE),
    {
        "id": "int32",
        "name": "string",
        "amount": "decimal128(12, 2)",
        "at": "timestamp[us, UTC]",
        "small": {"type": "list<int32>", "toast": "never"},
        "long": "string",
        "blob": "binary",
        "doc": "string",
        "tags": "list<string>",
        "blobs": "list<binary>",
        "ids": "list<string>",
        "counts": "list<int64>",
    },
)
FULLS = SourceTable(
    "CREATE TABLE fulls (id int PRIMARY KEY, note text, long text, ratios float8[], smalls smallint[], flags bool[]);"
    "ALTER TABLE fulls REPLICA IDENTITY FULL; ALTER TABLE fulls ALTER long SET STORAGE EXTERNAL;"
    "CREATE TABLE shadow (LIKE fulls);"
    "CREATE FUNCTION mirror() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP <> 'INSERT' THEN DELETE FROM shadow WHERE id = OLD.id; END IF;"
    " IF TG_OP <> 'DELETE' THEN DELETE FROM shadow WHERE id = NEW.id; INSERT INTO shadow SELECT NEW.*; END IF;"
    " RETURN NULL; END $$;"
    "CREATE TRIGGER mirror AFTER INSERT OR UPDATE OR DELETE ON fulls FOR EACH ROW EXECUTE FUNCTION mirror()",
    {
        "id": "int32",
        "note": "string",
        "long": "string",
        "ratios": "list<float64>",
        "smalls": "list<int16>",
        "flags": "list<bool>",
    },
)
_EXTRAS = ("int", "bigint", "text", "boolean", "numeric(10, 2)", "timestamptz")
"""Types of columns that are added."""


class Statements:
    """Runs statements by kind, and counts those that had an effect."""

    def __init__(self, rng: random.Random, connection: psycopg.Connection, *, ddl: bool) -> None:
        self.effects: Counter[str] = Counter()
        self.extras: dict[str, str] = {}
        """Columns that were added to ``things`` and are there, and their types."""
        self._rng, self._connection = rng, connection
        self._added = 0
        self._kinds: dict[str, Callable[[], int]] = {
            "insert": lambda: self._all(self._insert()),
            "upsert": lambda: self._all(self._upsert()),
            "update": lambda: self._all(self._update()),
            "delete": lambda: self._all(self._delete("things")),
            "key change": lambda: self._all(self._change_key()),
            "many rows": lambda: self._all(self._many()),
            "transaction": lambda: self._transaction("COMMIT"),
            "rolled back": lambda: self._transaction("ROLLBACK"),
            "savepoint rolled back": self._savepoint,
            **{f"large {name}": lambda name=name: self._all(self._grow(name)) for name in _LARGE},  # type: ignore[misc] # a default
            **{f"kept {name}": lambda name=name: self._all(self._keep(name)) for name in _LARGE},  # type: ignore[misc] # a default
            "full insert": lambda: self._all(self._full_insert()),
            "full update": lambda: self._all(self._full_update()),
            "full delete": lambda: self._all(self._delete("fulls")),
            "full key change": lambda: self._all(self._full_change_key()),
            "truncate": lambda: self._truncate("COMMIT"),
            "truncate rolled back": lambda: self._truncate("ROLLBACK"),
        }
        if ddl:
            self._kinds |= {
                "add": lambda: self._add(rng.choice(_EXTRAS)),
                "drop": self._drop,
                "column rolled back": self._column_rolled_back,
            }
        self.kinds = [*self._kinds, *(["widen"] if ddl else [])]

    def deck(self, count: int) -> list[str]:
        """So many kinds, each at least about once in eighty; inserts are frequent."""
        often = ["insert", "upsert", "full insert", "update", "delete", "full delete"]
        rest = [kind for kind in self.kinds if kind not in ("add", "drop", "widen", "column rolled back")]
        deck = self.kinds * (count // 80 + 1)
        deck += self._rng.choices([*rest, *often * 3], k=max(0, count - len(deck)))
        self._rng.shuffle(deck)
        return deck

    def run(self, kind: str) -> bool:
        """Run a statement of the kind; whether it had an effect."""
        if kind == "add int":
            return bool(self._add("int"))
        done = self._kinds[kind]() > 0
        self.effects[kind] += done
        return done

    def widen(self, column: str) -> None:
        self._execute(f"ALTER TABLE things ALTER {column} TYPE bigint")
        self.extras[column] = "bigint"
        self._execute(f"UPDATE things SET {column} = %(big)s WHERE id %% 2 = 0", {"big": 2**40})
        self.effects["widen"] += 1

    # -- execution -----------------------------------------------------------------------------------------------

    def _execute(self, statement: str, values: Mapping[str, Any] | None = None) -> int:
        return self._connection.execute(statement.encode(), values).rowcount

    def _all(self, change: Change) -> int:
        return self._execute(*change)

    def _transaction(self, end: str) -> int:
        self._execute("BEGIN")
        done = 0
        for _ in range(self._rng.randint(2, 4)):
            done += max(0, self._execute(*self._any()))
        self._execute(end)
        return done

    def _savepoint(self) -> int:
        self._execute("BEGIN")
        self._execute(*self._any())
        self._execute("SAVEPOINT before")
        done = self._execute(*self._any())
        self._execute("ROLLBACK TO SAVEPOINT before")
        self._execute(*self._any())
        self._execute("COMMIT")
        return done

    def _any(self) -> Change:
        rng = self._rng
        draw = rng.choice(
            [
                self._insert,
                self._upsert,
                self._update,
                self._change_key,
                self._many,
                self._full_insert,
                self._full_update,
            ]
        )
        deletes = rng.random() < 0.2
        return self._delete(rng.choice(["things", "fulls"])) if deletes else draw()

    def _truncate(self, end: str) -> int:
        rows = self._connection.execute("SELECT count(*) FROM fulls WHERE id < 97").fetchone()
        assert rows is not None
        if rows[0]:
            self._execute("BEGIN")
            self._execute("TRUNCATE fulls")
            self._execute(end)
        return int(rows[0])

    # -- columns -------------------------------------------------------------------------------------------------

    def _add(self, type_: str) -> int:
        self._added += 1
        name = f"extra_{self._added}"
        self._execute(f"ALTER TABLE things ADD COLUMN {name} {type_}")
        self.extras[name] = type_
        return 1

    def _drop(self) -> int:
        if not self.extras:
            self._add(self._rng.choice(_EXTRAS))
        name = self._rng.choice(list(self.extras))
        self._execute(f"ALTER TABLE things DROP COLUMN {name}")
        del self.extras[name]
        return 1

    def _column_rolled_back(self) -> int:
        self._execute("BEGIN")
        self._execute("ALTER TABLE things ADD COLUMN never text")
        done = self._execute("UPDATE things SET never = 'never', name = 'never' WHERE id < 97")
        self._execute("ROLLBACK")
        return done

    # -- things --------------------------------------------------------------------------------------------------

    def _row(self, table: str, where: str = "true") -> str:
        """The key of one of the rows."""
        order = f"(id * {self._rng.randrange(1, KEYS)}) %% {KEYS}"
        return f"(SELECT id FROM {table} WHERE id < {KEYS} AND {where} ORDER BY {order} LIMIT 1)"

    def _key(self) -> int:
        return self._rng.randrange(1, KEYS)

    def _small(self) -> dict[str, Any]:
        rng = self._rng
        days = rng.randrange(-140_000, 2_900_000)
        at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            days=days, microseconds=rng.randrange(86_400 * 10**6)
        )
        values = {
            "name": rng.choice([None, "", f"n{rng.randrange(1000)} é\t\"'\\"]),
            "amount": rng.choice([None, Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-2)]),
            "at": rng.choice([None, at]),
            "small": rng.choice([None, [], [1, None, -(2**31)]]),
        }
        values |= {name: self._extra(type_) for name, type_ in self.extras.items() if rng.random() < 0.3}
        return values

    def _extra(self, type_: str) -> Any:
        rng = self._rng
        match type_:
            case "int":
                return rng.randrange(-(2**31), 2**31)
            case "bigint":
                return rng.randrange(-(2**63), 2**63)
            case "text":
                return f"x{rng.randrange(100)}"
            case "boolean":
                return rng.random() < 0.5
            case "numeric(10, 2)":
                return Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2)
        return dt.datetime(2024, 2, 29, 23, 59, 59, rng.randrange(10**6), tzinfo=dt.UTC)

    def _large(self, name: str, *, large: bool) -> Any:
        """A value of a column; a large one has more bytes than a row may have in its page."""
        rng = self._rng
        match name:
            case "long":
                return rng.randbytes(2000).hex() if large else rng.choice([None, "", "short ü"])
            case "blob":
                return rng.randbytes(3000) if large else rng.choice([None, b"", b"\0\xff"])
            case "doc":
                return json.dumps({"b": rng.randbytes(2000).hex() if large else None, "a": [1.50, "ü"]})
            case "tags":
                return [rng.randbytes(40).hex() for _ in range(50)] if large else rng.choice([[], ["a", None, ""]])
            case "blobs":
                return [rng.randbytes(100) for _ in range(30)] if large else rng.choice([[], [b"\0", None, b""]])
            case "ids":
                return [UUID(bytes=rng.randbytes(16)) for _ in range(200 if large else rng.randrange(3))]
        return [rng.randrange(-(2**63), 2**63) for _ in range(500 if large else rng.randrange(3))]

    def _whole(self) -> dict[str, Any]:
        return {**self._small(), **{name: self._large(name, large=self._rng.random() < 0.4) for name in _LARGE}}

    def _insert(self) -> Change:
        values = {"id": self._key(), **self._whole()}
        return f"INSERT INTO things {_columns(values)} ON CONFLICT DO NOTHING", values

    def _upsert(self) -> Change:
        values = {"id": self._key(), **self._whole()}
        sets = ", ".join(f"{name} = excluded.{name}" for name in values if name != "id")
        return f"INSERT INTO things {_columns(values)} ON CONFLICT (id) DO UPDATE SET {sets}", values

    def _update(self) -> Change:
        values = self._small()
        return f"UPDATE things SET {_sets(values)} WHERE id = {self._row('things')}", values

    def _grow(self, name: str) -> Change:
        values = {name: self._large(name, large=self._rng.random() < 0.8)}
        return f"UPDATE things SET {_sets(values)} WHERE id = {self._row('things')}", values

    def _keep(self, name: str) -> Change:
        """Change a row that has a large value of this column, and leave that alone."""
        values = self._small()
        return (
            f"UPDATE things SET {_sets(values)} WHERE id = {self._row('things', f'pg_column_size({name}) > 2500')}",
            values,
        )

    def _delete(self, table: str) -> Change:
        return f"DELETE FROM {table} WHERE id = {self._row(table)}", {}

    def _change_key(self) -> Change:
        """All large values change too: an event of a new key that lacks one stops its partition."""
        values = {"id": self._key(), **self._whole()}
        free = "NOT EXISTS (SELECT 1 FROM things WHERE id = %(id)s)"
        return f"UPDATE things SET {_sets(values)} WHERE id = {self._row('things')} AND {free}", values

    def _many(self) -> Change:
        at = self._rng.randrange(7)
        return f"UPDATE things SET amount = amount / 2, name = name WHERE id < {KEYS} AND id %% 7 = {at}", {}

    # -- fulls ---------------------------------------------------------------------------------------------------

    def _full(self) -> dict[str, Any]:
        rng = self._rng
        size = rng.choice([0, 3, 500])
        return {
            "note": f"n{rng.randrange(1000)}",
            "long": rng.choice([None, rng.randbytes(2000).hex()]),
            "ratios": rng.choice([None, [None, *(rng.random() for _ in range(size))]]),
            "smalls": rng.choice([None, [rng.randrange(-(2**15), 2**15) for _ in range(size * 4)]]),
            "flags": rng.choice([None, [True, None, False]]),
        }

    def _full_insert(self) -> Change:
        values = {"id": self._key(), **self._full()}
        other = (values["id"] * 5) % KEYS
        first, second = _columns(values), _columns(values, id=str(other)).partition("VALUES")[2]
        return f"INSERT INTO fulls {first}, {second} ON CONFLICT DO NOTHING", values

    def _full_update(self) -> Change:
        values = self._full()
        some = {name: values[name] for name in self._rng.sample(list(values), self._rng.randint(1, 2))}
        return f"UPDATE fulls SET {_sets(some)} WHERE id = {self._row('fulls')}", some

    def _full_change_key(self) -> Change:
        free = "NOT EXISTS (SELECT 1 FROM fulls WHERE id = %(id)s)"
        return f"UPDATE fulls SET id = %(id)s WHERE id = {self._row('fulls')} AND {free}", {"id": self._key()}


def _sets(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_typed(name)}" for name in values)


def _columns(values: Mapping[str, Any], **other: str) -> str:
    """Names and places of an INSERT; ``other``: texts in place of values."""
    return f"({', '.join(values)}) VALUES ({', '.join(other.get(name) or _typed(name) for name in values)})"


_TYPES = {
    "doc": "jsonb", "small": "int[]", "tags": "text[]", "blobs": "bytea[]", "ids": "uuid[]", "counts": "bigint[]",
    "ratios": "float8[]", "smalls": "smallint[]", "flags": "bool[]",
}  # fmt: skip


def _typed(name: str) -> str:
    """The place of a value.  An empty array has no type of its own."""
    return f"%({name})s" + (f"::{_TYPES[name]}" if name in _TYPES else "")
