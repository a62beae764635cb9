"""Parse one JSON object from bytes, strictly by RFC 8259 and without loss.

1. The bytes must be UTF-8 without a byte order mark, and hold one object, with at most whitespace around it.
2. An object with two members of one name, at any depth, is refused, unless the caller asks for such names (``twice``).
3. Numbers keep their text (``Number``), so that no digit is lost before the column's type is known.
4. ``NaN`` and ``Infinity`` are refused; so is nesting deeper than ``DEPTH_MAX``, whatever the caller's stack is.

Lone surrogates (``\\ud800``) pass here, since a Python string can hold them.  Code that takes a string must check.

``check_value`` checks one JSON value, which may be no object.  ``object_end`` finds the end of an object without parsing it,
and ``member_texts`` the members of one.  ``with_texts`` writes the texts of some members as strings, so that columns of
strings hold JSON byte for byte.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

import orjson

from lancewal_ingest.decode.outcomes import Refusal

BLANKS = b" \t\n\r"
"""Bytes that JSON allows around a value."""
DEPTH_MAX = 64
"""Largest number of levels of nested objects and arrays, the value itself included.  Columns allow far fewer
(``types.NESTING_MAX``)."""


class Number(str):
    """Text of a JSON number.  A JSON string is a plain ``str``, so test for ``Number`` first."""

    __slots__ = ()


class _Twice(dict[str, object]):
    """Members of an object that has some names twice."""

    names: frozenset[str]


def given_twice(members: Mapping[str, object]) -> frozenset[str]:
    """Return the names that occur twice in an object that was parsed with ``twice``."""
    return members.names if isinstance(members, _Twice) else frozenset()


def parse_object(value: bytes, *, twice: bool = False) -> dict[str, object]:
    """Parse the object in ``value``, and return its members as None, bool, str, Number, list and dict.

    With ``twice``, an object may have two members of one name, and the last one counts.  The caller then checks
    ``given_twice``, because a repeated name that is passed over is harmless.

    Raises ``Refusal`` if ``value`` is not an object that the rules of this module allow.
    """
    _check_depth(value)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("not_json", f"expected a JSON object; the value is not UTF-8 at byte {error.start}") from None
    try:
        parsed = (_TWICE if twice else _PARSER).decode(text)
    except json.JSONDecodeError as error:
        raise Refusal("not_json", f"expected one JSON object; no JSON at character {error.pos}") from None
    if not isinstance(parsed, dict):
        raise Refusal("not_an_object", "expected a JSON object with the columns as members; found another JSON value")
    return parsed


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        found = next(name for name, count in counts.items() if count > 1)
        raise Refusal("duplicate_member", "expected each member of an object once; one is there twice", found)
    return members


def _members_or_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    found = _Twice(members)
    found.names = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return found


def _constant(_: str) -> NoReturn:
    raise Refusal("not_json", "expected JSON; NaN and Infinity are not JSON numbers")


def parse_value(text: str) -> object:
    """Parse one JSON value, and return it in the types of ``parse_object``.  Raises ``Refusal`` if ``text`` is not one
    JSON value.
    """
    try:
        members = parse_object(b'{"_":' + text.encode("utf-8", "surrogatepass") + b"}")
    except Refusal as refusal:
        if refusal.kind != "not_json":
            raise
        members = {}
    if list(members) != ["_"]:
        raise Refusal("not_json", f"expected one JSON value. A string needs quotes: {json.dumps(text[:_SHOWN])}")
    return members["_"]


def check_value(text: bytes) -> None:
    """Raise ``Refusal`` if ``text`` is not one JSON value.  Objects in it may repeat a name."""
    _check_depth(text)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # or a text that orjson alone refuses
        members = parse_object(b'{"_":' + text + b"}", twice=True)
        if list(members) != ["_"] or given_twice(members):
            raise Refusal("not_json", "expected one JSON value") from None


def with_texts(value: bytes, names: Mapping[str, type]) -> bytes | None:
    """Rewrite an object so that each member in ``names`` is a string with the exact text of the former value.

    ``names``: for each member the Python type of the values to convert; ``object`` converts all.  A null stays null.
    Returns None if the value is not one object, or if a name within such a member is repeated.
    """
    try:
        _check_depth(value)
        text = value.decode("utf-8")
        return "".join(_pieces_found(value, text, names) or _pieces(text, names)).encode()
    except (Refusal, UnicodeDecodeError, json.JSONDecodeError, AttributeError):
        return None


def _pieces_found(value: bytes, text: str, names: Mapping[str, type]) -> list[str] | None:
    """Return the parts of ``with_texts`` at less cost; None if they are not certain.

    Without a backslash no string holds a quote, and between two strings no text begins like a name.  So a plain name in
    quotes that is there once is the member's, if the object has such a member."""
    if "\\" in text:
        return None
    try:
        members = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(members, dict):
        return None
    found: list[tuple[int, int]] = []
    for name, wanted in names.items():
        if name not in members:
            continue
        quoted = f'"{name}"'
        if not _WORD.fullmatch(name) or text.count(quoted) != 1:
            return None
        begin = _COLON.match(text, text.index(quoted) + len(quoted)).end()  # type: ignore[union-attr] # a colon follows
        parsed, end = _PARSER.raw_decode(text, begin)
        if parsed is not None and isinstance(parsed, wanted):
            found.append((begin, end))
    pieces, copied = [], 0
    for begin, end in sorted(found):
        pieces += [text[copied:begin], json.dumps(text[begin:end], ensure_ascii=False)]
        copied = end
    return [*pieces, text[copied:]]


def _pieces(text: str, names: Mapping[str, type]) -> list[str]:
    """Return the parts of ``with_texts``.  Errors mean that the text is not one object."""
    found: list[str] = []
    copied, at = 0, _BEGIN.match(text).end()  # type: ignore[union-attr] # without it the caller leaves the value as it is
    if _END.fullmatch(text, at):
        return [text]
    while True:
        member = _PLAIN.match(text, at)
        if member is not None:
            name, begin, end = member[1], member.start(2), member.end(2)
            wanted = names.get(name)
            parsed = None if wanted is None or member[2] == "null" else _PARSER.decode(member[2])
        else:
            name, at = _ANY.raw_decode(text, _BLANK.match(text, at).end())  # type: ignore[union-attr] # it always matches
            begin = _COLON.match(text, at).end()  # type: ignore[union-attr] # without it the caller leaves the value
            if not isinstance(name, str):
                raise AttributeError
            wanted = names.get(name)
            parsed, end = (_ANY if wanted is None else _PARSER).raw_decode(text, begin)
        if wanted is not None and parsed is not None and isinstance(parsed, wanted):
            found += [text[copied:begin], json.dumps(text[begin:end], ensure_ascii=False)]
            copied = end
        comma = _COMMA.match(text, end)
        if comma is None:
            break
        at = comma.end()
    if _END.fullmatch(text, end) is None:
        raise AttributeError
    return [*found, text[copied:]]


_PARSER = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=Number, parse_int=Number, parse_constant=_constant, strict=True
)
_TWICE = json.JSONDecoder(
    object_pairs_hook=_members_or_twice, parse_float=Number, parse_int=Number, parse_constant=_constant, strict=True
)

_ANY = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_constant, strict=True)
_BLANK = re.compile(r"[ \t\n\r]*")
_BEGIN = re.compile(r"[ \t\n\r]*\{")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,")
_END = re.compile(r"[ \t\n\r]*\}[ \t\n\r]*")
_PLAIN = re.compile(
    r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*'
    r'("[^"\\\x00-\x1f]*"|true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?=[ \t\n\r]*[,}])'
)
"""A member whose name and value have no escapes and no brackets: most are such, and one match reads it."""
_SHOWN = 100

# Up to the first error this splits the bytes as a JSON parser does, and behind it no parser goes.  The closing quote is
# optional and the body possessive, so that an open string costs one pass.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)


def object_end(value: bytes, begin: int) -> int | None:
    """Return the index after the end of the object that starts at ``begin``.  None if the object does not end, or nests
    too deep.

    A parser must still check whether the text is valid JSON.
    """
    depth = 0
    for match in _BRACKETS.finditer(value, begin):
        if match[0] in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                return None
        elif match[0] in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def member_texts(value: bytes, count: int) -> list[tuple[str, bytes]] | None:
    """Return the name and the text of each member of an object with ``count`` members, in one pass.

    Returns None if the value is not an object, has another number of members, or nests too deep.  A parser must still
    check each text.  If all texts are valid JSON, the value is a valid object.
    """
    found: list[tuple[str, bytes]] = []
    before, end = _FIRST.match(value), None
    while before is not None and len(found) < count:
        name = _NAME.match(value, before.end())
        if name is None:
            return None
        begin = name.end()
        if value[begin : begin + 1] in (b"{", b"["):
            end = object_end(value, begin)
        else:
            plain = _NOT_NESTED.match(value, begin)
            end = None if plain is None else plain.end()
        if end is None:
            return None
        try:
            found.append((_PARSER.decode(name[1].decode()), value[begin:end]))
        except ValueError:  # no UTF-8, or no string of JSON
            return None
        before = _NEXT.match(value, end)
    closed = end is not None and _LAST.fullmatch(value, end) is not None
    return found if closed and len(found) == count else None


_FIRST, _NEXT = re.compile(rb"[ \t\n\r]*\{"), re.compile(rb"[ \t\n\r]*,")
_LAST = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*")
_NAME = re.compile(rb'[ \t\n\r]*("(?:[^"\\]|\\.)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_NOT_NESTED = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^ \t\n\r,{}\[\]"]+', re.DOTALL)


def _check_depth(value: bytes) -> None:
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for match in _BRACKETS.finditer(value):
        bracket = match[0]
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                raise Refusal("too_deep", f"expected at most {DEPTH_MAX} nested objects and arrays")
        elif bracket in (b"]", b"}"):
            depth -= 1
