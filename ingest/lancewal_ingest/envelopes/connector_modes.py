"""Advice about settings of a Debezium connector, in messages about bad records.  A wrong mode of the connector is a
likely cause of many bad records.

1. Advice only lengthens the message.  It does not decide whether a value is refused.
2. A setting is named only if another mode of it writes the form that was found.  Each setting comes with the value
   to give it.
3. Advice holds no content of a value.

JSON without schemas does not tell every mode apart: see "Types in JSON without schemas" in the page about change
events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from lancewal_ingest.decode.avro.schema import AvroMap, AvroPlain, AvroRecord, AvroUnion
from lancewal_ingest.decode.framed.mapping import BINARIES, TEXTS
from lancewal_ingest.decode.json.cells import FLOAT_NAMES, base64_bytes
from lancewal_ingest.decode.json.strict import Number

_SET = "Set {} in the connector, if its mode is another one"
_DECIMAL_TEXTS = _SET.format("decimal.handling.mode=string")
_DOUBLES = _SET.format("decimal.handling.mode=double")
_UNITS = _SET.format("time.precision.mode=adaptive")
_INTERVALS = _SET.format("interval.handling.mode=numeric")
_BYTES = _SET.format("binary.handling.mode=bytes")
_ENTRIES = _SET.format("hstore.handling.mode=map")
_UNSIGNED = _SET.format("bigint.unsigned.handling.mode=long")
_SIGNED = (
    "The connector writes an unsigned bigint above 9223372036854775807 as a negative number. Set "
    "bigint.unsigned.handling.mode=precise, for a column binary. With schemas, a column outside keys may be decimal128(20, 0)"
)
_NO_SCALE = (
    "The source's column has no scale: give it one, or make the table's column struct<scale: int32, value: binary>. With "
    "decimal.handling.mode=string in the connector, the table's column is a string"
)
_NUMBER_TEXTS = (
    "Set decimal.handling.mode=string in the connector for decimals, time.precision.mode=isostring for times, "
    "interval.handling.mode=string for intervals"
)
_EPOCH_OR_ISO = (
    "Set time.precision.mode=isostring in the connector for a column timestamp[us, UTC]. With time.precision.mode=adaptive "
    "the column is a timestamp without zone that has json: epoch_us, or epoch_ms for times in milliseconds"
)
_NO_TIMES = (
    "In JSON without schemas a connector writes dates and times as numbers, for columns int32 and int64. With "
    "time.precision.mode=isostring in the connector they are strings"
)
_BEYOND_A_DAY = "MySQL's times go from -838 to 838 hours: make the table's column int64, or a duration"
_TINYINT = (
    "A bool of MySQL comes as 1 or as true. Set converters=boolean and "
    "boolean.type=io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter in the connector, for a column bool"
)
_OF_SCHEMA: Mapping[tuple[str, str], str] = {
    ("decimal", "float"): _SET.format("decimal.handling.mode=precise"),
    ("decimal", "text"): _SET.format("decimal.handling.mode=precise"),
    ("decimal", "parts"): _NO_SCALE,
    ("text", "decimal"): _DECIMAL_TEXTS,
    ("text", "parts"): _DECIMAL_TEXTS,
    ("text", "float"): _DECIMAL_TEXTS,
    ("text", "time"): _SET.format("time.precision.mode=isostring"),
    ("text", "clock"): _SET.format("time.precision.mode=isostring"),
    ("text", "duration"): _SET.format("interval.handling.mode=string"),
    ("text", "bytes"): _SET.format("binary.handling.mode=hex or base64"),
    ("text", "map"): _SET.format("hstore.handling.mode=json"),
    ("float", "decimal"): _DOUBLES,
    ("float", "parts"): _DOUBLES,
    ("float", "text"): _DOUBLES,
    ("time", "text"): _UNITS,
    ("binary", "text"): _BYTES,
    ("duration", "text"): _INTERVALS,
    ("map", "text"): _ENTRIES,
}
"""Advice by the kind of a column and the kind of the type that does not fit it (``_column_kind``, ``_type_kind``)."""
_DATE_OR_TIME = re.compile("-?[0-9]{2,}[-:][0-9]{2}")
_DURATION = re.compile("-?P")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_PARTS = {"scale", "value"}
"""Members of the object or record in which a connector writes a decimal that has no fixed scale."""


class ConnectorModes:
    """Advice about the settings of a Debezium connector, for messages about bad records."""

    def of_value(self, column: pa.DataType, value: object, kind: str) -> str:
        if pa.types.is_list(column) and isinstance(value, list):
            return next(filter(None, (self.of_value(column.value_type, one, kind) for one in value)), "")
        if isinstance(value, Number):
            return _of_number(column, value, kind)
        if kind != "type":
            return ""
        if isinstance(value, bool):
            return _TINYINT if pa.types.is_integer(column) else ""
        if isinstance(value, str):
            return _of_text(column, value)
        if not isinstance(value, dict):
            return ""
        if value.keys() == _PARTS:
            return {"float": _DOUBLES, "decimal": _DECIMAL_TEXTS, "text": _DECIMAL_TEXTS}.get(_column_kind(column), "")
        texts = all(one is None or (isinstance(one, str) and not isinstance(one, Number)) for one in value.values())
        return _OF_SCHEMA["text", "map"] if texts and column in TEXTS else ""

    def of_type(self, column: pa.DataType, type_: object) -> str:
        if isinstance(type_, AvroUnion):
            return self.of_type(column, type_.others[0]) if len(type_.others) == 1 else ""
        found = _type_kind(type_)
        if column == pa.uint64() and found == "number":
            return _SIGNED
        if pa.types.is_time(column) and found == "clock":
            return _BEYOND_A_DAY
        if pa.types.is_integer(column) and column.bit_width == 64 and found == "decimal":
            return _UNSIGNED
        return _OF_SCHEMA.get((_column_kind(column), found), "")


def _of_number(column: pa.DataType, number: str, kind: str) -> str:
    if kind == "range":
        if column == pa.uint64() and number.startswith("-"):
            return _SIGNED
        return _DECIMAL_TEXTS if pa.types.is_decimal128(column) else ""
    if column in TEXTS:
        return _NUMBER_TEXTS
    if pa.types.is_timestamp(column):
        return _EPOCH_OR_ISO
    if pa.types.is_date32(column) or pa.types.is_time(column):
        return _NO_TIMES
    return _TINYINT if pa.types.is_boolean(column) else ""


def _of_text(column: pa.DataType, text: str) -> str:
    in_base64 = base64_bytes(text) is not None
    match _column_kind(column):
        case "decimal" | "float" if text in FLOAT_NAMES:
            return ""  # a decimal that is no number, which no mode writes as one
        case "decimal":
            return _DECIMAL_TEXTS if in_base64 else ""
        case "float":
            return _DOUBLES if in_base64 or _DECIMAL.fullmatch(text) else ""
        case "integer" | "duration" if _DURATION.match(text):
            return _INTERVALS
        case "integer" if _DATE_OR_TIME.match(text):
            return _UNITS
        case "integer" if column.bit_width == 64 and in_base64:
            return _UNSIGNED
        case "time" if pa.types.is_timestamp(column):
            return _EPOCH_OR_ISO if column.tz is None and _DATE_OR_TIME.match(text) else ""
        case "time":
            return _NO_TIMES if _DATE_OR_TIME.match(text) else ""
        case "binary":
            return _BYTES
        case "map":
            return _ENTRIES
    return ""


def _column_kind(column: pa.DataType) -> str:
    if column in TEXTS:
        return "text"
    if column in BINARIES or pa.types.is_fixed_size_binary(column):
        return "binary"
    if pa.types.is_date32(column) or pa.types.is_time(column) or pa.types.is_timestamp(column):
        return "time"
    kinds = {
        "decimal": pa.types.is_decimal128, "float": pa.types.is_floating, "integer": pa.types.is_integer,
        "duration": pa.types.is_duration, "map": pa.types.is_map,
    }  # fmt: skip
    return next((kind for kind, is_one in kinds.items() if is_one(column)), "")


def _type_kind(type_: object) -> str:
    match type_:
        case AvroPlain(kind="bytes", logical=logical):
            return "bytes" if logical is None else "decimal"
        case AvroPlain(kind="float" | "double"):
            return "float"
        case AvroPlain(kind="string", logical=None):
            return "text"
        case AvroPlain(kind="int" | "long" | "int16" | "int8", logical=logical):
            named = "number" if logical is None else logical.name.partition("-")[0]
            return named if named in ("number", "clock", "duration") else "time"
        case AvroRecord(fields=fields):
            return "parts" if {one.name for one in fields} == _PARTS else ""
        case AvroMap():
            return "map"
    return ""


MODES = ConnectorModes()
