"""Writer schemas: the schemas under which producers wrote values, as objects of the table.

A schema registry may lose a schema, or give its id to another one.  So the table keeps what the registry said first.
Rows follow from a record's value, the contract and these objects, never from the registry.

Guarantees
 1. Version 1 of a schema is put before the first entry that has a row of it.  No version is ever changed or deleted.
 2. All processes decode a record by the same version.  A version *counts* if records are decoded by it.  A later
    version counts for entries whose contract version names it.  If it has a position for a partition (``since``), it
    counts from there on, and the version before it counts below that.
 3. The kind ``unknown`` says that the registry did not know the schema, or that the table could not store it.  Its
    records are bad for ever, whatever the registry says later, unless a later version counts for them.
 4. Reading uses the objects alone, never the registry.

Steps
 1. ``WriterSchemas.read`` gets version 1, then the following ones until one is absent.
 2. ``WriterSchemas.put_first`` puts version 1 if absent.  If another process has put other content, it raises
    ``SchemaIdReused``.

The caller asks the registry, and keeps guarantee 1: it puts no entry with a row of a schema before ``put_first``
returned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, SchemaIdReused, TooManySchemas
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Position, SchemaKey
from lancewal_core.process.clock import Clock
from lancewal_core.store.json_model import StoredModel, StoredVersion, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_core.store.object_store import Done, ObjectStore
from lancewal_core.store.versioned import Family, put_until_told

SCHEMA_BYTES_MAX = 1 << 20
"""Largest number of bytes of a schema's text and of the schemas that it refers to.  Confluent's registry stores at most
as much."""
SCHEMAS_MAX = 10_000
"""Number of stored schemas from which on a table gets no further one, except as ``unknown`` (``MARKS_MAX``).  The bound
keeps a producer that registers a schema for each record from filling the store."""
MARKS_MAX = 100_000
"""Number of stored schemas from which on a table gets no further ``unknown`` one either.  The object of an ``unknown``
schema is small.  Records of further schemas can thus become dead letters after ``SCHEMAS_MAX`` is reached."""
REFERENCES_MAX = 1_000
_LETTERS = (
    "To pass records of schemas that cannot be stored, make dead letters of them, for good: "
    "`lancewal table alter --on unknown-schema=dead-letter`"
)
SchemaKind = Literal["avro", "protobuf", "json-schema"]


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema as a schema registry has it."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each schema that this one refers to, directly or not.  Each comes after those that it refers
    to."""

    @property
    def nbytes(self) -> int:
        """Bytes of the schema's text, and of the names and texts of its references, in UTF-8."""
        return sum(len(text.encode()) for text in (self.text, *(part for pair in self.references for part in pair)))

    def same(self, other: WriterSchema) -> bool:
        """Return whether both schemas have the same content.  Spaces between the parts of a JSON text do not count."""
        if (self.kind, len(self.references)) != (other.kind, len(other.references)):
            return False
        ours = [self.text, *(part for pair in self.references for part in pair)]
        theirs = [other.text, *(part for pair in other.references for part in pair)]
        return all(a == b or _same_json(a, b) for a, b in zip(ours, theirs, strict=True))


class SchemaReference(StoredModel):
    """A schema that another one refers to."""

    name: str
    text: str


class StoredSchema(StoredVersion):
    """One version of a writer schema."""

    what = "writer schema"
    format: Version1 = 1
    kind: SchemaKind | Literal["unknown"]
    text: str = ""
    references: Annotated[tuple[SchemaReference, ...], Field(max_length=REFERENCES_MAX)] = ()
    since: dict[str, Annotated[int, Field(ge=0, le=WHOLE_MAX)]] = Field(default_factory=dict)
    """Partition number to the position from which this version decodes records.  In other partitions it does so from
    the first record on.  Empty in version 1."""
    write_id: Word
    """Random id, another one in every version.  It shows whether a put with a lost reply was this process's own."""

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Decode as every ``StoredVersion``.  ``ObjectCorrupt`` also if version 1 does not count from the first
        record."""
        found = super().decode(data, where)
        parsed = paths.parse_writer_schema_version(where)
        if parsed is not None and parsed[1] == 1 and found.since:
            raise ObjectCorrupt(
                f"{where} is corrupt: version 1 of a schema must apply from the first record on", object=where
            )
        return found

    @property
    def writer(self) -> WriterSchema | None:
        """The schema; None if its kind is ``unknown``."""
        if self.kind == "unknown":
            return None
        return WriterSchema(self.kind, self.text, tuple((one.name, one.text) for one in self.references))


def stored_schema(
    schema: WriterSchema | None, write_id: str, since: Mapping[int, Position] | None = None
) -> StoredSchema:
    """Return a version to be put.  A ``schema`` of None gives the kind ``unknown``.

    ``since``: as in ``StoredSchema``."""
    counts = {str(partition): int(position) for partition, position in (since or {}).items()}
    if schema is None:
        return StoredSchema(kind="unknown", since=counts, write_id=write_id)
    references = tuple(SchemaReference(name=name, text=text) for name, text in schema.references)
    return StoredSchema(kind=schema.kind, text=schema.text, references=references, since=counts, write_id=write_id)


def schema_family(key: SchemaKey, making: Making | None) -> Family:
    """Return the keys of the versions of one schema."""
    prefix = paths.writer_schema_prefix(key, making)
    return Family.of(
        key,
        prefix,
        lambda version: paths.writer_schema_version(key, version, making),
        paths.parse_writer_schema_version,
    )


class WriterSchemas:
    """The writer schemas of one table.  Several threads may call at the same time.

    Versions that were read stay in memory.  Later ones are read only if ``read`` is asked for more versions than are in
    memory, or after ``forget``."""

    asked_first = False

    def __init__(self, store: ObjectStore, making: Making | None) -> None:
        self._store = store
        self._making = making
        self._known: dict[SchemaKey, tuple[StoredSchema, ...]] = {}
        self._number = -1
        """Number of the table's schemas: those of one listing, and those that this process has put since.  -1: not
        listed yet."""

    def known(self, key: SchemaKey) -> tuple[StoredSchema, ...]:
        """Return all versions of a schema that were read or put before, the first one first; empty if none was."""
        return self._known.get(key, ())

    @property
    def keys(self) -> tuple[SchemaKey, ...]:
        """Keys of the schemas that were read or put before."""
        return tuple(self._known)

    def forget(self, key: SchemaKey) -> None:
        """Drop the versions of a schema from memory."""
        self._known.pop(key, None)

    def read(self, key: SchemaKey, at_least: int = 1) -> tuple[StoredSchema, ...]:
        """Return all versions of a schema, the first one first; empty if the table has none.

        ``at_least``: the newest version that the contract names.  Raise ``ObjectMissing`` if it is above 1 and there
        are fewer versions."""
        versions = self.known(key)
        if len(versions) >= at_least:
            return versions
        found = self._after(key, versions)
        if len(found) < at_least and at_least > 1:
            missing = schema_family(key, self._making).key(len(found) + 1)
            raise ObjectMissing(
                f"{missing} is missing, and the contract names this version of the schema. Restore the object from the "
                "store's own versions",
                object=missing,
            )
        if found:
            self._known[key] = found
        return found

    def _after(self, key: SchemaKey, versions: tuple[StoredSchema, ...]) -> tuple[StoredSchema, ...]:
        """Return all versions of a schema: ``versions``, which are its first ones, and those that the store has after
        them."""
        family, found = schema_family(key, self._making), list(versions)
        while (data := self._store.get(family.key(len(found) + 1))) is not None:
            found.append(StoredSchema.decode(data, family.key(len(found) + 1)))
        return tuple(found)

    def put_first(
        self, key: SchemaKey, schema: WriterSchema | None, clock: Clock, new_id: Callable[[], str], counts: int = 1
    ) -> tuple[StoredSchema, ...]:
        """Put version 1 of a schema unless there is one, and return all versions.  A ``schema`` of None is put as
        ``unknown``.

        ``counts``: the version that the contract names.  Raise ``SchemaIdReused`` if that version has other content
        than ``schema``.  Raise ``TooManySchemas`` if the schema is too large, or if the table has too many schemas to
        store a new one.  Raise ``StoreUnavailable`` if the outcome of the put stays unknown.
        """
        if schema is not None:
            check_size(key, schema)
        first, versions = stored_schema(schema, new_id()), tuple[StoredSchema, ...]()
        if self._has_room(MARKS_MAX if schema is None else SCHEMAS_MAX):
            # No request before the put: records wait for it.
            stored = put_until_told(self._store, schema_family(key, self._making).key(1), clock, first.encode)
            if isinstance(stored, Done):
                self._number += 1
                versions = (first,)
        versions = versions or self._after(key, ())
        if not versions:
            raise TooManySchemas(
                f"schema {key!r} is new, and the table has {self._number} stored schemas already, the most that it may "
                f"have. A producer registers a new schema again and again: have it reuse one. {_LETTERS}",
                schema=key,
            )
        check_same(key, schema, versions, counts)
        self._known[key] = versions
        return versions

    def _has_room(self, most: int) -> bool:
        """Return whether the table has fewer than ``most`` schemas.  Those that other processes have put since this
        process listed them do not count."""
        if self._number < 0:
            listed = self._store.list(paths.writer_schemas_prefix(self._making))
            self._number = len({found[0] for one in listed if (found := paths.parse_writer_schema_version(one.key))})
        return self._number < most


def check_size(key: SchemaKey, schema: WriterSchema) -> None:
    """Raise ``TooManySchemas`` if the schema is too large to be stored."""
    if schema.nbytes > SCHEMA_BYTES_MAX:
        raise TooManySchemas(
            f"schema {key!r} has {schema.nbytes} bytes with its references; at most {SCHEMA_BYTES_MAX} are allowed. "
            f"Have the producers use a smaller schema. {_LETTERS}",
            schema=key,
        )


def check_same(key: SchemaKey, schema: WriterSchema | None, versions: tuple[StoredSchema, ...], counts: int) -> None:
    """Raise ``SchemaIdReused`` if version ``counts`` has other content than ``schema``, which the registry gave.

    ``counts``: the version by which records are decoded.  No error if it is ``unknown``, or not among ``versions``.
    Later versions are not compared: no contract names them yet, so no record is decoded by them."""
    ours = versions[counts - 1].writer if counts <= len(versions) else None
    if ours is None or (schema is not None and schema.same(ours)):
        return
    raise SchemaIdReused(
        f"the registry has {'no' if schema is None else 'another'} schema for {key!r}, and the table has stored one "
        f"(version {counts}). If the registry was rebuilt, or restarted empty, give it its old schemas back: the "
        "partition then goes on by itself. If it is not the producers' registry, correct registry.url, and restart. If "
        f"records use the new schema from now on: `lancewal schema accept {key}`, with --dry-run to see both",
        schema=key,
    )


def _same_json(a: str, b: str) -> bool:
    try:
        return bool(json.dumps(json.loads(a)) == json.dumps(json.loads(b)))
    except (ValueError, RecursionError):
        return False
