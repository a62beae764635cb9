"""The contract: the definition of a table.  Its terms decide which rows a WAL entry has.

Each contract version is an immutable object (``paths.contract_version``).  A *term* is a field of ``Contract``.  To
change a term is to store the next version.  A WAL entry's rows follow from topic id, partition, positions and
contract version alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import AfterValidator, FailFast, Field

from lancewal_core.errors import (
    ActionNeeded,
    ContractMismatch,
    InvalidInput,
    InvalidSchema,
    NotALancewalTable,
    ObjectCorrupt,
    TableDropped,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Page, Position, Region, TableUuid, TopicId
from lancewal_core.names.words import TOPIC_FORM, dead_letters_of, is_topic, word
from lancewal_core.process.clock import Clock, utc_text
from lancewal_core.process.tasks import Tasks
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.record_keys.key_form import KEY_FORMS_MAX, KeyForm, is_key_form
from lancewal_core.record_keys.key_format import KeyCodec, check_region_key, key_codec, why_rows_do_not_tell
from lancewal_core.record_keys.partitioner import partition_of, partitions_of
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.schema import COLUMNS_MAX, RowSchema, check_row_schema
from lancewal_core.rows.ttl import Ttl, check_ttl
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource, check_sources
from lancewal_core.settings.sections import (
    METADATA_LENGTH_MAX,
    PLACEHOLDER,
    Envelope,
    JsonForm,
    OnUnknownColumn,
    Policy,
    ValueFormat,
)
from lancewal_core.store.json_model import StoredModel, Version1, Version2, Word, decode_model
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION, Declined, Family, Swapped, Version, newest_version, swap

FORMAT = 2
POLICIES = frozenset(
    {
        "on_bad_record",
        "on_wrong_format",
        "on_unknown_schema",
        "on_other_record",
        "on_misrouted",
        "on_truncate",
        "dead_letter_topic",
    }
)
"""Names of the terms about records that cannot become rows.  A process may go on with older values of these terms."""
TRUNCATE = "truncate"
"""Rejection kind of a record that says that the source table was truncated.  Such a record never becomes a dead
letter."""
UNAVAILABLE_VALUE = "unavailable_value"
"""Rejection kind of a change event that lacks a column's value, where the table cannot keep the row's former value."""
MISROUTED = "misrouted"
"""Rejection kind of a record in another partition than the one where it belongs.  It need not be a bad record."""
OTHER_RECORD = "other_record"
"""Rejection kind of a record of another type than the contract's ``value_record``."""
KEY_FORM_CHANGED = "key_form_changed"
"""Rejection kind of a good record whose key has a form that the contract does not list (``record_keys.key_form``).  The
record stops its partition.  If a person rejects it, it becomes a dead letter under any policy."""
UNREADABLE = "unreadable"
"""Rejection kind of a record that could not be read, and that a person has rejected.  It becomes a dead letter under
any policy."""
GROUP_TERMS = frozenset({"group_id", "former_group_id"})
"""Names of the terms that say which consumer group consumes the records."""
NAME_TERMS = frozenset({"name"})
"""Names of the terms that only people and their tools use.  A process uses a new value after its next start."""
BESIDE_ROWS = (
    POLICIES
    | GROUP_TERMS
    | NAME_TERMS
    | {
        "ttl_column",
        "ttl_s",
        "history_window_s",
        "version_window_s",
        "subscription_hold_s_max",
        "grace_s",
        "freshness_target_s",
        "drop",
    }
)
"""Names of the terms that decide neither which rows an entry has nor where the entry is stored."""
COLUMN_TERMS = frozenset(
    {
        "format",
        "columns",
        "columns_change",
        "highest_field_id",
        "former_names",
        "dropped",
        "on_unknown_column",
        "columns_max",
    }
)
"""Names of the terms about columns.  If contract versions differ in these alone, ``rows.carry`` converts rows of the
older one to the newer one.  So a running process adopts new values of these terms."""
VALUE_TERMS = frozenset(
    {
        *("value_format", "value_record", "schema_versions", "key_forms"),
        *("envelope", "snapshot_rows", "unavailable_value", "on_unavailable_value"),
    }
)
"""Names of the terms that say how records are decoded.  A running process adopts new values of them.  Each entry
names the contract version by which its records were decoded.  ``value_format`` changes only while the table has no
row, and ``value_record`` never."""
_LATER_TERMS = COLUMN_TERMS - {"format", "columns"} | {
    "partitioner",
    "on_wrong_format",
    "on_unknown_schema",
    "on_other_record",
    "schema_versions",
    "key_forms",
    "envelope",
    "snapshot_rows",
    "unavailable_value",
    "on_unavailable_value",
    "on_truncate",
    "subscription_hold_s_max",
}
"""Names of the terms that the first release did not have.  Their defaults describe the behaviour of that release.  A
term with its default is not stored."""
SCHEMA_VERSIONS_MAX = 1_000
"""Highest version of a writer schema that ``Contract.schema_versions`` may name."""
SCHEMAS_ACCEPTED_MAX = 10_000
"""Largest number of writer schemas that ``Contract.schema_versions`` may name."""
PARTITIONS_MAX = 200_000
"""Largest number of partitions of a contract.  Code that enumerates all partitions is thus safe from a damaged
contract.  No topic has so many."""
GROUP_MAX = 32_767
"""Largest number of characters of a consumer group's name.  Kafka's protocol allows as many bytes."""
TYPES_LENGTH_MAX = 1 << 20
"""Largest number of characters of all column types together, enough for tens of thousands of nested fields."""
_INT64_MAX = 2**63 - 1
_TTL_S_MAX = 100 * 366 * 24 * 3600
_SHOWN = 300
_FIELD_LENGTH_MAX = 1 << 10
_VERSION_DIGITS = 18


def _making(text: str) -> Making:
    return Making(word(text, "text"))


def _key_form(text: str) -> KeyForm:
    if not is_key_form(text):
        raise ValueError(
            f"{text[:_SHOWN]!a} is not a form of keys. Expected for example 'id-7', 'header-id-7', or 'schema-' and 32 "
            "hex digits"
        )
    return KeyForm(text)


class Widening(StoredModel):
    """A wider type that a column is to get.  The flusher rewrites the column's values; then the column has this
    type."""

    type: str
    field_ids: Annotated[tuple[int, ...], FailFast()]
    """Lance's ids that the column's field and, depth first, its nested fields will have after the widening.  A field
    whose type stays keeps its id."""
    since_ms: int = Field(ge=0)
    """Time when a command first asked for the widening, in milliseconds since 1970."""


class Column(StoredModel):
    """One column of the table."""

    name: str
    type: str
    """Type of the column as text (``rows.column_types``)."""
    field_ids: Annotated[tuple[int, ...], FailFast()]
    """Lance's ids of the column's field and, depth first, of its nested fields."""
    first_ids: tuple[int, ...] | None = None
    """Ids that the column's field and, depth first, its nested fields had when they were added.  A widening gives a
    field a new id.  None: no field was widened, so they are ``field_ids``."""
    default: str | None = None
    """Value that an upsert without this column gets, as JSON.  None: null."""
    widening: Widening | None = None
    """The column's widening that is not done yet; None: there is none."""
    json_form: JsonForm | None = None
    """Form that the column's JSON values may have beside the strict one.  None: only the strict form."""
    field: Annotated[str, Field(min_length=1, max_length=_FIELD_LENGTH_MAX)] | None = None
    """Name of the column in records.  None: the column's own name."""
    metadata: Annotated[str, Field(max_length=METADATA_LENGTH_MAX)] | None = None
    """Metadata of records that fill the column, such as ``kafka.offset``.  None: records' values fill it."""

    toast: Literal["never"] | None = None
    """``never``: connectors always send the column's value.  None: a connector may leave an unchanged value out."""

    @property
    def source(self) -> ColumnSource:
        """Source of the column's values in records."""
        return ColumnSource(self.json_form, self.field, self.metadata, self.toast)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids that identify the column's fields in all contract versions: those that they had when they were added."""
        return self.field_ids if self.first_ids is None else self.first_ids

    @property
    def lance_ids(self) -> tuple[int, ...]:
        """Lance's ids of the column's fields: the present ones, and those that they will have after an open
        widening."""
        return (*self.field_ids, *self.widened.field_ids)

    @property
    def widened(self) -> Column:
        """The column as it will be once its widening is done; the column itself if there is none."""
        if self.widening is None:
            return self
        wider = {"type": self.widening.type, "field_ids": self.widening.field_ids}
        return self.model_copy(update={**wider, "first_ids": self.ids, "widening": None})


class FormerName(StoredModel):
    """A former name of a field, which records may still use."""

    id: int
    """Id of the field in ``Column.ids``."""
    name: str


class DroppedField(StoredModel):
    """Record of a dropped column, or of a dropped member of a struct."""

    name: str
    within: int | None = None
    """Id of the struct in ``Column.ids``, if a member of a struct was dropped.  None: a column was dropped."""
    forgotten: bool = False
    """Whether a value with this name counts as one with an unknown column again.  Otherwise the name is ignored and
    counted."""


class TableDrop(StoredModel):
    """Mark of a dropped table in its contract."""

    since_ms: int = Field(ge=0)
    """Time when ``table drop`` dropped the table, in milliseconds since 1970."""
    deleting: bool = False
    """Whether the deletion of the table's objects has begun.  If so, nothing brings the table back."""


class Contract(StoredModel):
    """One version of a table's contract (module docstring).  Windows are in seconds."""

    format: Version2 = 1
    """Format version of the object.  2: columns were changed, or a term has a value that the first release does not
    know.  That release refuses such a table with ``FormatUnknown``."""
    version: int = Field(default=1, ge=1)
    table_uuid: Word
    """Id of the table.  A command that takes the table to another place gives it a new one.  No two tables that
    services work on share an id."""
    place: str | None = None
    """Place of the table (its address in one canonical spelling) when it got its ``table_uuid``.  None: no command has
    recorded the place."""
    name: Word | None = None
    """Name of the table in a catalog, for metrics, logs and status.  None: no command has given it one."""
    making: Annotated[Making, AfterValidator(_making)] | None = None
    """Random id of the table from its creation or attachment, which never changes.  None: the table is older than
    makings."""
    group_id: Annotated[str, Field(min_length=1, max_length=GROUP_MAX)] | None = None
    """Consumer group that consumes the records.  Processes compare it with their own.  None: no group has started
    yet; the first that starts is recorded."""
    former_group_id: Annotated[str, Field(min_length=1, max_length=GROUP_MAX)] | None = None
    """Consumer group that consumed the records before ``table alter --group``.  None: there is no such group."""
    topic: str
    topic_id: str
    partitions: int = Field(ge=1, le=PARTITIONS_MAX)
    regions_per_page: int = Field(default=128, ge=1, le=PARTITIONS_MAX)
    """Largest number of regions whose states share one object, a state page.  Never changes."""
    primary_key: Annotated[tuple[str, ...], Field(max_length=COLUMNS_MAX)]
    region_key: Annotated[tuple[str, ...], Field(max_length=COLUMNS_MAX)]
    key_format: KeyFormat = "canonical"
    partitioner: Partitioner = "murmur2"
    start: Annotated[tuple[Annotated[int, Field(ge=-1, le=_INT64_MAX)], ...], Field(max_length=PARTITIONS_MAX)]
    """Position from which each partition is consumed first; -1: its low watermark when a region is claimed for the
    first time."""
    columns: Annotated[tuple[Column, ...], Field(max_length=COLUMNS_MAX)]
    value_format: ValueFormat = "json"
    value_record: Annotated[str, Field(min_length=1, max_length=_FIELD_LENGTH_MAX)] | None = None
    """Type name of the records that become rows, in a topic with records of several types.  None: records of any type
    do."""
    schema_versions: Annotated[
        dict[Word, Annotated[int, Field(ge=2, le=SCHEMA_VERSIONS_MAX)]], Field(max_length=SCHEMAS_ACCEPTED_MAX)
    ] = Field(default_factory=dict)
    """Key of a writer schema to its newest version by which records are decoded (``wal.writer_schemas``).  Schemas
    that are not listed have only version 1."""
    key_forms: Annotated[
        tuple[Annotated[KeyForm, AfterValidator(_key_form)], ...], Field(max_length=KEY_FORMS_MAX)
    ] = ()
    """Forms of record keys that give rows, if keys have schemas (``record_keys.key_form``).  Empty until ingest has
    found the first such key."""
    envelope: Envelope = "none"
    snapshot_rows: Literal["apply", "skip"] = "apply"
    """Handling of Debezium's events of a snapshot: ``apply`` makes rows of them, ``skip`` passes them over."""
    unavailable_value: Annotated[str, Field(min_length=1, max_length=METADATA_LENGTH_MAX)] = PLACEHOLDER
    """Text that a connector sends in place of a value that it could not read."""
    on_unavailable_value: Policy = "stop"
    """Policy for a record that lacks a value which the table cannot keep.  Under ``ignore`` the record becomes a row
    with a null there."""
    patches: bool = True
    record_bytes_max: int = Field(default=1_000_000, ge=1)
    on_bad_record: Policy = "dead-letter"
    on_wrong_format: Literal["stop", "dead-letter"] = "stop"
    """Policy for bad records of a partition of which no record has become a row yet."""
    on_unknown_schema: Literal["stop", "dead-letter"] = "stop"
    on_other_record: Policy = "dead-letter"
    """Policy for a record of another type than ``value_record``.  Under ``ignore`` the record is passed over."""
    on_misrouted: Policy = "stop"
    on_truncate: Literal["stop", "ignore"] = "stop"
    dead_letter_topic: str | None = None
    """Topic of dead letters.  None: ``<topic>.dead-letters``."""
    columns_change: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}-[0-9a-f]{1,64}$")] | None = None
    """Id of the newest change of the columns: the contract version that made it, ``-``, and random hex digits.  A
    table version names the change that gave it its columns (``protocol.columns_mark``).  None: the columns are those
    of contract version 1."""
    highest_field_id: int | None = None
    """Highest field id that any contract version, the table's schema or a data file had at the newest change of
    columns.  None: the columns are those of contract version 1."""
    former_names: tuple[FormerName, ...] = ()
    dropped: tuple[DroppedField, ...] = ()
    on_unknown_column: OnUnknownColumn = "reject"
    columns_max: int = Field(default=200, ge=1, le=COLUMNS_MAX)
    """Number of columns above which ``on_unknown_column: add`` adds no more."""
    fold_version: Version1 = 1
    history_window_s: int = Field(default=24 * 3600, ge=0)
    version_window_s: int = Field(default=7 * 24 * 3600, ge=0)
    subscription_hold_s_max: int = Field(default=7 * 24 * 3600, ge=0)
    grace_s: int = Field(default=600, ge=0)
    freshness_target_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    ttl_column: str | None = None
    """Column with the time by which rows expire; None: they never do."""
    ttl_s: int | None = Field(default=None, ge=1, le=_TTL_S_MAX)
    drop: TableDrop | None = None
    """Set while the table is dropped: no process works on it.  None: the table is in use."""
    altered_at: Annotated[
        tuple[Annotated[int, Field(ge=-1, le=_INT64_MAX)], ...], Field(max_length=PARTITIONS_MAX)
    ] = ()
    """Position of each partition at the newest change of the number of partitions.  Empty: the number never changed."""

    @cached_property
    def rows(self) -> RowSchema:
        """Columns with their Arrow types, primary key and region key."""
        key = frozenset(self.primary_key)
        fields = [pa.field(c.name, parse_type(c.type), nullable=c.name not in key) for c in self.columns]
        ids = tuple(c.ids for c in self.columns)
        return RowSchema(pa.schema(fields), self.primary_key, self.region_key, ids if all(ids) else ())

    @cached_property
    def sources(self) -> Mapping[str, ColumnSource]:
        """Column name to the source of its values in records.  Columns that records name alike, in strict form, are
        left out."""
        return {c.name: c.source for c in self.columns if c.source != OF_ITSELF}

    @cached_property
    def record_rows(self) -> RowSchema:
        """``rows`` with the names that records use for the columns."""
        return self.rows.called({c.name: c.field for c in self.columns if c.field is not None})

    @cached_property
    def loaded_rows(self) -> RowSchema:
        """``rows`` without the columns of records' metadata, which no loaded row has."""
        if not any(c.metadata for c in self.columns):
            return self.rows
        kept = [place for place, c in enumerate(self.columns) if c.metadata is None]
        fields = pa.schema([self.rows.columns.field(place) for place in kept])
        ids = tuple(self.rows.ids[place] for place in kept) if self.rows.ids else ()
        return RowSchema(fields, self.primary_key, self.region_key, ids)

    @property
    def columns_unchanged(self) -> bool:
        """Whether the columns are those of contract version 1."""
        return self.columns_change is None

    @property
    def columns_version(self) -> int:
        """Newest contract version that changed the columns, up to this one; 1 if none has."""
        return columns_version(self.columns_change)

    @cached_property
    def row_terms(self) -> str:
        """The terms that decide which rows entries have and where these are stored, as JSON.  Two contract versions
        give equal texts if they differ in other terms only."""
        return self.model_dump_json(exclude={"version", *BESIDE_ROWS})

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions of the table, by partition number.  They follow from the contract, never from a listing."""
        return tuple(Region(self.topic, TopicId(self.topic_id), p) for p in range(self.partitions))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """All state pages of the table, which have the states of its regions."""
        return tuple(dict.fromkeys(map(self.page_of, self.regions)))

    def page_of(self, region: Region) -> Page:
        """Return the state page that has the region's state."""
        return Page.of(region, self.regions_per_page, self.making)

    @cached_property
    def fields_of(self) -> Mapping[str, tuple[int, ...]]:
        """Column name to ``Column.field_ids``."""
        return {c.name: c.field_ids for c in self.columns}

    @cached_property
    def field_ids(self) -> tuple[int, ...]:
        """Lance's ids of all columns' fields, nested ones included."""
        return tuple(i for c in self.columns for i in c.field_ids)

    @property
    def dead_letters(self) -> str:
        """The topic of dead letters."""
        return self.dead_letter_topic or dead_letters_of(self.topic)

    def policy_of(self, kind: str) -> Policy:
        """Return the policy for a record that did not become a row.  ``kind``: the kind of its rejection."""
        policies: dict[str, Policy] = {
            KEY_FORM_CHANGED: "dead-letter",
            MISROUTED: self.on_misrouted,
            OTHER_RECORD: self.on_other_record,
            TRUNCATE: self.on_truncate,
            # Under ``ignore`` there is no such record.
            UNAVAILABLE_VALUE: "stop" if self.on_unavailable_value == "stop" else "dead-letter",
        }
        return policies.get(kind, self.on_bad_record)

    @property
    def record_policies(self) -> Mapping[str, Policy]:
        """Policy for each kind of record that cannot become a row, by its name in ``lancewal table alter --on``.

        Kinds for which ``--on`` allows only two policies are left out."""
        more: dict[str, Policy] = {} if self.value_record is None else {"other-record": self.on_other_record}
        if self.envelope != "none":
            more["unavailable-value"] = self.on_unavailable_value
        return {"bad-record": self.on_bad_record, "misrouted": self.on_misrouted, **more}

    def has_letter(self, kind: str) -> bool:
        """Return whether a rejected record became a dead letter.

        ``kind``: the kind that an entry lists for the record.  The entry must be of this contract version."""
        return kind == UNREADABLE or (kind != TRUNCATE and self.policy_of(kind) != "ignore")

    @cached_property
    def key_codec(self) -> KeyCodec | None:
        """Encoding of record keys; None if a key's bytes cannot be computed from its row."""
        return key_codec(self.record_rows, self.key_format)

    def partition_of(self, key: bytes) -> int:
        """Return the partition in which a record with this key belongs; -1 if in none."""
        return partition_of(key, self.partitions, self.partitioner)

    def partitions_of(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return ``partition_of`` for each key of a binary or string array; -1 for a null."""
        return partitions_of(keys, self.partitions, self.partitioner)

    @property
    def rows_tell_partition(self) -> bool:
        """Whether a row's columns determine its record's key, and thus its partition."""
        return self.why_rows_do_not_tell is None

    @property
    def why_rows_do_not_tell(self) -> str | None:
        """The setting, with its value, because of which a row does not determine its partition; None if it does."""
        return why_rows_do_not_tell(self.key_format, self.partitioner)

    @property
    def ttl(self) -> Ttl | None:
        """Rule by which rows expire; None: rows never expire."""
        if self.ttl_column is None or self.ttl_s is None:
            return None
        return Ttl(self.ttl_column, self.ttl_s)

    @property
    def uuid(self) -> TableUuid:
        return TableUuid(self.table_uuid)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with ``update`` applied.  Cached properties are not copied, since they derive from the old
        terms."""
        copied = super().model_copy(update=dict(update or {}), deep=deep)
        for derived in copied.__dict__.keys() - Contract.model_fields.keys():
            del copied.__dict__[derived]
        return copied

    def start_of(self, partition: int) -> Position | None:
        """Return the position from which a partition is consumed first; None: its low watermark.  Partitions that were
        added after the table's creation start at 0."""
        if partition >= len(self.start):
            return Position(0)
        start = self.start[partition]
        return None if start < 0 else Position(start)


def changed_terms(before: Contract, after: Contract) -> frozenset[str]:
    """Return the names of the terms in which two versions differ."""
    terms = Contract.model_fields.keys() - {"version"}
    return frozenset(term for term in terms if getattr(before, term) != getattr(after, term))


def columns_version(mark: str | None) -> int:
    """Return the contract version in ``mark``, a change of columns (``Contract.columns_change``).

    Return 1 for None, or for a text that does not begin with a version."""
    number, _, _ = (mark or "").partition("-")
    return int(number) if number.isascii() and number.isdigit() and len(number) <= _VERSION_DIGITS else FIRST_VERSION


def check_dead_letters(contract: Contract) -> None:
    """Raise ``InvalidInput`` unless the dead-letter topic has a valid name and is not the table's own topic."""
    named = contract.dead_letter_topic
    if named and not is_topic(named):
        raise InvalidInput(f"dead_letter_topic {named[:_SHOWN]!a}: expected the name of a topic: {TOPIC_FORM}")
    if contract.dead_letters == contract.topic:
        raise InvalidInput(
            f"the topic {contract.topic!r} is also the dead-letter topic: dead letters would come back as records. Set "
            "table.dead_letter_topic to another topic"
        )


def column_texts(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of an Arrow schema: name to type as text.  Raise ``InvalidSchema`` for a type that lancewal
    does not support."""
    return {field.name: format_type(field.type) for field in schema}


def contract_family(making: Making | None) -> Family:
    """Return the object keys of a contract's versions.

    In a table with a making, version 1 lies outside the listed prefix, so no listing shows it."""
    family = Family.made(making, paths.contract_prefix, paths.contract_version, paths.parse_contract_version)
    return replace(family, first_is_listed=making is None)


def encode_contract(contract: Contract) -> bytes:
    # Terms that have their defaults are left out, so the bytes are those of a release without these terms.
    fields = Contract.model_fields
    unset = {
        term for term in _LATER_TERMS if getattr(contract, term) == fields[term].get_default(call_default_factory=True)
    }
    return contract.model_dump_json(indent=1, exclude_none=True, exclude=unset).encode()


def decode_contract(data: bytes, where: str) -> Contract:
    """Return the contract in ``data``, the content of the object ``where``.  Raise ``FormatUnknown`` for a later
    format, ``ObjectCorrupt`` for anything else that is not a contract.

    A decoded contract can be used: its regions have object keys, its columns have Arrow types, and its version is that
    of its key.
    """
    contract = decode_model(Contract, data, where, "contract", FORMAT)
    types_length = sum(len(column.type) for column in contract.columns)
    try:
        if types_length > TYPES_LENGTH_MAX:
            raise InvalidSchema(
                f"its column types have {types_length} characters; at most {TYPES_LENGTH_MAX} are allowed"
            )
        check_row_schema(contract.rows)
        check_region_key(contract.rows, contract.key_format, contract.envelope)
        check_ttl(contract.ttl, contract.rows, contract.patches)
        check_sources(contract.rows, contract.sources, contract.envelope)
        for column in contract.columns:
            parse_type(column.widened.type)
        paths.region_prefix(contract.regions[0], None)
        check_dead_letters(contract)
    except ActionNeeded as error:
        raise ObjectCorrupt(f"{where} is not a contract: {str(error)[:_SHOWN]}", object=where) from error
    version = paths.parse_contract_version(where)
    if version is not None and contract.version != version:
        raise ObjectCorrupt(
            f"{where} is corrupt: it says that it is version {contract.version} of the contract, and its key is that of "
            f"version {version}",
            object=where,
        )
    if version is not None and version != FIRST_VERSION and contract.making != paths.making_of(where):
        raise ObjectCorrupt(
            f"{where} is corrupt: it says that its making is {contract.making}, and its key has another one",
            object=where,
        )
    return contract


def read_contract(store: ObjectStore, table_uri: str, tasks: Tasks | None = None) -> Contract:
    """Return the newest contract.  Raise ``NotALancewalTable`` if there is none, ``TableDropped`` if the table was
    dropped.

    ``table_uri``: the table's address, for messages.  ``tasks``: runs requests in parallel.  In a table with a making,
    contract version 1 or 2 then costs two rounds of requests.
    """
    contract = newest_contract(store, tasks)
    if contract is None:
        raise NotALancewalTable(
            f"{table_uri} has no lancewal contract. Correct the address (table.uri, --table). `lancewal table attach` makes a "
            "Lance table that lies there a lancewal table, and `lancewal table create` makes a new one"
        )
    check_in_use(contract, table_uri)
    return contract


def check_in_use(contract: Contract, where: str) -> None:
    """Raise ``TableDropped`` if the table was dropped.  ``where``: the table's address, for the message."""
    if contract.drop is None:
        return
    way_on = (
        "its objects are deleted: make another table at another address"
        if contract.drop.deleting
        else "`lancewal table undrop` takes that back until its objects are deleted"
    )
    raise TableDropped(
        f"the table at {where} was dropped at {utc_text(contract.drop.since_ms)}: {way_on}", version=contract.version
    )


def newest_contract(store: ObjectStore, tasks: Tasks | None = None) -> Contract | None:
    """Return the newest contract, also if the table was dropped; None if there is no contract.

    The keys of later versions have the making that version 1 names.  So no contract of an earlier table at this place
    is taken for a contract of this table.  No version is deleted while the table exists.
    """
    key = paths.contract_version(FIRST_VERSION, None)
    data = store.get(key)
    first = None if data is None else decode_contract(data, key)
    family = contract_family(None if first is None else first.making)
    if first is not None and first.making is not None:
        # Ingest's first start makes version 2, and most tables have no other: no listing is needed.
        keys = [family.key(FIRST_VERSION + 1), family.key(FIRST_VERSION + 2)]
        second, third = [store.get(key) for key in keys] if tasks is None else tasks.map(store.get, keys)
        if second is None:
            return first
        if third is None:
            return decode_contract(second, keys[0])
    found = newest_version(store, family, tasks=tasks)
    return None if found is None else decode_contract(found.data, family.key(found.version))


def newer_contract(store: ObjectStore, known: Contract) -> Contract | None:
    """Return the newest contract if it is newer than ``known``, else None.  The answer None costs one request.

    Raise ``TableDropped`` if the newest contract says that the table was dropped.
    """
    newest = known
    while (data := store.get(key := paths.contract_version(newest.version + 1, newest.making))) is not None:
        newest = decode_contract(data, key)
    check_in_use(newest, newest.place or "this place")
    return None if newest is known else newest


def put_next(store: ObjectStore, clock: Clock, old: Contract, new: Contract) -> Contract:
    """Store ``new`` as the next version of the contract, and return it.

    Raise ``ContractMismatch`` if the newest version is not ``old``.
    """

    family = contract_family(old.making)

    def decide(found: Version | None) -> Contract | None:
        unchanged = found is not None and decode_contract(found.data, family.key(found.version)) == old
        return new if unchanged else None

    match swap(store, family, clock, decide, encode_contract):
        case Swapped():
            return new
        case Declined():
            raise ContractMismatch(
                "another command changed the contract at the same time, and this one changed nothing. Look at `lancewal "
                "table show`, and run the command again if it is still needed"
            )


def change_contract(
    store: ObjectStore, clock: Clock, known: Contract, decide: Callable[[Contract], Contract | None]
) -> Contract:
    """Store what ``decide`` makes of the newest contract as the next version, and return it.

    ``decide`` gets the newest contract and returns the next one, or None to keep it; then the newest is returned.
    ``decide`` may raise.  It is called again if another process stores a version first.  If no version is found, it
    gets ``known``, which the caller read earlier.
    """
    family = contract_family(known.making)

    def of(found: Version | None) -> Contract:
        return known if found is None else decode_contract(found.data, family.key(found.version))

    outcome = swap(store, family, clock, lambda found: decide(of(found)), encode_contract)
    return outcome.value if isinstance(outcome, Swapped) else of(outcome.found)


def former_columns(store: ObjectStore, contract: Contract) -> Iterator[Contract]:
    """Yield for each earlier state of the columns its newest contract version.  Newer states come first; each costs one
    request."""
    while contract.columns_version > FIRST_VERSION:
        contract = read_contract_version(store, contract, contract.columns_version - 1)
        yield contract


def columns_made(store: ObjectStore, newest: Contract, change: str | None) -> Contract:
    """Return the newest contract version whose columns come from ``change``, a value of ``Contract.columns_change``.

    ``newest``: the newest contract version.  If no version names the change, somebody has deleted the contracts since
    and attached the table again.  Then return the newest version with the columns of version 1."""
    found = newest
    for found in chain([newest], former_columns(store, newest)):
        if found.columns_change == change:
            break
    return found


class WrittenContracts:
    """Cache of contract versions by which unmerged rows were written.  Threads may share it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._found: dict[tuple[Making | None, int], Contract] = {}
        self._unnamed: dict[tuple[Making | None, int], Contract] = {}

    def know(self, contract: Contract) -> None:
        """Add a version that the caller has read, so that ``of`` needs no request for it."""
        self._found[contract.making, contract.version] = contract

    def of(self, newest: Contract, version: int) -> Contract:
        """Return a version by its number.  The first call for a number costs one request, unless ``newest`` has this
        number or ``know`` got it."""
        if version == newest.version:
            return newest
        known = self._found.get((newest.making, version))
        if known is None:
            known = read_contract_version(self._store, newest, version)
            self.know(known)
        return known

    @property
    def known(self) -> tuple[Contract, ...]:
        """All versions that ``of`` has read or ``know`` got."""
        return tuple(self._found.values())

    def up_to(self, newest: Contract) -> list[Contract]:
        """Return all versions up to ``newest``, oldest first.  Versions that only this call has read are not in
        ``known``."""
        return [*(self._former(newest, version) for version in range(1, newest.version)), newest]

    def _former(self, newest: Contract, version: int) -> Contract:
        key = newest.making, version
        found = self._found.get(key) or self._unnamed.get(key)
        if found is None:
            found = self._unnamed[key] = read_contract_version(self._store, newest, version)
        return found


def read_contract_version(store: ObjectStore, newest: Contract, version: int) -> Contract:
    """Return a contract version by its number.  ``newest``: any version of the same contract, which gives the making.

    Raise ``ObjectCorrupt`` if the version is missing."""
    key = paths.contract_version(version, newest.making)
    data = store.get(key)
    if data is None:
        raise ObjectCorrupt(
            f"{key} is missing, and WAL entries may name this version of the contract. Restore the object from the "
            "store's own versions",
            object=key,
        )
    return decode_contract(data, key)
