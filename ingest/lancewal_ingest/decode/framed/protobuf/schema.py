"""Protobuf schemas: the files that a writer schema has, linked, and the message that a path names.

Guarantees
1. ``message_of`` returns the descriptor of a message of a writer schema, or raises ``SchemaUnusable``.  It needs the
   stored texts alone.
2. A text is that of a ``.proto`` file, or a ``FileDescriptorProto`` in base64, as serializers register it.
3. Google's ``google/protobuf/*.proto`` are those of the installed package ``protobuf``.  Other imports that
   registries have built in are in ``_BUILT_IN``.  An import of another file that the schema does not bring is passed
   over: most of these define options.  A type from such a file is an error that names the type.
4. Linking checks names, numbers and types as protoc does, by the package ``protobuf``.
5. When serializers write a path, some count the messages of maps within a message, and some do not.  A path that may
   mean two messages is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

from lancewal_core.process.library_errors import first_line
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.payloads import SchemaUnusable, check_writer
from lancewal_ingest.decode.framed.protobuf.proto_text import NESTING_MAX, ProtoSyntaxError, parse_proto

_SHOWN = 100
_MAIN = "<schema>.proto"
_IMPORTS_DEEP = 100
_LINKED_MAX = 16
"""Maximum number of linked schemas that stay in memory."""
_GOOGLE_NAMES = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
)  # fmt: skip
_GOOGLE: Mapping[str, FileDescriptor] = {
    f"google/protobuf/{name}.proto": import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR for name in _GOOGLE_NAMES
}
_GOOGLE_MESSAGES: Mapping[str, Descriptor] = {
    message.full_name: message for file in _GOOGLE.values() for message in file.message_types_by_name.values()
}
_BUILT_IN = {
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "google/type/date.proto": 'syntax = "proto3"; package google.type; '
    "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; '
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "google/type/money.proto": 'syntax = "proto3"; package google.type; '
    "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "google/type/latlng.proto": 'syntax = "proto3"; package google.type; '
    "message LatLng { double latitude = 1; double longitude = 2; }",
}


def message_of(schema: WriterSchema, path: tuple[int, ...]) -> Descriptor:
    """Return the message of a writer schema that a path names.  Raises ``SchemaUnusable`` if the schema is not valid,
    or no single message has this path.
    """
    return _chosen(_usable(schema), path)


def messages_of(schema: WriterSchema) -> Sequence[Descriptor]:
    """Return the messages at the top level of a writer schema, at least one.  Raises ``SchemaUnusable`` if there is
    none, or the schema is not valid.
    """
    found = _usable(schema)
    if not found:
        raise SchemaUnusable("the schema has no message")
    return found


def _usable(schema: WriterSchema) -> Sequence[Descriptor]:
    found = _messages(schema)
    if isinstance(found, str):
        raise SchemaUnusable(found)
    return found


@lru_cache(_LINKED_MAX)
def _messages(schema: WriterSchema) -> Sequence[Descriptor] | str:
    """Return the messages at the top level of a schema, or why it is unusable.

    Linked schemas are cached, because each value may name another path.
    """
    try:
        return list(_linked(schema).message_types_by_name.values())
    except SchemaUnusable as unusable:
        return str(unusable)


def _linked(schema: WriterSchema) -> FileDescriptor:
    check_writer(schema, "protobuf")
    linker = _Linker(dict(schema.references))
    linker.add(_parsed(schema.text, _MAIN, "schema"), 0)
    return linker.pool.FindFileByName(_MAIN)


def is_known(message: Descriptor) -> bool:
    """Return whether a message is really one of Google's, and not a different message with the same name."""
    google = _GOOGLE_MESSAGES.get(message.full_name)
    return google is not None and _shape(message) == _shape(google)


def _shape(message: Descriptor) -> list[tuple[object, ...]]:
    return [(one.name, one.number, one.type, one.is_repeated, one.has_presence) for one in message.fields]


def is_map_entry(message: Descriptor | None) -> bool:
    return message is not None and bool(message.GetOptions().map_entry)


def map_parts(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return the key field and the value field of a map; None if the field is not a map."""
    message = field.message_type
    if message is None or not is_map_entry(message):
        return None
    return message.fields_by_number[1], message.fields_by_number[2]


def _chosen(messages: Sequence[Descriptor], path: tuple[int, ...]) -> Descriptor:
    """Return the message at a path.  Numbers of the path are indexes of messages, with or without the messages of
    maps.  Raises ``SchemaUnusable`` unless the path means exactly one message.
    """
    found = list(_at(messages, path[0]))
    for number in path[1:]:
        found = [
            within
            for one in found
            for within in (
                *_at(list(one.nested_types), number),
                *_at([other for other in one.nested_types if not is_map_entry(other)], number),
            )
            if not is_map_entry(within)
        ]
    names = sorted({one.full_name for one in found})
    shown = ", ".join(map(str, path))
    if not names:
        raise SchemaUnusable(f"the schema has no message at the path {shown}, which the frame names")
    if len(names) > 1:
        raise SchemaUnusable(
            f"the path {shown} means {names[0][:_SHOWN]!a} or {names[1][:_SHOWN]!a}, because serializers count messages "
            "with and without those of maps: declare the fields of maps after the messages"
        )
    return found[0]


def _at(messages: Sequence[Descriptor], number: int) -> Sequence[Descriptor]:
    return messages[number : number + 1]


def _parsed(text: str, name: str, where: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a text, under the name ``name``.  Parts that do not say how bytes are read are left
    out.
    """
    file = _serialized(text.strip())
    if file is None:
        try:
            return parse_proto(text, name)
        except ProtoSyntaxError as error:
            raise SchemaUnusable(f"{where}: {error}") from None
    file.name = name
    # Features say how the bytes of editions are read.
    kept = descriptor_pb2.FileOptions()
    if file.options.HasField("features"):
        kept.features.CopyFrom(file.options.features)
    for part in ("service", "extension", "source_code_info", "options"):
        file.ClearField(part)
    if kept.ByteSize():
        file.options.CopyFrom(kept)
    messages = [(one, 1) for one in file.message_type]
    while messages:
        message, depth = messages.pop()
        if depth > NESTING_MAX:
            raise SchemaUnusable(f"{where}: messages nest more than {NESTING_MAX} deep")
        message.ClearField("extension")
        for field in message.field:
            field.json_name = field.name
        if message.options.map_entry and not _is_entry(message):
            raise SchemaUnusable(f"{where}: the message of a map has a key and a value, and nothing else")
        messages += [(one, depth + 1) for one in message.nested_type]
    return file


def _is_entry(message: descriptor_pb2.DescriptorProto) -> bool:
    fields = [(one.number, one.label) for one in message.field]
    return sorted(fields) == [(number, descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL) for number in (1, 2)]


def _serialized(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor that the text has in base64; None if it has none.  The text of a ``.proto`` file is never
    base64: it has spaces, braces and quotes.
    """
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


class _Linker:
    def __init__(self, references: Mapping[str, str]) -> None:
        self.pool = DescriptorPool()
        self._references = references
        self._added: set[str] = set()

    def add(self, file: descriptor_pb2.FileDescriptorProto, depth: int) -> None:
        """Add a file, after the files that it imports."""
        if depth > _IMPORTS_DEEP:
            raise SchemaUnusable(f"imports are more than {_IMPORTS_DEEP} deep")
        self._added.add(file.name)
        public = {file.dependency[number] for number in file.public_dependency if 0 <= number < len(file.dependency)}
        there = [name for name in dict.fromkeys(file.dependency) if self._import(name, depth + 1)]
        for part in ("dependency", "public_dependency", "weak_dependency", "option_dependency"):
            if part in file.DESCRIPTOR.fields_by_name:
                file.ClearField(part)
        file.dependency.extend(there)
        file.public_dependency.extend(number for number, name in enumerate(there) if name in public)
        where = "schema" if file.name == _MAIN else f"reference {file.name[:_SHOWN]!a}"
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, DecodeError, EncodeError) as error:
            raise SchemaUnusable(f"{where}: Protobuf refuses it: {first_line(error)[: 2 * _SHOWN]!a}") from None

    def _import(self, name: str, depth: int) -> bool:
        """Add the file of this name, and return whether there is such a file."""
        if name in self._added:
            return True
        if name in _GOOGLE:
            file = descriptor_pb2.FileDescriptorProto()
            _GOOGLE[name].CopyToProto(file)
        elif name in self._references:
            file = _parsed(self._references[name], name, f"reference {name[:_SHOWN]!a}")
        elif name in _BUILT_IN:
            file = parse_proto(_BUILT_IN[name], name)
        else:
            return False
        self.add(file, depth)
        return True
