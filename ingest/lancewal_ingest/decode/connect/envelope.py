r"""A value as Kafka Connect's JsonConverter writes it: ``{"schema": SCHEMA, "payload": PAYLOAD}``, and nothing beside
them.

1. The result for a value follows from its bytes.  If the schema comes first, the text up to the payload is its
   *head*.  Each value that begins with a head has that schema, and the rest is its payload.  So a head that was seen
   before need not be read again.
2. The text between the head and the last brace is given to a JSON parser.  If it is one JSON value, and the schema is
   an object, the whole is an object of two members.
3. A value in another order is split into its members in one pass, and a parser reads each of them alone.
4. The payload of a value with a head is no longer than the text after the head, which bounds the row
   (``decoder.ConnectGrowth``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lancewal_ingest.decode.framed.kept import KeptByText
from lancewal_ingest.decode.json.strict import BLANKS, given_twice, member_texts, object_end, parse_object
from lancewal_ingest.decode.outcomes import WRONG_FORMAT, Refusal

_BEGIN = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*(?=\{)')
_MIDDLE = re.compile(rb'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:')
_MEMBERS = {"schema", "payload"}
_ADVICE = "Have the producer's converter write schemas (schemas.enable=true)"


class Head(NamedTuple):
    """Beginning of a value, up to its payload: its text, and the text of the schema in it."""

    text: bytes
    schema: bytes


class Heads:
    """Cache of the heads of values.  A value that begins with a known head is not parsed again."""

    def __init__(self) -> None:
        self._known = KeptByText[Head]()

    def of(self, value: bytes, likely: Head | None = None) -> Head | None:
        """Return the head of a value whose schema comes first; None for any other value.  ``likely``: the head of an
        earlier value, which is tried first.
        """
        if likely is not None and value.startswith(likely.text):
            return likely
        for length in self._known.lengths:
            known = self._known.get(value[:length])
            if known is not None:
                return known
        found = head_of(value)
        return None if found is None else self._known.put(found.text, found)


def head_of(value: bytes) -> Head | None:
    """Return the head of a value whose schema comes first; None for any other value."""
    begin = _BEGIN.match(value)
    if begin is None:
        return None
    end = object_end(value, begin.end())
    middle = None if end is None else _MIDDLE.match(value, end)
    return None if middle is None else Head(value[: middle.end()], value[begin.end() : end])


def payload_after(value: bytes, nbytes: int) -> bytes:
    """Return the payload of a value whose head has ``nbytes`` bytes.  If the value is not valid JSON, neither is the
    payload.
    """
    if value.endswith(b"}"):
        return value[nbytes:-1]
    rest = value[nbytes:].rstrip(BLANKS)
    return rest[:-1] if rest.endswith(b"}") else b""


def schema_and_payload(value: bytes) -> tuple[bytes, bytes]:
    """Return the texts of the schema and the payload, in whichever order the value has them.

    Raises ``Refusal`` if the value does not have exactly these two members.  A JSON parser must still check the
    payload.  If the payload is valid JSON, the whole value is.
    """
    texts = dict(member_texts(value, len(_MEMBERS)) or ())
    if texts.keys() != _MEMBERS or not texts["schema"].startswith(b"{"):
        check_members(value)
        raise Refusal(WRONG_FORMAT, f"expected a schema, which is an object. {_ADVICE}")
    return texts["schema"], texts["payload"]


def check_members(value: bytes) -> None:
    """Parse the whole value.  Raise ``Refusal`` if it is not an object with a schema and a payload."""
    members = parse_object(value, twice=True)
    for name in given_twice(members):
        raise Refusal("duplicate_member", "expected each member of an object once; one is there twice", name)
    if members.keys() != _MEMBERS:
        others = [name for name in members if name not in _MEMBERS]
        raise Refusal(
            WRONG_FORMAT,
            f"expected JSON of Kafka Connect: an object with the members 'schema' and 'payload', and no others. {_ADVICE}",
            others[0] if others else "",
        )
