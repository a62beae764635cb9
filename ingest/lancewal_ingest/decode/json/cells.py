"""Conversion of JSON values to the cells of a column: the rules, one function for each type.

``cell_reader(type)`` returns a function that converts a parsed JSON value (``strict``) exactly to a value that
``array_of`` accepts for the type.  The function raises ``Refusal`` of kind ``type`` if the value does not have
the JSON form of the type.  The kind is ``range`` if the column cannot hold the value exactly.  Null is allowed
everywhere except in vectors.  The caller checks that a primary key is not null.

A column may have a *lenient* form beside the strict one (``JsonForm``).  Each form means one value:

* ``epoch_s``, ``epoch_ms``, ``epoch_us``: a number of units since 1970, in any spelling of that number.  It is exact: a
  fraction that the column cannot hold is of kind ``range``.  A column without a zone gets the time in UTC.
* ``utc``: a time without zone is UTC.
* ``number_text``: a string with a JSON number in it means what that number means.
* ``text``: an integer, written as one, is the string of its digits.
* ``bool_text``: the strings ``"true"`` and ``"false"``.
* ``raw``: any JSON value is its own text, byte for byte, a string with its quotes.  The strict form does not apply:
  readers get the texts as strings (``strict.with_texts``).
* ``json_text``: a string is the JSON text in it, which is checked.  No other string is taken.
* ``number``: a number is its own text, byte for byte.
* ``base64``: a string is the bytes of a vector's items, one after the other, little endian.  NaN and infinity are floats
  there.
* ``float_name``: the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, as Jackson writes them.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import NoReturn, TypeGuard

import numpy as np
import pyarrow as pa

from lancewal_core.rows.column_types import integer_range, storage_type
from lancewal_ingest.decode.json.strict import Number, given_twice, parse_value
from lancewal_ingest.decode.naming import Form, Names
from lancewal_ingest.decode.outcomes import Refusal

CellReader = Callable[[object, str], object]
"""Function that is given a JSON value and the path of its column for messages, and returns the cell."""

FLOAT_NAMES = ("NaN", "Infinity", "-Infinity")
FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Decimal digits of a second that a timestamp of each unit holds."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_S = 86_400
_FIRST_S = (date.min.toordinal() - _EPOCH_DAY) * _DAY_S
_END_S = (date.max.toordinal() + 1 - _EPOCH_DAY) * _DAY_S
_INT64 = range(-(2**63), 2**63)

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?"
    r"(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
)
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?")
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EXPONENT_DIGITS_MAX = 9
_INT64_DIGITS = 19


def cell_reader(type_: pa.DataType, names: Names | None = None, form: Form | None = None) -> CellReader:
    """Return the reader of cells for one type, which a contract can have.

    ``names``: the names that members of a struct, or of structs in a list, may have.  None: only present names are
    allowed.  ``form``: a lenient form that is accepted besides the strict one.
    """
    read = _value_reader(type_, names)
    if form is not None:
        read = _lenient(type_, form, read)

    def nullable(value: object, path: str) -> object:
        return None if value is None else read(value, path)

    return nullable


def _value_reader(type_: pa.DataType, names: Names | None) -> CellReader:
    if pa.types.is_boolean(type_):
        return _boolean
    if pa.types.is_integer(type_):
        return _integer(type_)
    if pa.types.is_floating(type_):
        return _float(type_)
    if pa.types.is_decimal128(type_):
        return _decimal(type_)
    if type_ in (pa.string(), pa.large_string()):
        return _string
    if type_ in (pa.binary(), pa.large_binary()):
        return _bytes(None)
    if pa.types.is_fixed_size_binary(type_):
        return _bytes(type_.byte_width)
    if type_ == pa.uuid():
        return _uuid
    if pa.types.is_time(type_):
        return _time(type_)
    if pa.types.is_duration(type_):
        return _integer(pa.int64())
    if pa.types.is_date32(type_):
        return _date
    if pa.types.is_timestamp(type_):
        return _timestamp(type_)
    if pa.types.is_struct(type_):
        return _struct(type_, names)
    if pa.types.is_map(type_):
        return _map(type_, names)
    if pa.types.is_fixed_size_list(type_):
        return _vector(type_)
    return _list(type_, names)


def _lenient(type_: pa.DataType, form: Form, strict: CellReader) -> CellReader:
    """Return a reader that takes the form, and leaves all other values to the reader of the strict form."""
    taken, words = _FORMS[form](type_, strict)

    def read(value: object, path: str) -> object:
        found = taken(value, path)
        if found is not None:
            return found
        try:
            return strict(value, path)
        except Refusal as refusal:
            if refusal.kind != "type":
                raise
            _wrong_type(path, f"{words}, or {str(refusal).removeprefix(f'column {path!r}: expected ')}")

    return read


def _epoch(words: str, form_digits: int) -> Callable[[pa.DataType, CellReader], tuple[CellReader, str]]:
    def make(type_: pa.DataType, _: CellReader) -> tuple[CellReader, str]:
        digits = FRACTION_DIGITS[type_.unit]
        precision = f"{words} that {type_} holds exactly"

        def read(value: object, path: str) -> object:
            match = _DECIMAL.fullmatch(value) if isinstance(value, Number) else None
            if match is None:
                return None
            found = _exact(match, digits - form_digits)
            if found is None or found not in _INT64:
                _out_of_range(path, precision)
            if not _FIRST_S <= found // 10**digits < _END_S:
                _out_of_range(path, f"a time that {type_} holds, in the years 0001 to 9999")
            return found

        return read, words

    return make


def _utc(type_: pa.DataType, _: CellReader) -> tuple[CellReader, str]:
    zoneless = _timestamp(pa.timestamp(type_.unit))

    def read(value: object, path: str) -> object:
        match = _TIMESTAMP.fullmatch(value) if _is_text(value) else None
        return None if match is None or match[6] is not None else zoneless(value, path)

    return read, "a string YYYY-MM-DDTHH:MM:SS without a zone"


def _number_text(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    def read(value: object, path: str) -> object:
        return strict(Number(value), path) if _is_text(value) and _NUMBER.fullmatch(value) else None

    return read, "a string with a JSON number in it"


def _integer_as_text(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    def read(value: object, path: str) -> object:
        if not isinstance(value, Number) or not _is_integer(value):
            return None
        return "0" if value == "-0" else str(value)

    return read, "an integer, written without fraction and exponent"


def _bool_text(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    def read(value: object, path: str) -> object:
        return {"true": True, "false": False}.get(value) if isinstance(value, str) else None

    return read, 'the string "true" or "false"'


def _raw(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    def read(value: object, path: str) -> object:
        if not _is_text(value):  # the text of any other value is a string by now
            raise Refusal("duplicate_member", f"column {path!r}: expected each member of an object once")
        return strict(value, path)

    return read, "any JSON value"


def _json_in_text(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    words = "a string with JSON in it"

    def read(value: object, path: str) -> object:
        if not _is_text(value) or not is_json(value):
            _wrong_type(path, words)
        return strict(value, path)

    return read, words


def _number_as_text(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    return lambda value, path: str(value) if isinstance(value, Number) else None, "a number"


def _bytes_of_vector(type_: pa.DataType, _: CellReader) -> tuple[CellReader, str]:
    form = vector_form(type_)

    def read(value: object, path: str) -> object:
        data = base64_bytes(value) if _is_text(value) else None
        return np.frombuffer(data, form.base) if data is not None and len(data) == form.itemsize else None

    return read, f"a string of {form.itemsize} bytes in base64 (standard alphabet, padded)"


def vector_form(type_: pa.DataType) -> np.dtype:
    """Return the NumPy type of a vector: its items one after the other, little endian."""
    return np.dtype((np.dtype(type_.value_type.to_pandas_dtype()).newbyteorder("<"), (type_.list_size,)))


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value, by the rules of ``strict``."""
    try:
        parse_value(text)
    except Refusal:
        return False
    return True


def _float_name(_: pa.DataType, strict: CellReader) -> tuple[CellReader, str]:
    def read(value: object, path: str) -> object:
        return float(value) if _is_text(value) and value in FLOAT_NAMES else None

    return read, 'one of the strings "NaN", "Infinity" and "-Infinity"'


_FORMS: Mapping[Form, Callable[[pa.DataType, CellReader], tuple[CellReader, str]]] = {
    "epoch_s": _epoch("a number of seconds since 1970", 0),
    "epoch_ms": _epoch("a number of milliseconds since 1970", 3),
    "epoch_us": _epoch("a number of microseconds since 1970", 6),
    "utc": _utc,
    "number_text": _number_text,
    "text": _integer_as_text,
    "bool_text": _bool_text,
    "raw": _raw,
    "json_text": _json_in_text,
    "number": _number_as_text,
    "base64": _bytes_of_vector,
    "float_name": _float_name,
}
"""Function for each lenient form.  It is given the column's type and the reader of the strict form.  It returns a
reader, which returns None for a value of another form, and words that describe the form in messages."""
AS_TEXTS: Mapping[Form, type] = {"raw": object, "number": Number}
"""Forms whose values become strings before they are read, with the Python type of the values that do; ``object``
stands for all."""


def _exact(match: re.Match[str], shift: int) -> int | None:
    """Return ten to the ``shift`` times a number; None if that is no integer, or one far beyond 64 bits."""
    digits, power = _significant(match)
    if not digits:
        return 0
    if power is None or power + shift < 0 or len(digits) + power + shift > _INT64_DIGITS:
        return None
    number: int = int(f"{match[1]}{digits}") * 10 ** (power + shift)
    return number


def _significant(match: re.Match[str]) -> tuple[str, int | None]:
    """Return the digits of a number without the zeros around them, and the power of ten of the last one.

    Zero has no digits.  The power is None if it is far beyond that of any column."""
    whole, fraction, exponent = match[2], match[3] or "", match[4] or "0"
    digits = (whole + fraction).lstrip("0")
    power = exponent.lstrip("+-0") or "0"
    if not digits or len(power) > _EXPONENT_DIGITS_MAX:
        return digits, None
    last = (-int(power) if exponent.startswith("-") else int(power)) - len(fraction)
    short = digits.rstrip("0")
    return short, last + len(digits) - len(short)


def array_of(cells: Sequence[object], type_: pa.DataType) -> pa.Array:
    """Return the Arrow array of cells that the readers of this type returned."""
    return pa.array(cells, storage_type(type_)).cast(type_)


def _wrong_type(path: str, expected: str) -> NoReturn:
    raise Refusal("type", f"column {path!r}: expected {expected}")


def _out_of_range(path: str, expected: str) -> NoReturn:
    raise Refusal("range", f"column {path!r}: expected {expected}")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Number)


def _boolean(value: object, path: str) -> object:
    return value if isinstance(value, bool) else _wrong_type(path, "true or false")


def _integer(type_: pa.DataType) -> CellReader:
    allowed = integer_range(type_)
    expected = f"an integer from {allowed.start} to {allowed.stop - 1}, written without fraction and exponent"

    def read(value: object, path: str) -> object:
        if not isinstance(value, Number) or not _is_integer(value):
            _wrong_type(path, expected)
        # 64 bits have 20 digits at most; a longer text never becomes an int.
        if len(value) > 21 or (number := int(value)) not in allowed:
            _out_of_range(path, expected)
        return number

    return read


def _is_integer(number: Number) -> bool:
    return not ("." in number or "e" in number or "E" in number)


def _float(type_: pa.DataType) -> CellReader:
    def read(value: object, path: str) -> object:
        return _floats([value], type_, path)[0]

    return read


def _floats(values: list[object], type_: pa.DataType, path: str) -> list[float]:
    numbers = [value for value in values if isinstance(value, Number)]
    if len(numbers) != len(values):
        _wrong_type(path, "a number")
    if pa.types.is_float32(type_):
        # Straight from the text: by way of a double some numbers would be rounded twice.
        floats: list[float] = pa.array([str(number) for number in numbers], pa.string()).cast(type_).to_pylist()
    else:
        floats = [float(number) for number in numbers]
    for number, rounded in zip(numbers, floats, strict=True):
        # A finite double has 309 digits at most, so int() below never sees more.
        if not math.isfinite(rounded):
            _out_of_range(path, f"a number that fits {type_}")
        if _is_integer(number) and int(number) != int(rounded):
            _out_of_range(path, f"an integer that {type_} holds exactly (write a fraction to have it rounded)")
    return floats


def _decimal(type_: pa.DataType) -> CellReader:
    whole_max, fraction_max = type_.precision - type_.scale, type_.scale
    form = "a decimal number or a string with one"
    fits = f"at most {whole_max} digits before the point and {fraction_max} after it"

    def read(value: object, path: str) -> object:
        match = _DECIMAL.fullmatch(value) if isinstance(value, str) else None
        if match is None or not (match[2] or match[3]):
            _wrong_type(path, form)
        digits, power = _significant(match)
        if not digits:
            return Decimal(0)
        if power is None or -power > fraction_max or len(digits) + power > whole_max:
            _out_of_range(path, fits)
        return Decimal(f"{match[1]}{digits}e{power}")

    return read


def _string(value: object, path: str) -> object:
    if not _is_text(value):
        _wrong_type(path, "a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        _out_of_range(path, "a string of Unicode characters; it has a lone surrogate")
    return value


def base64_bytes(text: str) -> bytes | None:
    """Return the bytes whose standard, padded base64 is exactly ``text``; None if ``text`` is not such base64."""
    try:
        encoded = text.encode("ascii")
        decoded = binascii.a2b_base64(encoded)
    except ValueError:
        return None
    return decoded if binascii.b2a_base64(decoded, newline=False) == encoded else None


def _bytes(size: int | None) -> CellReader:
    """Return the reader of bytes of this size.  None: bytes of any size."""
    form = f"a string{'' if size is None else f' of {size} bytes'} in base64 (standard alphabet, padded)"

    def read(value: object, path: str) -> object:
        decoded = base64_bytes(value) if _is_text(value) else None
        if decoded is None:
            _wrong_type(path, form)
        if size is not None and len(decoded) != size:
            _out_of_range(path, f"{size} bytes")
        return decoded

    return read


def _uuid(value: object, path: str) -> object:
    if not _is_text(value) or not _UUID.fullmatch(value):
        _wrong_type(path, "a string such as 123e4567-e89b-12d3-a456-426614174000")
    return bytes.fromhex(value.replace("-", ""))


def _time(type_: pa.DataType) -> CellReader:
    digits = FRACTION_DIGITS[type_.unit]

    def read(value: object, path: str) -> object:
        match = _TIME.fullmatch(value) if _is_text(value) else None
        if match is None:
            _wrong_type(path, "a string HH:MM:SS, a time of day from 00:00:00 without a zone")
        return _in_units(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]), match[4], digits, path)

    return read


def _date(value: object, path: str) -> object:
    return _days(value if _is_text(value) else None, path, "a string YYYY-MM-DD, a day of the years 0001 to 9999")


def _days(text: object, path: str, expected: str) -> int:
    match = _DATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        _wrong_type(path, expected)
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError:
        _out_of_range(path, expected)


def _timestamp(type_: pa.DataType) -> CellReader:
    zoned = type_.tz is not None
    digits = FRACTION_DIGITS[type_.unit]
    zone = "with Z or an offset like +02:00" if zoned else "without a zone"
    form = f"a string YYYY-MM-DDTHH:MM:SS, {zone}"
    span = f"a time that {type_} holds, in the years 0001 to 9999"

    def read(value: object, path: str) -> object:
        match = _TIMESTAMP.fullmatch(value) if _is_text(value) else None
        if match is None or (match[6] is not None) != zoned:
            _wrong_type(path, form)
        seconds = _days(match[1], path, form) * _DAY_S + int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
        seconds -= _offset_s(match[6])
        instant = _in_units(seconds, match[5], digits, path)
        if not _FIRST_S <= seconds < _END_S or instant not in _INT64:
            _out_of_range(path, span)
        return instant

    return read


def _in_units(seconds: int, fraction: str | None, digits: int, path: str) -> int:
    """Return a time as a number of units, of which a second has ten to the ``digits``.

    ``fraction``: the digits after the seconds.
    """
    given = (fraction or "").rstrip("0")
    if len(given) > digits:
        _out_of_range(path, f"at most {digits} digits of a second's fraction")
    units: int = seconds * 10**digits + int(given.ljust(digits, "0") or "0")
    return units


def _offset_s(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return -seconds if zone[0] == "-" else seconds


def _list(type_: pa.DataType, names: Names | None) -> CellReader:
    read_item = cell_reader(type_.value_type, names)

    def read(value: object, path: str) -> object:
        if not isinstance(value, list):
            _wrong_type(path, "an array")
        return [read_item(item, f"{path}[]") for item in value]

    return read


def _map(type_: pa.DataType, names: Names | None) -> CellReader:
    read_item = cell_reader(type_.item_type, names)

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _wrong_type(path, "an object")
        if twice := given_twice(value):
            raise Refusal("duplicate_member", f"column {path!r}: expected each key of a map once", min(twice))
        return [(_string(key, path), read_item(item, f"{path}[]")) for key, item in value.items()]

    return read


def _struct(type_: pa.DataType, names: Names | None) -> CellReader:
    members = {
        child.name: cell_reader(child.type, None if names is None else names.present[child.name]) for child in type_
    }

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _wrong_type(path, "an object")
        found = named(value, names, members, path)
        return {name: read_member(found.get(name), f"{path}.{name}") for name, read_member in members.items()}

    return read


def named(
    members: dict[str, object], names: Names | None, present: Mapping[str, object], path: str
) -> Mapping[str, object]:
    """Return the members of one level by their present names, which are the keys of ``present``.

    ``path``: the column whose members these are; empty for the columns themselves.  Raises ``Refusal`` if a name is
    not allowed, or if a column or member appears under two names.
    """
    where = f"column {path!r}: expected no members but" if path else "expected no members but the columns"
    if names is None:
        if not members.keys() <= present.keys():
            found = next(name for name in members if name not in present)
            raise Refusal("unknown_column", f"{where} {list(present)}", found)
        return members
    called = {name: names.former.get(name, name) for name in members}
    wrong = [name for name in called if name not in names.present and names.use_of(name) is None]
    if wrong:
        raise Refusal("unknown_column", f"{where} {list(present)}", wrong[0])
    by_name = {called[name]: value for name, value in members.items() if called[name] in names.present}
    twice = names.twice(list(members)) or next((n for n in given_twice(members) if called[n] in names.present), None)
    if twice is not None:
        struct = f"column {path!r}: " if path else ""
        raise Refusal(
            "duplicate_member", f"{struct}expected each member of an object once, and by one of its names", twice
        )
    return by_name


def _vector(type_: pa.DataType) -> CellReader:
    size, item = type_.list_size, type_.value_type
    floats = pa.types.is_floating(item)
    expected = f"an array of {size} {'numbers' if floats else 'integers from 0 to 255'}"
    read_byte = None if floats else _integer(item)

    def read(value: object, path: str) -> object:
        if not isinstance(value, list) or len(value) != size:
            _wrong_type(path, expected)
        if read_byte is None:
            return _floats(value, item, path)
        return [read_byte(byte, f"{path}[]") for byte in value]

    return read
