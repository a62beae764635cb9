"""The contract: what a table is.  It holds everything that decides which rows a WAL entry has.

A contract is an immutable object per version (``paths.contract_version``).  It changes only by explicit commands, each
a new version.  A WAL entry's rows follow from (topic id, partition, first, next, contract version) alone.
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
"""Terms about records that cannot become rows.  A process that works by an older version of these terms does no harm."""
TRUNCATE = "truncate"
"""Kind of a record that says that the source table was truncated.  It never has a dead letter."""
UNAVAILABLE_VALUE = "unavailable_value"
"""Kind of an event without a value that the table cannot keep."""
MISROUTED = "misrouted"
"""Kind of a record that lies in another partition than the one where it belongs; all other kinds are bad records."""
OTHER_RECORD = "other_record"
"""Kind of a record of another type than the contract's ``value_record``."""
KEY_FORM_CHANGED = "key_form_changed"
"""Kind of a good record whose key has a form that the contract does not list.  It stops its partition.  If a person passes it,
it has a dead letter under any policy."""
UNREADABLE = "unreadable"
"""Kind of a record that nobody could read, and that a person has skipped.  It has a dead letter under any policy."""
GROUP_TERMS = frozenset({"group_id", "former_group_id"})
"""Terms that say which consumer group takes the records."""
NAME_TERMS = frozenset({"name"})
"""Terms that only people and their tools look at.  A process takes a new one when it starts."""
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
"""Terms that decide neither which rows an entry has nor where it lies."""
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
"""Terms about columns.  Rows of two versions that differ in these alone go together (``rows.carry``), so a running process
takes them up."""
VALUE_TERMS = frozenset(
    {
        *("value_format", "value_record", "schema_versions", "key_forms"),
        *("envelope", "snapshot_rows", "unavailable_value", "on_unavailable_value"),
    }
)
"""Terms that say how records are read.  A running process takes them up, and each entry names the version by which its records
were decoded.  The format changes only before a table has a row, and the record never."""
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
"""Terms that the first release did not have.  Their defaults say what it does."""
SCHEMA_VERSIONS_MAX = 1_000
"""Most versions of a schema of a registry."""
SCHEMAS_ACCEPTED_MAX = 10_000
"""Most schemas of a registry with several versions."""
PARTITIONS_MAX = 200_000
"""Most partitions.  Regions are enumerated from the contract.  No topic has so many, but a damaged contract may say so."""
GROUP_MAX = 32_767
"""Bytes of a group's name in Kafka's protocol."""
TYPES_LENGTH_MAX = 1 << 20
"""Most characters of all column types together, enough for tens of thousands of nested fields."""
_INT64_MAX = 2**63 - 1
_TTL_S_MAX = 100 * 366 * 24 * 3600
_SHOWN = 300
_FIELD_LENGTH_MAX = 1 << 10
_VERSION_DIGITS = 18


def _making(text: str) -> Making:
    return Making(word(text, "text"))


def _key_form(text: str) -> KeyForm:
    if not is_key_form(text):
        raise ValueError(f"{text[:_SHOWN]!a} is not a form of keys")
    return KeyForm(text)


class Widening(StoredModel):
    """A wider type that a column is to get.  The flusher writes its values, then the column has the type."""

    type: str
    field_ids: Annotated[tuple[int, ...], FailFast()]
    """Lance's ids of the column's field and, depth first, of its nested fields, once they are wider.  A field whose type
    stays keeps its id."""
    since_ms: int = Field(ge=0)
    """When a command asked for it, in milliseconds since 1970; if several did, the first."""


class Column(StoredModel):
    """One column of the table."""

    name: str
    type: str
    """Text form (``column_types``)."""
    field_ids: Annotated[tuple[int, ...], FailFast()]
    """Lance's ids of the column's field and, depth first, of its nested fields."""
    first_ids: tuple[int, ...] | None = None
    """Ids that these fields had when they were added.  Lance gives a widened field a new id.  None: none was widened."""
    default: str | None = None
    """JSON of the value that an upsert without the column gets.  None: null."""
    widening: Widening | None = None
    json_form: JsonForm | None = None
    """A form in which the JSON value may come, beside the strict one.  None: the strict one alone."""
    field: Annotated[str, Field(min_length=1, max_length=_FIELD_LENGTH_MAX)] | None = None
    """The name that records use.  None: the column's."""
    metadata: Annotated[str, Field(max_length=METADATA_LENGTH_MAX)] | None = None
    """The metadata of records that fills the column, such as ``kafka.offset``.  None: members of values do."""

    toast: Literal["never"] | None = None
    """``never``: no connector leaves values of the column out.  None: it may."""

    @property
    def source(self) -> ColumnSource:
        """Source of the column's values in records."""
        return ColumnSource(self.json_form, self.field, self.metadata, self.toast)

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids that tell the fields apart through all versions of the contract."""
        return self.field_ids if self.first_ids is None else self.first_ids

    @property
    def lance_ids(self) -> tuple[int, ...]:
        """Lance's ids of the fields: those in force, and those that an open widening gives."""
        return (*self.field_ids, *self.widened.field_ids)

    @property
    def widened(self) -> Column:
        """The column once its widening is done."""
        if self.widening is None:
            return self
        wider = {"type": self.widening.type, "field_ids": self.widening.field_ids}
        return self.model_copy(update={**wider, "first_ids": self.ids, "widening": None})


class FormerName(StoredModel):
    """A name that records may still use for a field."""

    id: int
    """The field's id in ``Column.ids``."""
    name: str


class DroppedField(StoredModel):
    """Record of a dropped column, or of a dropped member of a struct."""

    name: str
    within: int | None = None
    """The struct's id in ``Column.ids``; None: the field was a column."""
    forgotten: bool = False
    """Whether a record with this name is bad again.  Otherwise the name is passed over and counted."""


class TableDrop(StoredModel):
    """The drop of a table.  The version that says it is the last one, unless ``table undrop`` puts the next."""

    since_ms: int = Field(ge=0)
    """When ``table drop`` wrote it, in milliseconds since 1970."""
    deleting: bool = False
    """Whether the deletion of the table's objects has begun.  Nothing brings the table back then."""


class Contract(StoredModel):
    """A contract (module docstring).  Positions are Kafka offsets to read next; windows are in seconds."""

    format: Version2 = 1
    """2 once columns were changed, or if a term has a value that the first release does not know.  That release refuses such
    a table by name."""
    version: int = Field(default=1, ge=1)
    table_uuid: Word
    """Id of the table, new at each place that the table is taken to.  No two tables that services work on share one."""
    place: str | None = None
    """The table's ``place``, recorded by the command that gave the table its uuid.  None: no command has recorded
    it."""
    name: Word | None = None
    """The table's name in a catalog, for metrics, logs and status.  None: no command has given it one."""
    making: Annotated[Making, AfterValidator(_making)] | None = None
    """The table's making, which never changes.  None: the table was made before tables had makings."""
    group_id: Annotated[str, Field(min_length=1, max_length=GROUP_MAX)] | None = None
    """The consumer group that takes the records.  Processes compare it with their own.  None: the first group that
    starts is taken."""
    former_group_id: Annotated[str, Field(min_length=1, max_length=GROUP_MAX)] | None = None
    """The group from which ``table alter --group`` moved the table."""
    topic: str
    topic_id: str
    partitions: int = Field(ge=1, le=PARTITIONS_MAX)
    regions_per_page: int = Field(default=128, ge=1, le=PARTITIONS_MAX)
    """Regions whose states lie in the same objects; never changes."""
    primary_key: Annotated[tuple[str, ...], Field(max_length=COLUMNS_MAX)]
    region_key: Annotated[tuple[str, ...], Field(max_length=COLUMNS_MAX)]
    key_format: KeyFormat = "canonical"
    partitioner: Partitioner = "murmur2"
    start: Annotated[tuple[Annotated[int, Field(ge=-1, le=_INT64_MAX)], ...], Field(max_length=PARTITIONS_MAX)]
    """First position of each partition; -1 means the low watermark at the first claim."""
    columns: Annotated[tuple[Column, ...], Field(max_length=COLUMNS_MAX)]
    value_format: ValueFormat = "json"
    value_record: Annotated[str, Field(min_length=1, max_length=_FIELD_LENGTH_MAX)] | None = None
    """Name of the records that are rows, in a topic of several types.  None: records of any name are."""
    schema_versions: Annotated[
        dict[Word, Annotated[int, Field(ge=2, le=SCHEMA_VERSIONS_MAX)]], Field(max_length=SCHEMAS_ACCEPTED_MAX)
    ] = Field(default_factory=dict)
    """By the key of a writer schema, the newest version that counts.  Of all other schemas only version 1 counts."""
    key_forms: Annotated[
        tuple[Annotated[KeyForm, AfterValidator(_key_form)], ...], Field(max_length=KEY_FORMS_MAX)
    ] = ()
    """Forms of record keys that give rows, if keys have schemas (``record_keys.key_form``).  Empty until ingest has met the
    first such key."""
    envelope: Envelope = "none"
    snapshot_rows: Literal["apply", "skip"] = "apply"
    unavailable_value: Annotated[str, Field(min_length=1, max_length=METADATA_LENGTH_MAX)] = PLACEHOLDER
    """Text by which a connector marks a value that it could not read."""
    on_unavailable_value: Policy = "stop"
    """``ignore``: the cell is null, and the record no bad one."""
    patches: bool = True
    record_bytes_max: int = Field(default=1_000_000, ge=1)
    on_bad_record: Policy = "dead-letter"
    on_wrong_format: Literal["stop", "dead-letter"] = "stop"
    """Policy for the first records of a partition, until one of them is a row."""
    on_unknown_schema: Literal["stop", "dead-letter"] = "stop"
    on_other_record: Policy = "dead-letter"
    """Policy for a record of another name than ``value_record``.  Under ``ignore`` it is passed over."""
    on_misrouted: Policy = "stop"
    on_truncate: Literal["stop", "ignore"] = "stop"
    dead_letter_topic: str | None = None
    """Topic of dead letters.  None: ``<topic>.dead-letters``."""
    columns_change: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}-[0-9a-f]{1,64}$")] | None = None
    """The change that made the columns: this version's number or an earlier one, ``-``, and a random text.  The table's
    schema names the change that it shows (``columns_mark``).  None: the columns are those of version 1."""
    highest_field_id: int | None = None
    """The highest field id that any version of the contract, the table's schema or a data file had named when the
    columns were last changed.  None: the columns are those of version 1."""
    former_names: tuple[FormerName, ...] = ()
    dropped: tuple[DroppedField, ...] = ()
    on_unknown_column: OnUnknownColumn = "reject"
    columns_max: int = Field(default=200, ge=1, le=COLUMNS_MAX)
    """Most columns up to which ``on_unknown_column: add`` adds."""
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
    """Positions of the last change of the number of partitions, by partition; empty if there was none."""

    @cached_property
    def rows(self) -> RowSchema:
        """Columns as Arrow types, and the keys."""
        key = frozenset(self.primary_key)
        fields = [pa.field(c.name, parse_type(c.type), nullable=c.name not in key) for c in self.columns]
        ids = tuple(c.ids for c in self.columns)
        return RowSchema(pa.schema(fields), self.primary_key, self.region_key, ids if all(ids) else ())

    @cached_property
    def sources(self) -> Mapping[str, ColumnSource]:
        """Sources of the columns' values in records, by name.  Columns without a source of their own are left out."""
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
        """Whether the columns are those of version 1 of the contract."""
        return self.columns_change is None

    @property
    def columns_version(self) -> int:
        """The version of the contract that has changed the columns last; 1 if none has."""
        return columns_version(self.columns_change)

    @cached_property
    def row_terms(self) -> str:
        """All terms that decide which rows entries have and where these lie, as text.  The texts of two versions are
        equal if only other terms were altered."""
        return self.model_dump_json(exclude={"version", *BESIDE_ROWS})

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions of the table: enumerated from here, never from a listing."""
        return tuple(Region(self.topic, TopicId(self.topic_id), p) for p in range(self.partitions))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """All pages of the table, in which the states of its regions lie."""
        return tuple(dict.fromkeys(map(self.page_of, self.regions)))

    def page_of(self, region: Region) -> Page:
        """The page in which the region's state lies."""
        return Page.of(region, self.regions_per_page, self.making)

    @cached_property
    def fields_of(self) -> Mapping[str, tuple[int, ...]]:
        """Lance's ids of the fields of each column."""
        return {c.name: c.field_ids for c in self.columns}

    @cached_property
    def field_ids(self) -> tuple[int, ...]:
        """Lance's ids of all fields, nested ones included."""
        return tuple(i for c in self.columns for i in c.field_ids)

    @property
    def dead_letters(self) -> str:
        """The topic of dead letters."""
        return self.dead_letter_topic or dead_letters_of(self.topic)

    def policy_of(self, kind: str) -> Policy:
        """Return the policy for a record that is not a row, by the kind of its rejection."""
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
        """The policy for each sort of records that are no rows, by its name in ``lancewal table alter --on``."""
        more: dict[str, Policy] = {} if self.value_record is None else {"other-record": self.on_other_record}
        if self.envelope != "none":
            more["unavailable-value"] = self.on_unavailable_value
        return {"bad-record": self.on_bad_record, "misrouted": self.on_misrouted, **more}

    def has_letter(self, kind: str) -> bool:
        """Return whether a record that an entry of this contract version lists with this kind became a dead letter."""
        return kind == UNREADABLE or (kind != TRUNCATE and self.policy_of(kind) != "ignore")

    @cached_property
    def key_codec(self) -> KeyCodec | None:
        """Encoding of the record keys; None if the bytes of a key do not follow from its row."""
        return key_codec(self.record_rows, self.key_format)

    def partition_of(self, key: bytes) -> int:
        """Return the partition in which a record with this key belongs; -1 if in none."""
        return partition_of(key, self.partitions, self.partitioner)

    def partitions_of(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return ``partition_of`` for each key of a binary or string array; -1 for a null."""
        return partitions_of(keys, self.partitions, self.partitioner)

    @property
    def rows_tell_partition(self) -> bool:
        """Whether the columns of a row tell its record's key, and the key its partition."""
        return self.why_rows_do_not_tell is None

    @property
    def why_rows_do_not_tell(self) -> str | None:
        """The setting, and its value, by which the columns of a row do not tell its partition; None if they tell it."""
        return why_rows_do_not_tell(self.key_format, self.partitioner)

    @property
    def ttl(self) -> Ttl | None:
        """Rule by which rows expire; None: they never do."""
        if self.ttl_column is None or self.ttl_s is None:
            return None
        return Ttl(self.ttl_column, self.ttl_s)

    @property
    def uuid(self) -> TableUuid:
        return TableUuid(self.table_uuid)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with ``update`` applied.  Values derived from the old terms are not copied, since they do not
        hold for new terms."""
        copied = super().model_copy(update=dict(update or {}), deep=deep)
        for derived in copied.__dict__.keys() - Contract.model_fields.keys():
            del copied.__dict__[derived]
        return copied

    def start_of(self, partition: int) -> Position | None:
        """Return the first position of a partition, or None for its low watermark.  Partitions added later start at 0."""
        if partition >= len(self.start):
            return Position(0)
        start = self.start[partition]
        return None if start < 0 else Position(start)


def changed_terms(before: Contract, after: Contract) -> frozenset[str]:
    """Return the names of the terms in which two versions differ."""
    terms = Contract.model_fields.keys() - {"version"}
    return frozenset(term for term in terms if getattr(before, term) != getattr(after, term))


def columns_version(mark: str | None) -> int:
    """Return the contract version that a change of columns names (``Contract.columns_change``); 1 for None."""
    number, _, _ = (mark or "").partition("-")
    return int(number) if number.isascii() and number.isdigit() and len(number) <= _VERSION_DIGITS else FIRST_VERSION


def check_dead_letters(contract: Contract) -> None:
    """Raise ``InvalidInput`` unless the dead-letter topic has a valid name, and is not the topic itself."""
    named = contract.dead_letter_topic
    if named and not is_topic(named):
        raise InvalidInput(f"dead_letter_topic {named[:_SHOWN]!a}: expected the name of a topic: {TOPIC_FORM}")
    if contract.dead_letters == contract.topic:
        raise InvalidInput(f"dead letters in the topic {contract.topic} itself would come back")


def column_texts(schema: pa.Schema) -> dict[str, str]:
    """Return ``{column: type text}`` of an Arrow schema.  Raises ``InvalidSchema`` for a type that lancewal does not
    have.
    """
    return {field.name: format_type(field.type) for field in schema}


def contract_family(making: Making | None) -> Family:
    """Return the object keys of a contract's versions, as a family.  In a table with a making, no listing of them shows
    version 1."""
    family = Family.made(making, paths.contract_prefix, paths.contract_version, paths.parse_contract_version)
    return replace(family, first_is_listed=making is None)


def encode_contract(contract: Contract) -> bytes:
    # Terms without a value are left out: then the bytes are as before these terms existed.
    fields = Contract.model_fields
    unset = {
        term for term in _LATER_TERMS if getattr(contract, term) == fields[term].get_default(call_default_factory=True)
    }
    return contract.model_dump_json(indent=1, exclude_none=True, exclude=unset).encode()


def decode_contract(data: bytes, where: str) -> Contract:
    """Decode a contract.  Raise ``FormatUnknown`` for a later format, ``ObjectCorrupt`` for anything else that is not a
    contract.

    A decoded contract can be used: its regions have object keys, its columns are Arrow types, and it is the version
    that its key says.
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
            f"{where} is corrupt: it says that it belongs to the making {contract.making}", object=where
        )
    return contract


def read_contract(store: ObjectStore, table_uri: str, tasks: Tasks | None = None) -> Contract:
    """Return the newest contract.  Raises ``NotALancewalTable`` if there is none, ``TableDropped`` if the table was
    dropped.  With ``tasks``, a version up to 2 costs two rounds of requests.
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
    """Raise ``TableDropped`` if the table was dropped.  ``where``: its address, for the message."""
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
    """Return the newest contract, or None if there is none.  The table may be dropped.

    Version 1 names the making under which the other versions lie.  So no contract of an earlier table at this place is
    taken for a contract of this table.  No version is ever deleted.
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
    """Return the newest contract if it is newer than the ``known`` one, else None, which costs one request.

    Raises ``TableDropped`` if it says that the table was dropped.
    """
    newest = known
    while (data := store.get(key := paths.contract_version(newest.version + 1, newest.making))) is not None:
        newest = decode_contract(data, key)
    check_in_use(newest, newest.place or "this place")
    return None if newest is known else newest


def put_next(store: ObjectStore, clock: Clock, old: Contract, new: Contract) -> Contract:
    """Store ``new`` as the next version of the contract, and return it.

    Raises ``ContractMismatch`` if the newest version is not ``old`` any more.
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
                "somebody else changed the contract at the same time. Look at `lancewal table show`, and run the "
                "command again if it is still needed"
            )


def change_contract(
    store: ObjectStore, clock: Clock, known: Contract, decide: Callable[[Contract], Contract | None]
) -> Contract:
    """Call ``decide`` with the newest version, store the result as the next version, and return it.  If the result is
    None, return the newest version.

    ``decide`` may raise.  It is called again if another process has stored a version meanwhile.  If no version is found
    any more, it gets ``known``, which was read before.
    """
    family = contract_family(known.making)

    def of(found: Version | None) -> Contract:
        return known if found is None else decode_contract(found.data, family.key(found.version))

    outcome = swap(store, family, clock, lambda found: decide(of(found)), encode_contract)
    return outcome.value if isinstance(outcome, Swapped) else of(outcome.found)


def former_columns(store: ObjectStore, contract: Contract) -> Iterator[Contract]:
    """Yield a version for each earlier state of the columns, newest first; each costs one request."""
    while contract.columns_version > FIRST_VERSION:
        contract = read_contract_version(store, contract, contract.columns_version - 1)
        yield contract


def columns_made(store: ObjectStore, newest: Contract, change: str | None) -> Contract:
    """Return the last version with the columns that this change made; ``newest`` is the newest version.

    Perhaps no version names the change.  Then the change is from before somebody deleted the contracts and attached
    the table again, and the first contract of the attached table is returned."""
    found = newest
    for found in chain([newest], former_columns(store, newest)):
        if found.columns_change == change:
            break
    return found


class WrittenContracts:
    """Cache of the contract versions under which rows were written.  Each is read once, when rows name it.  Threads may
    share it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._found: dict[tuple[Making | None, int], Contract] = {}
        self._unnamed: dict[tuple[Making | None, int], Contract] = {}

    def know(self, contract: Contract) -> None:
        """Keep a version that was read elsewhere, so that rows which name it cost no request."""
        self._found[contract.making, contract.version] = contract

    def of(self, newest: Contract, version: int) -> Contract:
        """Return the version of this number.  If it is ``newest``, nothing is read."""
        if version == newest.version:
            return newest
        known = self._found.get((newest.making, version))
        if known is None:
            known = read_contract_version(self._store, newest, version)
            self.know(known)
        return known

    @property
    def known(self) -> tuple[Contract, ...]:
        """All versions that rows have named."""
        return tuple(self._found.values())

    def up_to(self, newest: Contract) -> list[Contract]:
        """Return every version of the contract, oldest first.  Rows need not name them, so they are not ``known``."""
        return [*(self._former(newest, version) for version in range(1, newest.version)), newest]

    def _former(self, newest: Contract, version: int) -> Contract:
        key = newest.making, version
        found = self._found.get(key) or self._unnamed.get(key)
        if found is None:
            found = self._unnamed[key] = read_contract_version(self._store, newest, version)
        return found


def read_contract_version(store: ObjectStore, newest: Contract, version: int) -> Contract:
    """Return the version of the table's contract under which WAL entries were written; ``newest`` is any other version."""
    key = paths.contract_version(version, newest.making)
    data = store.get(key)
    if data is None:
        raise ObjectCorrupt(
            f"{key} is missing, and WAL entries name this version of the contract. Restore the object from the "
            "store's own versions",
            object=key,
        )
    return decode_contract(data, key)
