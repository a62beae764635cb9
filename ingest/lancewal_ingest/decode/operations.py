"""Meaning of a record's Kafka headers: ``lancewal.op`` names the record's operation (upsert, patch or delete).

1. No other header changes the meaning of a record.  An unknown header whose name begins with ``lancewal.``, in any
   case, may be a misspelt ``lancewal.op``, and is refused.  Otherwise a delete could become an upsert.
2. The headers of a complete dead letter are allowed.  So the dead letter can be produced to the table's topic again
   as it is.
3. A dead letter is *cut* if it lacks its record's value.  It is refused: as a record it would delete the row of its
   key, or of another key if the key is cut too.  A dead letter about a cut one (``original.`` headers) is refused
   likewise.
4. A record is bad if the name of a header is not UTF-8: nobody knows then which operation its headers name.
"""

from __future__ import annotations

from collections.abc import Collection

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_kafka.headers import UNREADABLE_HEADERS, HeaderList

OP_HEADER = "lancewal.op"

SOURCE_HEADER = "lancewal.source"
KIND_HEADER = "lancewal.kind"
CUT_HEADERS = ("lancewal.key.bytes", "lancewal.value.bytes", "lancewal.headers.bytes")
LETTER_HEADERS = frozenset([SOURCE_HEADER, KIND_HEADER, *CUT_HEADERS])
"""Headers of a dead letter in addition to those of Kafka Connect (``kafka.dead_letters``)."""
ORIGINAL = "original."
"""Prefix that a dead letter gives to those headers of its record whose names lancewal uses for headers of dead
letters."""
_RESERVED = "lancewal."
FIELDS_HEADER = "lancewal.fields"
_KNOWN = {OP_HEADER, SOURCE_HEADER, KIND_HEADER}
_OF_CUT = {*CUT_HEADERS, *(ORIGINAL + name for name in CUT_HEADERS)}

OPS: dict[bytes | None, Op] = {b"upsert": Op.UPSERT, b"patch": Op.PATCH, b"delete": Op.DELETE}
"""Operation for each value of the header ``lancewal.op``."""

Headers = HeaderList | None


def counts(name: str) -> bool:
    """Return whether a header of this name changes what its record means, or makes the record bad."""
    return name[: len(_RESERVED)].lower() == _RESERVED or name in _OF_CUT or name == UNREADABLE_HEADERS[0][0]


def op_of(headers: Headers, allowed: Collection[str] = ()) -> Op | None:
    """Return the operation that the headers name; None if they name none.

    ``allowed``: other headers whose names begin with ``lancewal.`` and which the format of values reads.

    Raises ``Refusal`` of kind ``unreadable_header``, ``cut_letter``, ``unknown_header`` or ``unknown_op``.
    """
    if headers == UNREADABLE_HEADERS:
        raise Refusal("unreadable_header", "expected header names in UTF-8")
    if any(name in _OF_CUT for name, _ in headers or ()):
        raise Refusal(
            "cut_letter",
            "expected a whole record: this dead letter lacks a part of its record. Produce the record itself again: the "
            "header 'lancewal.source' says where it lies",
        )
    for name, _ in headers or ():
        if name[: len(_RESERVED)].lower() == _RESERVED and name not in _KNOWN and name not in allowed:
            known = " and ".join([OP_HEADER, *(other for other in allowed if other.startswith(_RESERVED))])
            raise Refusal(
                "unknown_header", f"expected no header whose name begins with {_RESERVED!r}, but {known}", name
            )
    named = [value for name, value in headers or () if name == OP_HEADER]
    if not named:
        return None
    if len(named) > 1:
        raise Refusal("unknown_op", f"expected the header {OP_HEADER} once")
    if named[0] not in OPS:
        raise Refusal("unknown_op", f"header {OP_HEADER}: expected upsert, patch or delete")
    return OPS[named[0]]


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the length in bytes of key, value and headers (names in UTF-8, and values) together."""
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name.encode("utf-8", "surrogatepass")) + len(held or b"") for name, held in headers or ())
