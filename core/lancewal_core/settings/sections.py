"""The sections of the settings.  Every default says why it is what it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from ipaddress import IPv6Address
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from lancewal_core.errors import InvalidSchema, InvalidSettings
from lancewal_core.names.words import (
    TOPIC_FORM,
    cut_name,
    dead_letters_of,
    is_topic,
    is_word,
    table_pattern,
)
from lancewal_core.process.clock import moment_of
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.settings.catalog_url import catalog_url
from lancewal_core.settings.durations import duration_s
from lancewal_core.store.address import table_address

Policy = Literal["stop", "dead-letter", "ignore"]
"""Handling of a record that is not a row of its partition, in all settings ``on_...``.  ``stop`` stops its partition
right before the record.  ``dead-letter`` has the record acknowledged as a dead letter and goes on.  ``ignore`` skips and
counts it."""
POLICIES: tuple[Policy, ...] = get_args(Policy)


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number, not a truth value")
    return value


def _seconds(value: object) -> object:
    """Return the seconds of a text with a unit, such as ``24h``; any other value unchanged."""
    _no_bool(value)
    seconds = duration_s(value) if isinstance(value, str) else None
    return value if seconds is None else seconds


def _milliseconds(value: object) -> object:
    seconds = _seconds(value)
    return seconds * 1000 if isinstance(value, str) and isinstance(seconds, int | float) else seconds


def _option_text(value: object) -> object:
    """Return YAML's numbers and truth values as the text that an option takes; any other value unchanged."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _list_of_names(value: object) -> object:
    """Accept ``a, b`` for ``[a, b]``, the usual form in a variable."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _topic_names(names: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [name for name in names if not is_topic(name.replace("*", "x"))]
    if wrong:
        raise ValueError(f"{wrong[0]!a}: expected names of topics, in which * stands for any characters: {TOPIC_FORM}")
    return names


def _topic_or_nothing(name: str) -> str:
    if name and not is_topic(name):
        raise ValueError(f"expected the name of a topic: {TOPIC_FORM}")
    return name


def _table_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([table_pattern(pattern) for pattern in patterns])


def _start(value: object) -> object:
    if value in ("earliest", "latest") or isinstance(value, datetime):
        return value
    parsed = moment_of(value) if isinstance(value, str) else None
    if parsed is None:
        raise ValueError("expected earliest, latest or a time with zone such as 2026-01-31T00:00:00Z")
    return parsed


def _hosts(value: str) -> str:
    if set("@?") & set(value):
        raise ValueError(
            "user information or a query is not allowed in it (not shown here). Pass secrets as options, from "
            "environment variables or a Secret"
        )
    return value


def _host(value: str) -> str:
    """Return the host, an IPv6 address without its brackets.  ``ValueError`` for a host with a port, a user or a query."""
    _hosts(value)
    host = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if ":" in host:
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError(
                "expected an address or a name, the ports are http.ingest_port and http.flusher_port"
            ) from None
    return host


def _folder_address(uri: str) -> str:
    """Return the address of a table, or of a folder of tables, without a slash at its end."""
    try:
        table_address(uri)
    except InvalidSettings as error:
        raise ValueError(str(error)) from None
    return uri.rstrip("/") or uri


Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
"""A number of seconds, or a text such as ``10m``."""
WholeSeconds = Annotated[int, BeforeValidator(_seconds), Field(ge=0)]
SecondsOrZero = Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[ByteSize, BeforeValidator(_no_bool), Field(gt=0), PlainSerializer(int, return_type=int)]
"""A number of bytes, or a text such as ``512MiB``."""
Names = Annotated[tuple[str, ...], BeforeValidator(_list_of_names)]
Options = dict[str, Annotated[str, BeforeValidator(_option_text)]]
Start = Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_start)]


Port = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=65535)]


class Section(BaseModel):
    """Base class of sections.  A section is frozen, and an unknown key is an error.  A key's docstring gives its
    meaning, and the reason for its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False)


ValueFormat = Literal["json", "connect-json", "avro", "protobuf", "json-schema"]
"""A format of record values."""
TYPED_FORMATS: frozenset[ValueFormat] = frozenset({"connect-json", "avro", "protobuf"})
"""Formats whose schemas say which fields values have, and of which types."""


Envelope = Literal["none", "debezium", "debezium-unwrapped"]
"""A form in which a connector writes rows and names operations."""


PLACEHOLDER = "__debezium_unavailable_value"
"""Text by which Debezium marks a value that it could not read, unless its settings name another one."""
METADATA_LENGTH_MAX = 1 << 10


class FormatSettings(Section):
    """Format of the records in Kafka."""

    value: ValueFormat = "json"
    """Format of record values.  ``json``: plain JSON.  ``connect-json``: JSON of Kafka Connect, in which each value has its
    schema.  ``avro``, ``protobuf``, ``json-schema``: Avro, Protobuf and JSON behind the frame of a schema registry.  Plain
    JSON, because it needs no registry."""
    record: Annotated[str, Field(max_length=1 << 10)] = ""
    """Full name of the records that are rows, in a topic of several types.  An Avro record and a Protobuf message have
    names, and so has the schema of a ``connect-json`` value.  ``table.on_other_record`` decides about the others.  Not set:
    records of any name are rows, by their fields."""
    key: KeyFormat = "canonical"
    """Format of record keys.  ``canonical``: the encoding of ``table.region_key`` as text.  ``short``, ``integer``,
    ``long``: one integer as Kafka's serializer of that name writes it.  ``json-compact``: a JSON object without spaces, as
    Kafka Connect writes it.  ``json``: a JSON object in any text.  ``connect-json``, ``avro``, ``protobuf``,
    ``json-schema``: as for values.  ``bytes``: any bytes.  Canonical, because a text key needs no setting in
    most clients, and ingest notices a row in a wrong partition."""
    envelope: Envelope = "none"
    """The envelope that a connector has put around each row.  ``debezium``: a change event, which names its operation and
    has the row in ``after``.  ``debezium-unwrapped``: rows that ExtractNewRecordState has taken out.  None, because a value
    is the row itself unless a connector writes it."""
    unavailable_value: Annotated[str, Field(min_length=1, max_length=METADATA_LENGTH_MAX)] = PLACEHOLDER
    """Text by which the connector marks a value that it could not read (``unavailable.value.placeholder``).  Debezium's
    default."""


JsonForm = Literal[
    "epoch_s", "epoch_ms", "epoch_us", "utc", "number_text", "text", "bool_text", "raw", "json_text", "number", "base64"
]
"""A lenient form that a column's values may have in JSON, in addition to the strict one."""
JSON_FORMS: tuple[JsonForm, ...] = get_args(JsonForm)
NEVER: Literal["never"] = "never"
"""Value of ``toast`` for a column whose values a connector never leaves out."""
ColumnText = str | dict[str, str]
"""A column in the settings: its type, or a mapping with ``type`` and optionally ``json``, ``field`` and ``toast``."""
_COLUMN_KEYS = ("type", "json", "field", "toast")


def checked_column(value: object) -> ColumnText:
    """Return a column in the form that settings hold.  Raises ``ValueError`` that says what is wrong with it."""
    if isinstance(value, str):
        return _column_type(value)
    if not isinstance(value, dict):
        raise PydanticCustomError("column_form", "needs a type")
    given = {str(name): text for name, text in value.items()}
    unknown = [name for name in given if name not in _COLUMN_KEYS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!a}: a column takes {', '.join(_COLUMN_KEYS)}")
    wrong = [name for name in given if not isinstance(given[name], str) or not given[name]]
    if wrong or "type" not in given:
        raise ValueError(f"{wrong[0] if wrong else 'type'} needs a text: put a type with a comma or brackets in quotes")
    if given.get("json", JSON_FORMS[0]) not in JSON_FORMS:
        raise ValueError(f"json is {given['json']!a}: expected one of {', '.join(JSON_FORMS)}")
    if given.get("toast", NEVER) != NEVER:
        raise ValueError(f"toast is {given['toast'][:60]!a}: expected {NEVER}. Leave toast out otherwise")
    if any("\ud800" <= letter <= "\udfff" for letter in given.get("field", "")):
        raise ValueError("field is not Unicode text")
    _column_type(given["type"])
    return given["type"] if len(given) == 1 else {key: given[key] for key in _COLUMN_KEYS if key in given}


_BYTES = ("binary", "string")
_METADATA_TYPES: dict[str, tuple[str, ...]] = {
    "kafka.topic": ("string",),
    "kafka.partition": ("int32",),
    "kafka.offset": ("int64",),
    "kafka.timestamp": ("timestamp[ms, UTC]",),
    "kafka.key": _BYTES,
    "envelope.op": ("string",),
    "envelope.ts_ms": ("timestamp[ms, UTC]",),
    "envelope.source.ts_ms": ("timestamp[ms, UTC]",),
    "envelope.source.lsn": ("int64",),
}
"""Metadata of a record, each with the types that its column may have."""
_HEADER = "kafka.header."


def metadata_types(source: str) -> tuple[str, ...]:
    """Return the types that a column with this metadata may have, the usual one first; empty if there is no such
    metadata."""
    if source.startswith(_HEADER) and len(_HEADER) < len(source) <= METADATA_LENGTH_MAX:
        return _BYTES
    return _METADATA_TYPES.get(source, ())


def is_metadata(source: str) -> bool:
    """Return whether records have metadata of this name: ``kafka.offset``, ``kafka.header.NAME``, ``envelope.op`` and
    so on."""
    return bool(metadata_types(source))


def is_of_envelope(source: str) -> bool:
    """Return whether metadata of this name comes from the envelope of a value, and not from Kafka."""
    return source.startswith("envelope.") and is_metadata(source)


def checked_metadata(value: object) -> ColumnText:
    """Return a column with metadata in the form that settings hold.  Raises ``ValueError`` that says what is wrong
    with it."""
    given = {"source": value} if isinstance(value, str) else value
    if (
        not isinstance(given, dict)
        or not given.keys() <= {"source", "type"}
        or not isinstance(given.get("source"), str)
    ):
        raise ValueError("expected a source such as kafka.offset, or a mapping with source and type")
    source = given["source"]
    types = metadata_types(source)
    if not types or any("\ud800" <= letter <= "\udfff" for letter in source):
        raise ValueError(f"source is {source!a}: expected one of {', '.join(_METADATA_TYPES)}, {_HEADER}NAME")
    if "type" in given and (types != _BYTES or given["type"] not in types):
        raise ValueError("only kafka.key and headers take a type, binary or string: leave type out")
    return source if given.get("type", types[0]) == types[0] else {"source": source, "type": given["type"]}


def _column_type(text: str) -> str:
    from lancewal_core.rows.column_types import parse_type  # pyarrow loads slowly, and most starts do not need it

    if not text.isascii():
        raise ValueError(f"column type {text!a} has characters that no type has")
    try:
        parse_type(text)
    except InvalidSchema as error:
        raise ValueError(str(error)) from None
    return text


def _unicode_names(columns: dict[str, ColumnText]) -> dict[str, ColumnText]:
    wrong = [ascii(name) for name in columns if any("\ud800" <= c <= "\udfff" for c in name)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: a column's name is not Unicode text")
    return columns


OnUnknownColumn = Literal["reject", "ignore", "add"]
"""Treatment of a record that names a column which the table lacks.  ``reject``: it is bad.  ``ignore``: it is a row without
the column.  ``add``: the column is added to the table."""


class TableSettings(Section):
    """The table's contract, complete: ``table create`` and ``table attach`` make it durable, later commands compare,
    and ``table alter`` changes what may change."""

    uri: Annotated[str, AfterValidator(_folder_address)] = ""
    """Folder of the Lance table: a local path, ``file://``, ``s3://bucket/prefix``, ``gs://bucket/prefix``,
    ``az://container/prefix`` or ``abfss://container@account.dfs.core.windows.net/prefix``, without a password.  Or the
    table's name in the catalog, if there is one.  No default: only you know it."""
    topic: str = ""
    """The topic.  No default; only ``table create`` and ``table attach`` need it, afterwards the contract names it."""
    dead_letter_topic: Annotated[str, AfterValidator(_topic_or_nothing)] = ""
    """Topic for dead letters, which must exist.  By default ``<topic>.dead-letters``."""
    columns: Annotated[
        dict[str, Annotated[ColumnText, PlainValidator(checked_column)]], AfterValidator(_unicode_names)
    ] = {}
    """Column names and types, in the table's order.  In place of a type there may be a mapping: ``type``, ``json``,
    ``field`` and ``toast``.  ``json``: a form that records may use beside the strict one.  ``field``: the name that records
    use.  ``toast: never``: no connector leaves values out.  No default; only ``table create`` needs it."""
    metadata_columns: Annotated[
        dict[str, Annotated[ColumnText, PlainValidator(checked_metadata)]], AfterValidator(_unicode_names)
    ] = {}
    """Further columns, after the others, with Kafka's metadata of the record that made the row: ``kafka.topic``,
    ``kafka.partition``, ``kafka.offset``, ``kafka.timestamp``, ``kafka.key``, ``kafka.header.NAME``.  ``{source:
    kafka.key, type: string}`` gives text instead of bytes.  With ``format.envelope: debezium`` also ``envelope.op``,
    ``envelope.ts_ms``, ``envelope.source.ts_ms``, ``envelope.source.lsn``.  Empty, because they take room in every
    row."""
    primary_key: Names = ()
    """Columns that identify a row.  No default: a wrong guess would merge different rows."""
    region_key: Names = ()
    """Columns of the primary key that producers key by.  No default: it must match the producers.  Leave it out with
    ``format.key: bytes``."""
    format: FormatSettings = FormatSettings()
    partitioner: Partitioner = "murmur2"
    """Partitioner of the producers: ``murmur2`` (Java, kafkajs), ``crc32`` (librdkafka's default: Python, Go, .NET, C),
    ``fnv1a`` (Sarama).  ``none``: any other; then no partition is checked, and a row does not tell it.  Murmur2,
    because it is the default of Kafka's own clients."""
    patches: bool = True
    """Whether records may carry only some columns.  On, because it costs nothing until such a record comes.  A compacted
    topic needs ``false``, because compaction would drop the record that a patch builds on."""
    start: Start = "earliest"
    """First records to take: ``earliest``, ``latest`` or a time with zone.  All records in Kafka, so that nothing is
    left out unless you say so."""
    record_bytes_max: Bytes = ByteSize(1_000_000)
    """Largest record: key, value and headers together. Just below the brokers' default limit (1 MiB), so hardly any
    record in Kafka is refused."""
    on_bad_record: Policy = "dead-letter"
    """Policy for a record that cannot become a row: ``stop`` its partition, make it a ``dead-letter``, or ``ignore`` it
    (skip and count it).  Dead letters, because one bad record should not hold back all others, and it stays listed and
    repairable."""
    on_wrong_format: Literal["stop", "dead-letter"] = "stop"
    """Policy for the first records of a partition, until one of them is a row.  ``stop`` the partition before a record of
    another format, and before its hundredth record if all are bad of one kind.  ``dead-letter`` lets ``on_bad_record``
    decide, as it does later.  Stop, because otherwise a wrong topic becomes dead letters to its end."""
    on_unknown_schema: Literal["stop", "dead-letter"] = "stop"
    """Policy for records that name a schema which the registry does not know.  ``stop`` the partition, or let
    ``on_bad_record`` decide about such records for good (``dead-letter``).  Stop, because the registry may be the wrong one,
    or get the schema back."""
    on_other_record: Policy = "dead-letter"
    """Policy for a record of another name than ``table.format.record``.  ``stop`` its partition, make it a ``dead-letter``, or
    ``ignore`` it: it is passed over and counted, and no bad record.  Dead letters, because a misspelt name must not lose
    records unseen."""
    on_misrouted: Policy = "stop"
    """Policy for a record in another partition than its region key's.  Stop, because it nearly always means that a whole
    producer uses another partitioner."""
    on_truncate: Literal["stop", "ignore"] = "stop"
    """Policy for a record that says that the source table was truncated: ``stop`` its partition, or ``ignore`` it, so that all
    rows stay.  Stop, because it lies in one partition and says nothing about the rows of the others."""
    on_unavailable_value: Policy = "stop"
    """Policy for an event without a large value that did not change, if the table cannot keep the row's former value.
    ``stop`` the partition, make the record a ``dead-letter``, or ``ignore`` the gap, so that the cell is null.  Stop,
    because a null would take a value away that the source still has."""
    snapshot_rows: Literal["apply", "skip"] = "apply"
    """Rows that a snapshot of the source has read: ``apply`` them as upserts, or ``skip`` and count them.  Apply, because a
    new table needs them; skip them if a dump was loaded."""
    on_unknown_column: OnUnknownColumn = "reject"
    """Policy for a member of a record for which the table has no column.  ``reject`` the record, so that ``on_bad_record``
    decides about it; ``ignore`` the member (skip and count it); or ``add`` the column.  Reject, because a misspelt name
    must not lose values unseen.  In a format whose schemas have fields (``avro``, ``protobuf``, ``connect-json``),
    ``reject`` stops the partition: its producer would write more such records.  ``add`` needs such a format."""
    columns_max: Annotated[int, Field(ge=1, le=4_096)] = 200
    """Number of columns of a table at which ``on_unknown_column: add`` adds no more.  Enough for wide sources, and a
    producer that makes up names does not fill the table with them."""
    history_window_s: WholeSeconds = 24 * 3600
    """Time that WAL entries stay after their merge.  A day, so that lost files can be rebuilt and
    faults investigated."""
    version_window_s: WholeSeconds = 7 * 24 * 3600
    """Time that a table version stays after a newer one, at least the history window and an hour.  A week, because a long
    job or a person may go back to it.  Files of replaced rows stay as long."""
    subscription_hold_s_max: WholeSeconds = 7 * 24 * 3600
    """Time that a subscription may keep WAL entries and table versions after its state was the newest.  A week, as table
    versions stay anyway: a consumer may fail over a long weekend, and a forgotten one does not fill the store."""
    grace_s: WholeSeconds = 600
    """Time that an unreferenced object stays.  Longer than any plan or running PUT takes."""
    freshness_target_s: Seconds = 60.0
    """Age of the oldest record that is not durable above which the table counts as stale.  ``table show`` prints it, as
    an aim for your alerts; only ``flusher.merge_defer_s`` uses it.  Several times what a healthy ingest needs, so
    that an alert does not fire in a rebalance."""

    base_paths: Literal["refuse", "allow"] = "refuse"
    """Policy for a table whose manifest names files in other folders, as a shallow clone's does: ``refuse`` or ``allow``
    it.  Refuse, because otherwise somebody who can write the manifest chooses what is read, and what is copied into the
    table's folder."""
    ttl_column: str = ""
    """A timestamp or date by which rows expire.  Not set: no row is deleted unless a record says so."""
    ttl_s: Annotated[int, BeforeValidator(_seconds), Field(ge=0, le=100 * 366 * 24 * 3600)] = 0
    """Age of the time in ``ttl_column`` at which the flusher deletes the row.  0: rows never expire."""

    @model_validator(mode="after")
    def _fits(self) -> TableSettings:
        for contradiction in self._contradictions():
            raise ValueError(contradiction)
        return self

    def _contradictions(self) -> Iterator[str]:
        typed = self.format.value in TYPED_FORMATS
        if bool(self.ttl_column) != bool(self.ttl_s):
            yield "ttl_column and ttl_s belong together: set both, or neither"
        if self.on_unknown_column == "add" and not typed:
            yield (
                f"on_unknown_column is add, but {self.format.value} has no schema that says the type of a new column: use "
                "reject or ignore, and `lancewal table alter --add-column`"
            )
        formed = [name for name, column in self.columns.items() if not isinstance(column, str) and "json" in column]
        if formed and typed:
            yield (
                f"column {formed[0]!r} has json, but the schemas of format {self.format.value} say the form of each value. "
                "Leave json out, and take a type that the schema's type fits"
            )
        if self.format.record and not typed:
            yield (
                f"format.record is {self.format.record[:60]!a}, but records of the format {self.format.value} have no names: "
                f"leave it out, or use {' or '.join(sorted(TYPED_FORMATS))}"
            )
        if not self.format.record and self.on_other_record != TableSettings.model_fields["on_other_record"].default:
            yield "on_other_record needs format.record, which names the records that are rows"
        if self.snapshot_rows != "apply" and self.format.envelope != "debezium":
            yield (
                f"snapshot_rows is {self.snapshot_rows}, but format.envelope is {self.format.envelope}: only the envelope "
                "debezium says which rows a snapshot has read"
            )
        if self.topic and self.dead_letter_topic == self.topic:
            yield f"dead_letter_topic is the topic itself ({self.topic}): dead letters would come back"
        twice = [name for name in self.metadata_columns if name in self.columns]
        if twice:
            yield f"{twice[0]!a} is in columns and in metadata_columns: give one of them another name"

    @property
    def dead_letters(self) -> str:
        """The topic of dead letters of a table that these settings make."""
        return self.dead_letter_topic or dead_letters_of(self.topic)


_OURS = {
    "bootstrap.servers": "set kafka.bootstrap_servers",
    "metadata.broker.list": "set kafka.bootstrap_servers",
    "group.id": "set kafka.group_id",
    "enable.auto.commit": "lancewal commits positions itself, after records are durable",
    "enable.auto.offset.store": "lancewal commits positions itself, after records are durable",
    "auto.offset.reset": "the start position is in the table's contract; another one loses or repeats rows",
    "check.crcs": "lancewal always checks the checksums of records",
    "isolation.level": "aborted transactions must not become rows: always read_committed",
    "enable.partition.eof": "lancewal's consumer does not use it",
    "partitioner": "lancewal sends no rows; table.partitioner says what producers use",
}
"""librdkafka properties that correctness depends on, and what to do instead of setting them."""


def _leave_ours(options: dict[str, str]) -> dict[str, str]:
    taken = [f"{name}: {why}" for name, why in _OURS.items() if name in options]
    if taken:
        raise ValueError("lancewal sets these itself: " + "; ".join(taken))
    return options


class KafkaSettings(Section):
    """Source of the records: brokers, consumer group, topics."""

    bootstrap_servers: Annotated[str, AfterValidator(_hosts)] = ""
    """``host:port``, several with commas.  No default: localhost would hide a forgotten setting."""
    group_id: str = ""
    """Consumer group.  By default ``lancewal-<table uuid>``: two tables on one topic must never share a group.  A table
    has one group.  Ingest with another group does not start until ``lancewal table alter --group`` has moved the
    table."""
    topics: Annotated[Names, AfterValidator(_topic_names)] = ()
    """Topics that a process may read and write dead letters to, including the dead-letter topic; ``*`` stands for any
    characters.  By default the topics in the table's contract, unless ``table.topic`` and ``table.dead_letter_topic``
    say otherwise.  Set it if others may write into the table's folder."""
    options: Annotated[Options, AfterValidator(_leave_ours), Field(repr=False)] = {}
    """Further librdkafka properties, passed on unchanged (TLS, SASL, fetch sizes).  In variables ``_`` stands for the
    dot: ``LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD``.  Fetches are small by default, since the client unpacks a whole
    answer of the broker, whatever its size becomes.  If the broker is far away and you know the producers, set
    ``fetch.max.bytes`` and ``max.partition.fetch.bytes`` (for example 1000000)."""

    def allows(self, topic: str) -> bool:
        """Return whether a process may read the topic, and write dead letters to it.  It may if ``topics`` is not set."""
        return not self.topics or any(fnmatchcase(topic, name) for name in self.topics)

    def group(self, table_uuid: str) -> str:
        """Return the consumer group of the table's ingest."""
        return self.group_id or f"lancewal-{table_uuid}"

    def client(self) -> dict[str, str]:
        """Return the properties that every Kafka client of lancewal starts from: ``options`` and the brokers."""
        return {**self.options, "bootstrap.servers": self.bootstrap_servers}


_REGISTRY_OURS = {
    "url": "set registry.url",
    "max.retries": "lancewal asks again itself, while other partitions go on",
    "timeout": "lancewal waits ten seconds for an answer",
}
"""Properties of the client that lancewal sets, and what to do instead of setting them."""


def _not_ours(options: dict[str, str]) -> dict[str, str]:
    ours = [name for name in options if name in _REGISTRY_OURS]
    if ours:
        raise ValueError(f"{ours[0]} is not an option here: {_REGISTRY_OURS[ours[0]]}")
    return options


def _context(context: str) -> str:
    if context and not (context.startswith(".") and is_word(context)):
        raise ValueError(f"{context[:60]!a}: expected the name of a context, which begins with a dot")
    return context


class RegistrySettings(Section):
    """The schema registry, for formats whose values name their schema."""

    url: Annotated[str, AfterValidator(_hosts)] = ""
    """Address of the registry (``https://HOST:PORT``, several with commas), without a password.  Empty: only schemas that
    the table has stored are known."""
    context: Annotated[str, AfterValidator(_context)] = ""
    """Context of the registry, in which ids have their meaning.  Empty: its default context."""
    options: Annotated[Options, AfterValidator(_not_ours), Field(repr=False)] = {}
    """Further properties of the client in confluent-kafka, passed on unchanged (``basic.auth.user.info``,
    ``ssl.ca.location``, ``bearer.auth.credentials.source`` and so on).  In variables ``_`` stands for the dot."""


CatalogKind = Literal["directory", "rest", "postgres"]


class CatalogSettings(Section):
    """The catalog, which finds tables by name."""

    kind: CatalogKind = "directory"
    """Kind of the catalog.  ``directory``: a folder of the object store, which needs no server.  ``postgres``: a database
    of PostgreSQL.  ``rest``: a server of Lance Namespace."""
    root: Annotated[str, AfterValidator(_folder_address)] = ""
    """Address of the folder in which new tables get a folder by their name, and in which a ``directory`` has its entries.
    Empty: no catalog if its kind is ``directory``, and each table is named by its address."""
    url: str = ""
    """Address of the server of ``postgres`` (``postgresql://USER@HOST:PORT/DATABASE``, several hosts with commas) or
    ``rest`` (``https://HOST:PORT``), without a password."""
    password: Annotated[str, Field(repr=False)] = ""
    """Password of the database's user; for ``rest`` the token that each request carries.  Give it as a file of the secrets
    folder.  Empty: the server asks for none, or ``PGPASSWORD`` or libpq's password file has it."""

    @model_validator(mode="after")
    def _fits(self) -> CatalogSettings:
        if self.kind == "directory":
            if self.url:
                raise ValueError("catalog.url is set, and catalog.kind is directory: set the kind to postgres or rest")
            return self
        if not self.url:
            raise ValueError(f"catalog.kind is {self.kind}, and catalog.url is not set: it names the server")
        try:
            catalog_url(self.url, self.kind)
        except InvalidSettings as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def is_set(self) -> bool:
        """Whether there is a catalog."""
        return bool(self.root or self.url)


class StorageSettings(Section):
    """Access to the object store."""

    options: Annotated[Options, Field(repr=False)] = {}
    """Lance's storage options, for WAL and table (``aws_region``, ``aws_endpoint``, ``aws_access_key_id``,
    ``aws_secret_access_key``, ``google_service_account``, ``azure_storage_account_name``, ``azure_storage_account_key``,
    ``allow_http``, ...).  Empty: the machine's own credentials and region.  A private authority for TLS is not an option:
    the variable ``SSL_CERT_FILE`` names its file."""


class IngestSettings(Section):
    """Settings of ``lancewal ingest``."""

    memory_bytes_max: Bytes = ByteSize(512 << 20)
    """Memory for rows and records, a quarter of it for librdkafka's queue.  Ingest pauses consumption at this limit.
    Half of a 1 GiB container: the other half is for Python, Arrow and Lance, some 300 MB."""
    linger_ms: Annotated[int, BeforeValidator(_milliseconds), Field(ge=0)] = 50
    """Least time between two WAL PUTs, which bounds the request cost.  If recent PUTs took more than a third of it,
    ingest waits three times their duration, up to a second."""
    segment_rows_max: Annotated[Count, Field(le=500_000)] = 60_000
    """Largest number of rows of a segment, at most 500,000.  If as many rows wait, a PUT starts before ``linger_ms``.
    Some MB: cheap to write, quick to fetch."""
    seal_bytes: Annotated[Bytes, Field(le=1 << 30)] = ByteSize(64 << 20)
    """Seal a MemTable at this size, at most 1 GiB.  Large enough for few large data files, small enough for several
    partitions in memory."""
    seal_rows: Count = 1_000_000
    """Seal a MemTable at this number of rows.  As many as one Lance data file takes."""
    seal_age_s: Seconds = 600.0
    """Seal a MemTable at this age, so that a quiet partition's WAL gets merged and trimmed too."""
    seal_log_distance: Count = 1_000
    """Seal when the log has this many segments since the MemTable's first entry.  A segment with more than four entries
    counts as half the square root of their number.  This bounds the segments that a take-over and a strong read must read.
    With many partitions an eighth of them is sealed at once, and the first generation after a start earlier."""
    bundles: bool = True
    """Copy small WAL segments, up to 32, into one object that distant readers fetch instead.  On, because it
    costs one more PUT for up to 32 segments, and no append waits for it.  Turn it off if nobody reads over a distance."""
    unbounded_batches: Literal["warn", "refuse"] = "warn"
    """Policy for a topic in which a batch may unpack to more than Kafka's client has room for: ``warn`` in the log, or
    ``refuse`` it.  Warn, because every topic with Kafka's default ``compression.type`` is like that.  Choose refuse
    if producers are not trusted."""
    drain_timeout_s: Seconds = 30.0
    """Time after SIGTERM at which the process has ended, also if broker or store hang.  Three quarters are for making
    records durable and handing over, the rest for leaving the group.  The next owner does the work that is left.
    Kubernetes' default grace period."""
    retry_interval_s: Seconds = 0.5
    """Pause after a transient fault of the store or the broker.  Short, because rows wait."""
    offset_commit_interval_s: Seconds = 5.0
    """Time between two commits of positions to the consumer group.  Kafka's own default; these positions only serve lag
    displays."""

    retention_admission_s: SecondsOrZero = 3600.0
    """Open no further partition while Kafka is about to delete records that are not durable: within this time, or a
    quarter of the topic's retention.  An hour, because brokers check every five minutes, and a person needs the
    rest.  0 never holds back."""

    @model_validator(mode="after")
    def _fits(self) -> IngestSettings:
        if self.seal_bytes > self.memory_bytes_max:
            raise ValueError(
                f"seal_bytes ({self.seal_bytes}) exceeds memory_bytes_max ({self.memory_bytes_max}), so memory would "
                "be full before any seal. Lower seal_bytes, or raise memory_bytes_max"
            )
        return self


class MovingCutSettings(Section):
    """A moving cut that a flusher publishes."""

    name: Annotated[str, AfterValidator(cut_name)]
    """Name of the cut in the catalog."""
    tables: Annotated[
        tuple[str, ...], BeforeValidator(_list_of_names), AfterValidator(_table_patterns), Field(min_length=1)
    ]
    """Names of its tables in the catalog, in which ``*`` stands for any characters."""
    every: Annotated[float, BeforeValidator(_seconds), Field(ge=1, allow_inf_nan=False)] = 30.0
    """Time between two publications, such as ``30s``, a second at least.  Half a minute, because each asks the brokers and,
    for each table that changed, the store."""
    lagging: Literal["hold", "leave-out"] = "hold"
    """Handling of a table that lags, or cannot be read: it may ``hold`` the cut back, or the cut does not have it
    (``leave-out``).  Hold, because whoever joins tables would miss its rows unasked."""


def _names_differ(cuts: tuple[MovingCutSettings, ...]) -> tuple[MovingCutSettings, ...]:
    names = [cut.name for cut in cuts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two cuts have the name {twice}: each needs a name of its own")
    return cuts


class FlusherSettings(Section):
    """Settings of ``lancewal flusher run``, and of commands that do one of its turns by hand."""

    merge_interval_s: Seconds = 10.0
    """Time between two looks for flushes to merge, and the duration of one look while more flushes come.  Each merge is
    a table version: six a minute if few rows wait."""
    merge_defer_s: Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=86_400, allow_inf_nan=False)] = 30.0
    """Time that a merge waits for more rows if it would write more bytes of deletion vectors than of rows; never longer
    than ``table.freshness_target_s``.  A few rows all over a large table make such a merge.  Only reads of the merged
    table see these rows later.  0: never."""
    merge_memory_bytes_max: Bytes = ByteSize(1 << 30)
    """Approximate memory of one merge, beside some 300 MB of the process.  It counts 100 bytes for each changed key, and
    the rows that the merge combines.  Since generations share files, it also counts rows that it may have to combine.
    Whole rows that complete patches come on top.  If more generations wait, the flusher merges the oldest first; a
    single generation that needs more is an error.  Half of a 2 GiB container."""
    threads: Count = 2
    """Merge tasks that scan a fragment or write its columns at the same time.  Each holds a flush's keys.  Two overlap
    reading and writing."""
    gc_interval_s: Seconds = 60.0
    """Time between two rounds of trimming and garbage collection.  Rounds only list and delete."""
    drain_timeout_s: Seconds = 60.0
    """Time after SIGTERM at which the process has ended, also if the store hangs.  The flusher finishes its running work
    within this time, or cuts it off, and the next flusher does it again.  A minute, because a merge of many generations
    takes less."""
    runner: Literal["threads", "spark"] = "threads"
    """Place where tasks of merges and compactions run: ``threads`` of this process, or ``spark`` executors.  Threads,
    because they need nothing else."""
    expiry_interval_s: Seconds = 600.0
    """Time between two looks for expired rows, if ``table.ttl_s`` is set.  Ten minutes, because a look that finds
    expired rows rewrites the deletion vectors of their fragments."""
    compaction: bool = True
    """Between merges, rewrite small fragments and fragments with many hidden rows, and extend secondary indexes.  On,
    because every merge adds a fragment, and hidden rows would otherwise stay in their fragments."""
    compaction_interval_s: Seconds = 60.0
    """Time to the next look for work after a look that found none.  In this time merges make about a handful of fragments."""
    compaction_round_bytes_max: Bytes = ByteSize(256 << 20)
    """Largest number of bytes of fragments that one round reads, on Spark each of its tasks.  Larger fragments are left
    to `lancewal compact`.  Some seconds on a common store, and a merge may have to wait for them."""
    compaction_groups_max: Count = 8
    """Largest number of groups of fragments that one round rewrites at the same time on Spark.  On threads a round has
    one group, for memory.  Eight, because this occupies a handful of executors, and a conflict discards little work:
    one commit takes all groups."""
    compaction_target_rows: Count = 1_048_576
    """A fragment is small if it has less than half of these rows and less than half of ``compaction_target_bytes``.
    As many rows as one new data file of lancewal takes."""
    compaction_target_bytes: Bytes = ByteSize(256 << 20)
    """Target size of a fragment in bytes, since a million rows with vectors would be gigabytes.  As much as a round
    reads."""
    compaction_deleted_ratio: Annotated[float, BeforeValidator(_no_bool), Field(gt=0, le=1)] = 0.2
    """Share of hidden rows at which a fragment is rewritten.  A fifth, at which compaction writes five bytes for each
    byte that scans save."""
    index_unindexed_ratio_max: Annotated[float, BeforeValidator(_no_bool), Field(gt=0, le=1)] = 0.1
    """Share of rows without index coverage at which an index is extended.  Queries scan these rows, and a tenth is little."""
    index_unindexed_rows_max: Count = 10_000
    """Number of rows without index coverage at which an index is extended; the limit that is reached first counts.  Ten
    vector queries or three text queries that scan as many rows take as long as indexing them."""
    index_round_bytes_max: Bytes = ByteSize(256 << 20)
    """Largest number of bytes of index entries that one round writes, smallest index first; a single index may take
    more.  As much as a round of compaction reads, for the same reason."""

    cuts: Annotated[tuple[MovingCutSettings, ...], AfterValidator(_names_differ)] = ()
    """Moving cuts that this flusher publishes: a list of mappings with ``name``, ``tables``, ``every`` (30s) and ``lagging``
    (``hold`` or ``leave-out``); needs a catalog and ``kafka.bootstrap_servers``.  Empty, because each asks brokers and
    store.  See docs/how-to/read-tables-together.md."""
    visibility_interval_s: SecondsOrZero = 0.0
    """Time between two measurements of the delay until a strong read sees a produced record; needs
    ``kafka.bootstrap_servers``.  0: none, because each costs requests to brokers and store.  Use ten seconds if an
    alert depends on it."""

    @model_validator(mode="after")
    def _rounds_fit(self) -> FlusherSettings:
        if self.compaction_target_bytes > self.compaction_round_bytes_max:
            raise ValueError(
                f"compaction_target_bytes ({self.compaction_target_bytes}) exceeds compaction_round_bytes_max "
                f"({self.compaction_round_bytes_max}), so no round could write such a fragment. Lower the first, or "
                "raise the second"
            )
        return self


class HttpSettings(Section):
    """Address of each service's Prometheus metrics and health."""

    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    """Address to listen on, IPv4 or IPv6, or a name.  Loopback, so that nothing is exposed unasked; a container sets
    ``0.0.0.0``."""
    ingest_port: Port = 9464
    """Port of ingest, the usual port of metrics in applications.  0 takes a free port, here and for the flusher."""
    flusher_port: Port = 9465
    """Port of the flusher.  A different one, so that both services run on one machine; several processes of one service
    there need a port each."""


class MetricsSettings(Section):
    """Form of the services' Prometheus metrics."""

    per_partition: bool = True
    """Whether each partition has its own figures, with the label ``partition``.  Otherwise they are combined: the sum,
    the largest age, the earliest time.  On, because nearly always a single partition is stuck.  Turn it off if a
    topic has so many partitions that their series cost too much."""
