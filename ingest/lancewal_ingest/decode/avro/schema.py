"""Avro schemas as values, and the parser of their text (Avro 1.11 and 1.12).

Guarantees
1. ``parse_schema`` returns the type that a schema defines, or raises ``SchemaUnusable``.  It checks the schemas that
   the schema refers to as well.  The message names the place in the schema.
2. Names, namespaces, references, unions, symbols, sizes and attributes of wrong kinds are checked as the
   specification has it.  A logical type that is unknown, or that does not fit its type, is ignored, as the
   specification has it.  A name that a converter of Kafka Connect has given a type (``connect.name``) takes
   precedence over its logical type.
3. Defaults and aliases are checked for their form alone: they say nothing about how bytes were written.
4. All texts together are limited (``framed.payloads.check_writer``), and types nest at most ``NESTING_MAX`` deep.  A
   record may contain itself by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.payloads import SchemaUnusable, check_writer

Primitive = Literal["null", "boolean", "int8", "int16", "int", "long", "float", "double", "bytes", "string", "other"]
"""Names of primitive types.  Kafka Connect's schemas add three: the integers ``int8`` and ``int16``, and ``other``
for a type that no column can hold."""
PRIMITIVES: frozenset[str] = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NESTING_MAX = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 100


class Logical(NamedTuple):
    """A valid logical type.  ``precision`` and ``scale`` are those of a decimal.

    Schemas of Kafka Connect have further ones (``CONNECT_NAMES``).  ``epoch-UNIT`` is a time in UTC, for columns with
    and without a zone.  ``zoned-text`` is a time with a zone, written as in JSON.  ``duration-UNIT`` is a duration.
    ``clock-UNIT`` is a time of day or a duration, because MySQL's times may exceed a day.  A decimal without a
    precision has the precision 0.
    """

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class AvroPlain:
    """A primitive type."""

    kind: Primitive
    logical: Logical | None = None
    said: str = ""
    """Description of the type in messages, if it comes from a schema of Kafka Connect; empty otherwise."""


@dataclass(frozen=True, slots=True)
class AvroFixed:
    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class AvroEnum:
    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AvroArray:
    items: AvroType


@dataclass(frozen=True, slots=True)
class AvroMap:
    values: AvroType


@dataclass(frozen=True, slots=True)
class AvroUnion:
    branches: tuple[AvroType, ...]

    @property
    def others(self) -> list[AvroType]:
        """All branches but null."""
        return [branch for branch in self.branches if named(branch) != "null"]


@dataclass(slots=True, eq=False)
class AvroRecord:
    """A record.  Its fields are set after the record is created, because they may refer to the record."""

    name: str
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] | None = None
    """Types of the fields that take bytes.  None before the record is complete.  A field with the record itself
    counts as taking bytes, since it has no value otherwise."""


class AvroField(NamedTuple):
    name: str
    type: AvroType


AvroType = AvroPlain | AvroFixed | AvroEnum | AvroArray | AvroMap | AvroUnion | AvroRecord

_LOGICALS: Mapping[str, tuple[str, ...]] = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "time-nanos",
        *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    ),
    "string": ("uuid",),
    "bytes": ("decimal",),
    "fixed": ("decimal", "duration", "uuid"),
}
"""Logical types that each type may have."""
CONNECT_NAMES: Mapping[tuple[str, str], str] = {
    ("int", "org.apache.kafka.connect.data.Date"): "date",
    ("int", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("long", "org.apache.kafka.connect.data.Timestamp"): "epoch-millis",
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "clock-millis",
    ("long", "io.debezium.time.MicroTime"): "clock-micros",
    ("long", "io.debezium.time.NanoTime"): "clock-nanos",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "local-timestamp-nanos",
    ("long", "io.debezium.time.MicroDuration"): "duration-micros",
    ("long", "io.debezium.time.NanoDuration"): "duration-nanos",
    ("string", "io.debezium.time.ZonedTimestamp"): "zoned-text",
    ("string", "io.debezium.data.Uuid"): "uuid",
}
"""Logical type for each type and the name that schemas of Kafka Connect give it.  Names that need further parameters
are not here."""
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
CONNECT_PRECISION = "connect.decimal.precision"
"""Parameter with the precision of a decimal of Kafka Connect.  Without it, the precision in an Avro schema is the
converter's own, and says nothing about the values."""


def parse_schema(schema: WriterSchema) -> AvroType:
    """Return the type that a writer schema defines.  Raises ``SchemaUnusable`` if the schema, or one that it refers
    to, is not valid.
    """
    check_writer(schema, "avro")
    parser = _Parser()
    for name, known in schema.references:
        parser.schema(known, f"reference {name[:_SHOWN]!a}")
    return parser.schema(schema.text, "schema")


def named(type_: AvroType) -> str:
    """Return the type's name, by which a union distinguishes its branches."""
    match type_:
        case AvroPlain(kind=kind):
            return kind
        case AvroArray():
            return "array"
        case AvroMap():
            return "map"
        case AvroUnion():
            return "union"
        case AvroFixed(name=name) | AvroEnum(name=name) | AvroRecord(name=name):
            return name


def described(type_: AvroType) -> str:
    """Return a description of a type, for messages."""
    match type_:
        case AvroPlain(said=said) if said:
            return said
        case AvroPlain(logical=logical) | AvroFixed(logical=logical):
            kind = named(type_) if isinstance(type_, AvroPlain) else f"fixed({type_.size})"
            if logical is None:
                return kind
            digits = f"({logical.precision}, {logical.scale})" if logical.name == "decimal" else ""
            return f"{kind} with {logical.name}{digits}"
        case AvroUnion(branches=branches):
            if len(branches) > 2:
                return f"union of {len(branches)} types"
            return f"union of {', '.join(map(described, branches))}"
        case AvroEnum(name=name):
            return f"enum {name[:_SHOWN]}"
        case AvroRecord(name=name):
            return f"record {name[:_SHOWN]}" if name else "struct"
        case _:
            return named(type_)


def takes_no_bytes(type_: AvroType) -> bool:
    """Return whether every value of the type is encoded in zero bytes."""
    match type_:
        case AvroPlain(kind=kind):
            return kind == "null"
        case AvroFixed(size=size):
            return size == 0
        case AvroRecord():
            return type_.parts == ()
        case _:
            return False


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._depth = 0

    def schema(self, text: str, where: str) -> AvroType:
        try:
            found = orjson.loads(text)
        except ValueError:
            raise SchemaUnusable(f"{where}: the text is not JSON") from None
        return self._type(found, "", where)

    def _type(self, given: Any, space: str, where: str) -> AvroType:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise SchemaUnusable(f"{where}: types nest more than {NESTING_MAX} deep")
        found = self._inner(given, space, where)
        self._depth -= 1
        return found

    def _inner(self, given: Any, space: str, where: str) -> AvroType:
        if isinstance(given, str):
            return self._called(given, space, where)
        if isinstance(given, list):
            return self._union(given, space, where)
        if not isinstance(given, dict):
            raise SchemaUnusable(f"{where}: expected a name, an object or an array, which is a union")
        kind = given.get("type")
        match kind:
            case "record" | "error":
                return self._record(given, space, where)
            case "enum":
                return self._enum(given, space, where)
            case "fixed":
                return self._fixed(given, space, where)
            case "array":
                return AvroArray(self._type(self._member(given, "items", where), space, f"{where}, items"))
            case "map":
                return AvroMap(self._type(self._member(given, "values", where), space, f"{where}, values"))
            case str() if kind in PRIMITIVES:
                return AvroPlain(kind, _logical(given, kind))  # type: ignore[arg-type]  # a primitive
            case str():
                return self._called(kind, space, where)
        raise SchemaUnusable(f"{where}: expected a member 'type' with the name of a type")

    def _called(self, name: str, space: str, where: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroPlain(name)  # type: ignore[arg-type]  # a primitive
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise SchemaUnusable(f"{where}: type {full[:_SHOWN]!a} is not defined before its use")
        return found

    def _union(self, given: list[Any], space: str, where: str) -> AvroUnion:
        branches = tuple(self._type(one, space, f"{where}, branch {number}") for number, one in enumerate(given))
        names = [named(branch) for branch in branches]
        if "union" in names:
            raise SchemaUnusable(f"{where}: a union must not be a branch of a union")
        if len(set(names)) != len(names):
            raise SchemaUnusable(f"{where}: expected a union of branches that each have another type or name")
        return AvroUnion(branches)

    def _record(self, given: dict[str, Any], space: str, where: str) -> AvroType:
        name, space = self._name(given, space, where)
        record = AvroRecord(name)
        known = self._named.setdefault(name, record)
        fields = self._member(given, "fields", where)
        if not isinstance(fields, list):
            raise SchemaUnusable(f"{where}: expected an array of fields")
        record.fields = tuple(self._fields(fields, space, where))
        record.parts = tuple(field.type for field in record.fields if not takes_no_bytes(field.type))
        return record if known is record else self._define(name, record, where)

    def _fields(self, given: list[Any], space: str, where: str) -> Iterator[AvroField]:
        seen = set()
        for number, one in enumerate(given):
            if not isinstance(one, dict):
                raise SchemaUnusable(f"{where}, field {number}: expected an object")
            name = one.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise SchemaUnusable(f"{where}, field {number}: expected a name of letters, digits and _")
            place = f"{where}, field {name[:_SHOWN]!r}"
            if name in seen:
                raise SchemaUnusable(f"{place}: there are two fields of this name")
            seen.add(name)
            if one.get("order", "ascending") not in ("ascending", "descending", "ignore"):
                raise SchemaUnusable(f"{place}: expected the order ascending, descending or ignore")
            _check_aliases(one, place)
            yield AvroField(name, self._type(self._member(one, "type", place), space, place))

    def _enum(self, given: dict[str, Any], space: str, where: str) -> AvroType:
        name, _ = self._name(given, space, where)
        symbols = self._member(given, "symbols", where)
        if not isinstance(symbols, list) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in symbols):
            raise SchemaUnusable(f"{where}: expected symbols of letters, digits and _")
        if len(set(symbols)) != len(symbols):
            raise SchemaUnusable(f"{where}: there is a symbol twice")
        if given.get("default", symbols[0] if symbols else None) not in (symbols or [None]):
            raise SchemaUnusable(f"{where}: the default is not a symbol")
        return self._define(name, AvroEnum(name, tuple(symbols)), where)

    def _fixed(self, given: dict[str, Any], space: str, where: str) -> AvroType:
        name, _ = self._name(given, space, where)
        size = self._member(given, "size", where)
        if type(size) is not int or not 0 <= size < 1 << 31:
            raise SchemaUnusable(f"{where}: expected a size from 0 to 2^31 - 1")
        return self._define(name, AvroFixed(name, size, _logical(given, "fixed", size)), where)

    def _name(self, given: dict[str, Any], space: str, where: str) -> tuple[str, str]:
        """Return the full name of a definition, and its namespace."""
        name, own = given.get("name"), given.get("namespace", space)
        _check_aliases(given, where)
        if not isinstance(name, str) or not isinstance(own, str):
            raise SchemaUnusable(f"{where}: expected a name and a namespace that are strings")
        if "." in name:
            own = name.rpartition(".")[0]
        elif own:
            name = f"{own}.{name}"
        if not all(map(_NAME.fullmatch, name.split("."))):
            raise SchemaUnusable(f"{where}: expected a name of letters, digits and _, with dots between")
        if name in PRIMITIVES:
            raise SchemaUnusable(f"{where}: a primitive type has the name {name!r}")
        return name, own

    def _define(self, name: str, type_: AvroType, where: str) -> AvroType:
        """Define a name, and return its type.  A name may be defined again as before, as Avro's Java allows."""
        known = self._named.setdefault(name, type_)
        if not _same(known, type_):
            raise SchemaUnusable(f"{where}: there are two types of the name {name[:_SHOWN]!r}")
        return known

    def _member(self, given: dict[str, Any], name: str, where: str) -> Any:
        if name not in given:
            raise SchemaUnusable(f"{where}: expected a member {name!r}")
        return given[name]


def _same(one: AvroType, other: AvroType) -> bool:
    """Return whether two types are equal.  If a record is defined again, named types in the second definition are
    already those of the first one.
    """
    if not (isinstance(one, AvroRecord) and isinstance(other, AvroRecord)):
        return one == other
    return one is other or (one.parts is not None and one.fields == other.fields)


def _check_aliases(given: Mapping[str, Any], where: str) -> None:
    aliases = given.get("aliases", [])
    if not isinstance(aliases, list) or not all(
        isinstance(one, str) and all(map(_NAME.fullmatch, one.split("."))) for one in aliases
    ):
        raise SchemaUnusable(f"{where}: expected 'aliases' to be an array of names")


def _logical(given: Mapping[str, Any], kind: str, size: int | None = None) -> Logical | None:
    connect = given.get("connect.name")
    if isinstance(connect, str) and (of_connect := CONNECT_NAMES.get((kind, connect))) is not None:
        return Logical(of_connect)
    name = given.get("logicalType")
    if name not in _LOGICALS.get(kind, ()):
        return None
    if name in ("duration", "uuid") and size is not None:
        return Logical(name) if size == {"duration": 12, "uuid": 16}[name] else None
    if name != "decimal":
        return Logical(str(name))
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or precision < 1 or not 0 <= scale <= precision:
        return None
    # A fixed of n bytes holds numbers of so many digits.
    if size is not None and 10 ** min(precision, 5000) > 1 << max(8 * min(size, 2500) - 1, 0):
        return None
    parameters = given.get("connect.parameters")
    if connect == CONNECT_DECIMAL and not (isinstance(parameters, dict) and CONNECT_PRECISION in parameters):
        precision = 0
    return Logical("decimal", precision, scale)
