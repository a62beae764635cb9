"""The settings that ``lancewal config init`` proposes for a table, from a schema of a registry or of a file, or from a
topic.

1. The text is a settings file.  Settings that a schema does not tell are comments, with the value that is most likely.
   Once these lines are uncommented, ``lancewal config check`` accepts the file.
2. Each field becomes a column in the type of ``on_unknown_column: add``, or is a comment that says why not.  A field
   whose name no column can have gets another name for its column.
3. The schema of record keys, in the subject ``...-key`` beside ``...-value``, gives the keys if its fields are columns.
4. If a schema has several messages, the first one gives the columns, and the table takes only records of that message.
5. For a topic of Debezium's connector, the settings follow from the newest records (``connector_topic``).  Comments
   name settings of the connector that are missing or harmful.
6. No secret of the settings is shown.  Without a folder, no file is written.  With a folder, each topic that matches
   gets a file of its own, unless it has the dead letters of another topic.  No file is overwritten.  A topic for which
   no table is possible gets no file, and the other topics get theirs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput, InvalidSettings, RecordsUnreadable, TopicMissing, counted
from lancewal_core.names.words import dead_letters_of
from lancewal_core.settings.sections import PLACEHOLDER
from lancewal_ingest.commands.proposals.schema_fields import RecordSchema, of_connect, of_writer
from lancewal_ingest.commands.proposals.settings_text import (
    SHOWN,
    Columns,
    are_keys,
    block,
    column_lines,
    columns_for,
    flow,
    key_lines,
    listed,
    said,
)

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings
    from lancewal_core.wal.writer_schemas import WriterSchema
    from lancewal_ingest.commands.proposals.connector_topic import ConnectorTopic

_VALUE, _KEY = "-value", "-key"
_OF_PROGRAMS = "__"
"""Prefix of topics that no pattern matches: those of Kafka itself, and heartbeats."""
_TABLE = ("table:", "  # uri: s3://bucket/tables/orders          # The folder of the table.")
_OTHERS_MAX = 10
"""Largest number of other messages of a schema that are listed."""


def proposed_settings(
    settings: Settings, subject: str, file: Path | None, topic_of_connector: str = "", folder: Path | None = None
) -> str:
    """Return a settings file for values of the newest schema of ``subject``, or of the schema in ``file``.

    ``topic_of_connector``: a topic that Debezium writes.  The newest records of this topic are used instead of a
    schema.  With ``folder``, ``topic_of_connector`` is a pattern.  Each matching topic gets a file in the folder,
    unless there is one already or no table fits.  The result lists the topics, each with its file or why it has none.
    """
    if topic_of_connector:
        return _of_topics(settings, topic_of_connector, folder)
    if file is not None:
        return _text(_of_file(file), f"the schema in {file.name}")
    if not settings.registry.url:
        raise InvalidSettings("--from-subject asks a schema registry, and registry.url is not set. Set it")
    from lancewal_ingest.registry.confluent import ConfluentRegistry

    registry = ConfluentRegistry(settings.registry)
    found = registry.newest(subject)
    if found is None:
        raise InvalidInput(f"--from-subject {subject[:SHOWN]!a}: the registry has no such subject")
    topic = subject.removesuffix(_VALUE) if subject.endswith(_VALUE) else ""
    key = registry.newest(f"{topic}{_KEY}") if topic else None
    return _text(of_writer(found), f"the newest schema of subject {subject}", topic, key, _shown_registry(settings))


def _shown_registry(settings: Settings) -> dict[str, str]:
    shown = settings.masked()["registry"]
    return {name: shown[name] for name in ("url", "context") if shown[name]}


def _of_file(file: Path) -> RecordSchema:
    import orjson

    from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema

    try:
        if file.stat().st_size > SCHEMA_BYTES_MAX:
            raise InvalidInput(
                f"{file}: the file is larger than a schema may be, which has at most {SCHEMA_BYTES_MAX} bytes"
            )
        data = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"--from-schema {file}: {error.strerror}") from None
    try:
        if file.suffix == ".proto":
            return of_writer(WriterSchema("protobuf", data.decode()))
        given = orjson.loads(data)
    except (orjson.JSONDecodeError, UnicodeDecodeError):
        raise InvalidInput(
            f"--from-schema {file}: expected a JSON file with a schema of Avro, JSON Schema or Kafka Connect, or a .proto "
            "file in UTF-8"
        ) from None
    if isinstance(given, dict) and given.keys() == {"schema", "payload"}:
        return of_connect(orjson.dumps(given["schema"]))
    if isinstance(given, dict) and given.get("type") == "struct":
        return of_connect(orjson.dumps(given))
    properties = isinstance(given, dict) and not {"$schema", "properties", "$ref"}.isdisjoint(given)
    return of_writer(WriterSchema("json-schema" if properties else "avro", data.decode()))


def _of_topics(settings: Settings, pattern: str, folder: Path | None) -> str:
    from lancewal_ingest.commands.proposals.sampled_records import table_of_topic
    from lancewal_kafka.topic import TopicInspector

    settings.need("kafka.bootstrap_servers")
    inspector = TopicInspector(settings.kafka.client())

    def of_topic(topic: str) -> str:
        return connector_settings(table_of_topic(settings, inspector, topic), topic, settings)

    if folder is None:
        return of_topic(pattern)
    wanted = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    names = inspector.names()
    letters = set(map(dead_letters_of, names))
    topics = [n for n in names if wanted.fullmatch(n) and n not in letters and not n.startswith(_OF_PROGRAMS)]
    if not topics:
        raise InvalidInput(f"--from-debezium {pattern[:SHOWN]!a}: no topic matches")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--to {folder}: {error.strerror}") from None
    lines = [f"  {topic}: {_written(folder, topic, of_topic)}" for topic in topics]
    return "\n".join([f"{counted(len(topics), 'topic')} matched:", *lines])


def _written(folder: Path, topic: str, of_topic: Callable[[str], str]) -> str:
    """Write the file of a topic, and return its name.  Return why there is none if no table fits the topic."""
    file = folder / f"{topic}.yaml"
    try:
        text = of_topic(topic)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(f"{text}\n")
    except (InvalidInput, TopicMissing, RecordsUnreadable) as refused:
        return f"no file: {refused}"
    except FileExistsError:
        return f"no file: {file} is there already"
    except OSError as error:
        raise InvalidInput(f"--to {file}: {error.strerror}") from None
    return str(file)


def connector_settings(found: ConnectorTopic, topic: str, settings: Settings) -> str:
    """Return a settings file for a topic of a connector."""
    columns, left_out = columns_for(found.fields)
    if not are_keys(found.key_names, columns):
        named = ", ".join(f"{said(name)} ({dict(found.fields)[name]})" for name in found.key_names)
        raise InvalidInput(
            f"the columns of the record key cannot be keys of a table: {named}. Keys are texts, integers, booleans, dates, "
            "uuids and binaries. decimal.handling.mode=string in the connector makes a number a text, and message.key.columns "
            "takes other columns"
        )
    lines = [
        f"# Proposed from the newest {counted(found.records, 'record')} of topic {said(topic)}.",
        "# Take what applies of the lines that begin with #, and set in the connector and at the source:",
        *(textwrap.fill(f"- {one}", 120, initial_indent="# ", subsequent_indent="#   ") for one in found.advice),
        *_TABLE,
        f"  topic: {flow(topic)}",
        "  format:",
        f"    value: {found.value}",
        f"    key: {found.key}",
        f"    envelope: {found.envelope}",
    ]
    if settings.table.format.unavailable_value != PLACEHOLDER:
        lines.append(f"    unavailable_value: {flow(settings.table.format.unavailable_value)}")
    lines += key_lines(found.key_names, columns)
    lines.append("  partitioner: murmur2    # Kafka Connect has Java's partitioner.")
    lines.append("  on_bad_record: stop    # An event that becomes a dead letter would leave the row as it was before.")
    if found.compacted:
        lines.append("  patches: false    # The topic is compacted, which removes records that a patch builds on.")
    left_out = [(name, found.remarks.get(name, why)) for name, why in left_out]
    lines += column_lines(columns, left_out, found.remarks)
    registry = _shown_registry(settings)
    if registry and found.value not in ("json", "connect-json"):
        lines.append(block({"registry": registry}))
    lines.append(block({"kafka": {"bootstrap_servers": settings.kafka.bootstrap_servers}}))
    return "\n".join(lines)


def _text(
    schema: RecordSchema,
    source: str,
    topic: str = "",
    key: WriterSchema | None = None,
    registry: Mapping[str, str] | None = None,
) -> str:
    columns, left_out = columns_for(schema.fields)
    lines = [
        f"# Proposed from {said(source)}. Take what applies of the lines that begin with #.",
        *_TABLE,
        f"  topic: {flow(topic)}" if topic else "  # topic: orders",
        "  format:",
        f"    value: {schema.format}",
    ]
    if schema.format == "json-schema":
        lines.append(
            "    # value: json                          # In place of the line above, for JSON without a frame."
        )
    keyed = _keyed_by(key, columns)
    if keyed is not None:
        lines.append(f"    key: {keyed.format}")
    if schema.others:
        lines.append(
            f"    record: {flow(schema.name)}    # The schema's first message. No rows: {listed(schema.others, _OTHERS_MAX)}."
        )
        lines.append("    # To take another one, save the schema with that message first, and use --from-schema.")
    elif schema.name:
        lines.append(f"    # record: {flow(schema.name)}    # Only records of this name, in a topic of several types.")
    if key is not None and keyed is None:
        lines.append(
            f"    # key: {key.kind}    # The key's subject has a schema, which is no record of some of these columns."
        )
    lines += key_lines([] if keyed is None else [name for name, _ in keyed.fields], columns)
    lines.append(
        "  # partitioner: crc32    # If producers use librdkafka's default (Python, Go, .NET, C). Java's is murmur2."
    )
    lines += column_lines(columns, left_out)
    if schema.format != "connect-json":
        lines.append(block({"registry": dict(registry)}) if registry else '# registry: {url: "http://127.0.0.1:8081"}')
    lines.append('# kafka: {bootstrap_servers: "127.0.0.1:9092"}')
    return "\n".join(lines)


def _keyed_by(key: WriterSchema | None, columns: Columns) -> RecordSchema | None:
    """Return the schema of the record keys, if it says which columns these have."""
    if key is None:
        return None
    try:
        found = of_writer(key)
    except InvalidInput:
        return None  # no record: which column the key is, nobody knows
    names = [name for name, _ in found.fields]
    known = {field or column for column, (_, field) in columns.items()}
    return found if names and known.issuperset(names) and are_keys(names, columns) else None
