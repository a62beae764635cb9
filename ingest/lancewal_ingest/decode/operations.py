"""What a record does to its key: the Kafka header ``lancewal.op``."""

from __future__ import annotations

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.outcomes import Refusal

OP_HEADER = "lancewal.op"

OPS: dict[bytes | None, Op] = {b"upsert": Op.UPSERT, b"patch": Op.PATCH, b"delete": Op.DELETE}
"""Values of the header."""

Headers = list[tuple[str, bytes | None]] | None


def op_of(headers: Headers) -> Op | None:
    """The operation that the headers name, None when they name none.  Raises ``Refusal`` of kind ``unknown_op``."""
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
