"""Meaning of a record's Kafka headers: ``lancewal.op`` names what the record does to its key.

1. No other header changes what a record means.  A header whose name begins with ``lancewal.``, in whatever case,
   might be meant to, and is refused.  A misspelt ``lancewal.op`` therefore does not make an upsert of a delete.
2. The headers of a dead letter that is the whole record pass: whoever produces it to its topic again need not take
   them off.
3. A cut letter is no record.  It has no value because that was left out, and would delete the row of its key, or of
   another key if the key is cut.  It is refused, and so is a letter about one (``original.``), however often they
   come back.
4. A record is bad if the name of a header is not UTF-8: which operation its headers name is unknown.
"""

from __future__ import annotations

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_kafka.records import UNREADABLE_HEADERS

OP_HEADER = "lancewal.op"

SOURCE_HEADER = "lancewal.source"
KIND_HEADER = "lancewal.kind"
CUT_HEADERS = ("lancewal.key.bytes", "lancewal.value.bytes", "lancewal.headers.bytes")
LETTER_HEADERS = frozenset([SOURCE_HEADER, KIND_HEADER, *CUT_HEADERS])
"""Headers of a dead letter beside Connect's (``kafka.dead_letters``)."""
ORIGINAL = "original."
"""Prefix of the name of a header that the record of a dead letter had itself, if the name is one of ours."""
_RESERVED = "lancewal."
_KNOWN = {OP_HEADER, SOURCE_HEADER, KIND_HEADER}
_OF_CUT = {*CUT_HEADERS, *(ORIGINAL + name for name in CUT_HEADERS)}

OPS: dict[bytes | None, Op] = {b"upsert": Op.UPSERT, b"patch": Op.PATCH, b"delete": Op.DELETE}
"""Values of the header."""

Headers = list[tuple[str, bytes | None]] | None


def op_of(headers: Headers) -> Op | None:
    """Return the operation that the headers name; None if they name none.

    Raises ``Refusal`` of kind ``unreadable_header``, ``cut_letter``, ``unknown_header`` or ``unknown_op``.
    """
    if headers == UNREADABLE_HEADERS:
        raise Refusal("unreadable_header", "expected header names in UTF-8")
    if any(name in _OF_CUT for name, _ in headers or ()):
        raise Refusal(
            "cut_letter",
            "expected a record: this dead letter lacks a part of its record (lancewal.source says where the record lies)",
        )
    for name, _ in headers or ():
        if name[: len(_RESERVED)].lower() == _RESERVED and name not in _KNOWN:
            raise Refusal(
                "unknown_header",
                f"expected {OP_HEADER} and no other header whose name begins with {_RESERVED}",
                name,
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
    """Length of key, value and headers (names in UTF-8, and values) together."""
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name.encode("utf-8", "surrogatepass")) + len(held or b"") for name, held in headers or ())
