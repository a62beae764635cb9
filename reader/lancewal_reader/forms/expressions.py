"""Translate an expression of ``pyarrow.compute`` into a condition in Lance's SQL with the same meaning.  If a part of
it has no such condition, the error names that part.

Neither pyarrow nor Lance evaluates the expression itself.  The rows that pass are those that satisfy the condition in
Lance, merged and unmerged rows alike.  (Lance takes expressions by Substrait, but not for tables that have columns of
certain types.)

Accepted are columns and members of structs, literals, ``== != < <= > >=``, ``& | ~``, ``is_null``, ``is_valid``,
``isin``, ``pc.starts_with``, ``ends_with`` and ``match_substring``.  As in pyarrow, ``isin`` of a null is false, not
unknown.

Python cannot look at the parts of an expression.  This module pickles the expression and takes the pickle apart.  The
pickle is an Arrow file.  The metadata of its schema lists, in order, calls, their arguments and their ends.  Its
columns are the literals and the options.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput
from lancewal_core.process.library_errors import first_line
from lancewal_reader.forms.sql_literals import Unsaid, literal

_OPERATORS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and_kleene": "AND",
    "or_kleene": "OR",
}
_MATCHES = {"starts_with": "starts_with", "ends_with": "ends_with", "match_substring": "contains"}


def sql_of(expression: pc.Expression) -> str:
    """Convert a PyArrow expression to a condition in Lance's SQL.  Raises ``InvalidInput`` if it is not supported."""
    try:
        (data,) = expression.__reduce__()[1]
        batch = pa.ipc.open_file(data).get_batch(0)
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError) as error:
        raise _refused(expression, first_line(error)) from error
    try:
        return _read(_metadata(batch.schema)[::-1], batch)
    except Unsaid as unsaid:
        raise _refused(expression, str(unsaid)) from None


def _refused(expression: pc.Expression, why: str) -> InvalidInput:
    return InvalidInput(
        f"filter {str(expression)[:200]}: an expression cannot have {why}; write the filter as text, in SQL"
    )


Tokens = list[tuple[str, str]]
"""Tokens still to be read; the next one is the last of the list."""


@dataclass(slots=True)
class _Call:
    name: str
    arguments: list[_Said] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Said:
    """Conditions joined by ``word``, or a single condition without a word.  A chain of one operator stays flat, so it
    counts as no nesting."""

    parts: deque[str]
    word: str = ""

    @property
    def sql(self) -> str:
        return f"({f' {self.word} '.join(self.parts)})" if self.word else self.parts[0]


def _read(tokens: Tokens, batch: pa.RecordBatch) -> str:
    """Return the SQL of the tokens.  Calls are read without recursion: a chain of a thousand comparisons is that
    deep."""
    outer = _Call("")
    calls = [outer]
    while not outer.arguments:
        kind, value = tokens.pop()
        match kind:
            case "call":
                calls.append(_Call(value))
                continue
            case "options":
                calls[-1].options = dict(batch.column(int(value))[0].items())
                continue
            case "end":
                call = calls.pop()
                said = _called(call)
            case "literal":
                said = _Said(deque([literal(batch.column(int(value))[0])]))
            case "field_ref":
                said = _Said(deque([_name(value)]))
            case "nested_field_ref":
                said = _Said(deque([".".join(_name(tokens.pop()[1]) for _ in range(int(value)))]))
            case _:
                raise Unsaid(f"{kind!r}")
        calls[-1].arguments.append(said)
    return outer.arguments[0].sql


def _called(call: _Call) -> _Said:
    word = _OPERATORS.get(call.name, "")
    if word not in ("AND", "OR") or len(call.arguments) != 2:
        return _Said(deque([_call(call.name, [argument.sql for argument in call.arguments], call.options)]))
    left, right = (one if one.word == word else _Said(deque([one.sql]), word) for one in call.arguments)
    if len(left.parts) < len(right.parts):
        right.parts.extendleft(reversed(left.parts))
        return right
    left.parts.extend(right.parts)
    return left


def _name(name: str) -> str:
    if "`" in name:
        raise Unsaid(f"a column {name!r}")
    return f"`{name}`"


def _call(name: str, arguments: list[str], options: Mapping[str, Any]) -> str:
    if name in _OPERATORS and len(arguments) == 2:
        return f"({arguments[0]} {_OPERATORS[name]} {arguments[1]})"
    if name == "invert":
        return f"(NOT {arguments[0]})"
    if name == "is_valid":
        return f"({arguments[0]} IS NOT NULL)"
    if name == "is_null" and not options["nan_is_null"].as_py():
        return f"({arguments[0]} IS NULL)"
    if name in _MATCHES and not options["ignore_case"].as_py():
        return f"{_MATCHES[name]}({arguments[0]}, {literal(options['pattern'])})"
    if name == "is_in" and options["null_matching_behavior"].as_py() == 0:
        return _in(arguments[0], options["value_set"])
    raise Unsaid(f"{name!r}{' with these options' if name in (*_MATCHES, 'is_null', 'is_in') else ''}")


def _in(column: str, values: pa.ListScalar) -> str:
    texts = [literal(value) for value in values if value.is_valid]
    known = f"({column} IS NOT NULL AND {column} IN ({', '.join(texts)}))" if texts else "false"
    return known if len(texts) == len(values) else f"({column} IS NULL OR {known})"


class _CSchema(ctypes.Structure):
    """The first members of a schema in the Arrow C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the schema's metadata in order, with repeated names, which ``schema.metadata`` leaves out."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _CSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata
    if at is None:
        return []

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += 4
        return value

    def text() -> str:
        nonlocal at
        size = number()
        value = ctypes.string_at(at, size)
        at += size
        return value.decode()

    return [(text(), text()) for _ in range(number())]
