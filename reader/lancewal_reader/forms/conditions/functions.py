"""Functions that a filter may call.  The size of each result is bounded by the arguments."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from lancewal_reader.forms.conditions.comparisons import NOW, exactly, in_one_unit
from lancewal_reader.forms.conditions.exact_values import Inexact, Moment, place, said, said_alone
from lancewal_reader.forms.conditions.limits import Limits
from lancewal_reader.forms.conditions.part import NotAccepted, Part
from lancewal_reader.forms.conditions.type_names import DIGITS, literal_of
from lancewal_reader.forms.sql_literals import SINCE_1970

_PADDED_MAX = 1_000
"""Largest number of characters of a padded text."""
CHOSEN = {"coalesce", "nvl", "ifnull"}
"""Functions whose arguments Lance expands twice."""
_ALIKE = {*CHOSEN, "nullif", "greatest", "least"}
"""Functions whose arguments have one type, which is the type of the result."""
_OF_LISTS = {
    *("array_has", "array_contains", "list_has", "list_contains", "array_has_any", "array_has_all"),
    *("array_length", "list_length", "cardinality", "array_position", "list_position", "array_ndims", "empty"),
}
_OF_NUMBERS = {
    *("round", "trunc", "sqrt", "cbrt", "exp", "ln", "log", "log2", "log10", "power", "pow", "signum", "gcd", "lcm"),
    *("sin", "cos", "tan", "cot", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "degrees", "radians", "pi"),
    *("isnan", "iszero", "nanvl"),
}
_OF_TEXTS = {
    *("lower", "upper", "btrim", "ltrim", "rtrim", "initcap", "reverse", "left", "right", "split_part"),
    *("starts_with", "ends_with", "contains", "strpos", "instr", "regexp_like", "regexp_match", "regexp_count"),
    *("length", "char_length", "character_length", "octet_length", "bit_length", "ascii", "levenshtein"),
    *("replace", "translate", "lpad", "rpad", "to_hex", "chr", "concat", "concat_ws"),
    *("md5", "sha224", "sha256", "sha384", "sha512", "arrow_typeof"),
}
_OF_TIMES = {"date_part", "datepart", "date_trunc", "datetrunc", "to_timestamp", "to_date"}
_SINCE_1970 = {name: unit for unit, name in SINCE_1970.items()}
_WHOLE = {
    *("length", "char_length", "character_length", "octet_length", "bit_length", "strpos", "instr", "ascii"),
    *("array_length", "list_length", "cardinality", "array_position", "list_position", "date_part", "datepart"),
    *("regexp_count", "levenshtein"),
}
"""Functions whose result is an integer."""
_ALL = frozenset({"abs", *_ALIKE, *_OF_LISTS, *_OF_NUMBERS, *_OF_TEXTS, *_OF_TIMES, *_SINCE_1970, *NOW})


def check_allowed(name: str) -> None:
    if name not in _ALL:
        raise NotAccepted(
            f"the function {name!r} is not one of those that a filter may call: {', '.join(sorted(_ALL))}"
        )


def called(name: str, arguments: list[Part], limits: Limits) -> Part:
    """Return the call of an allowed function.  Raises ``NotAccepted`` if the call would lose digits, or could produce
    results of unlimited size.
    """
    _check_length(name, arguments, limits)
    first = arguments[0].value if len(arguments) == 1 else None
    if name in _SINCE_1970 and isinstance(first, Decimal):
        return _since_1970(arguments[0].sql, first, _SINCE_1970[name])
    if name == "to_timestamp" and isinstance(first, str):
        return literal_of(arguments[0], "TIMESTAMP", name)
    if name in _OF_NUMBERS and any(argument.of(pa.types.is_decimal) for argument in arguments):
        raise NotAccepted(
            f"{name} converts decimals through a float, which may lose digits; write CAST(... AS DOUBLE) to allow this"
        )
    type_: pa.DataType | None = pa.int64() if name in _WHOLE else NOW.get(name)
    if name in _ALIKE:
        arguments, type_ = _alike(name, in_one_unit(arguments, limits))
    elif name in _SINCE_1970:
        type_ = pa.timestamp(_SINCE_1970[name])
    elif name in _OF_LISTS:
        arguments = _of_list(arguments)
    elif name in ("abs", "date_trunc", "datetrunc") and arguments:
        last = arguments[-1]
        type_ = last.type if name == "abs" or last.of(pa.types.is_timestamp) else None
    return Part(f"{name}({', '.join(argument.sql for argument in arguments)})", type=type_)


def _check_length(name: str, arguments: list[Part], limits: Limits) -> None:
    """Raise ``NotAccepted`` if the call may return a text of unbounded length.  Literals are bounded by the
    condition's own length; other texts that are joined are counted."""
    literals = [part.value for part in arguments[1:]]
    if name in ("concat", "concat_ws"):
        limits.join(sum(part.value is None for part in arguments))
    elif name in ("lpad", "rpad"):
        if not (literals and isinstance(literals[0], Decimal) and literals[0] <= _PADDED_MAX):
            raise NotAccepted(f"{name} needs its length as a number, at most {_PADDED_MAX}")
    elif name == "replace":
        old, new = literals if len(literals) == 2 else (None, None)
        if not (isinstance(old, str) and isinstance(new, str) and 0 < len(old) >= len(new)):
            raise NotAccepted("replace needs two literal texts, of which the second is not longer than the first")


def _since_1970(sql: str, given: Decimal, unit: str) -> Part:
    try:
        at = Moment(place(given, pa.int64())[0] * 10 ** (9 - DIGITS[unit]))
        return Part(said_alone(at), value=at)
    except Inexact:
        raise NotAccepted(f"{sql[:80]} is not a time from 1677 to 2262") from None


def _alike(name: str, arguments: list[Part]) -> tuple[list[Part], pa.DataType | None]:
    typed = [part for part in arguments if part.value is None and part.type is not None]
    if not typed:
        return [_finest(part) for part in arguments], None
    types = list(dict.fromkeys(part.type for part in typed))
    type_: pa.DataType | None = types[0]
    if len(types) > 1 and name != "nullif":
        if all(pa.types.is_integer(each) for each in types):
            type_ = None if pa.uint64() in types else pa.int64()
        elif all(pa.types.is_floating(each) for each in types):
            type_ = pa.float64()
        else:
            shown = ", ".join(map(str, types))
            raise NotAccepted(f"{name} has arguments of several types: {shown[:160]}. Cast them to one of these")
    beside = replace(typed[0], type=type_)
    return [exactly(part, beside) for part in arguments], type_


def _finest(part: Part) -> Part:
    """Return the literal of a time in nanoseconds, if these reach so far.  Beside microseconds Lance would cut the other
    arguments, such as ``to_timestamp(text)``."""
    value, finest = part.value, pa.timestamp("ns")
    if isinstance(value, Moment) and part.sql == said_alone(value) and -(2**63) <= value.ns < 2**63:
        return replace(part, sql=said(place(value, finest)[0], finest))
    return part


def _of_list(arguments: list[Part]) -> list[Part]:
    if not arguments or not arguments[0].of(pa.types.is_list):
        return arguments
    item = Part(f"{arguments[0].sql}[1]", type=arguments[0].type.value_type)  # type: ignore[union-attr] # a list
    found = [arguments[0]]
    for part in arguments[1:]:
        if part.items is not None:
            part = Part(f"[{', '.join(exactly(one, item).sql for one in part.items)}]")
        found.append(exactly(part, item))
    return found
