"""Say why a record lies in a wrong partition: whether its key or its partition is wrong, and who else would put it there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lancewal_core.record_keys.json_compact import same_json
from lancewal_core.record_keys.partitioner import Partitioner, that_places

LIBRDKAFKA: dict[Partitioner, str] = {
    "murmur2": "murmur2_random",
    "crc32": "consistent_random",
    "fnv1a": "fnv1a_random",
}
"""Value of librdkafka's property ``partitioner`` for each of ours."""


def why_misrouted(
    columns: Sequence[str], named: str, key: bytes | None, encoded: bytes | None, partitioner: Partitioner
) -> str:
    """Say whether a misrouted record's key or its partition is wrong, as a sentence without its full stop.

    ``columns`` is the region key, empty if rows do not tell the key.  ``named`` says what the key must be
    (``KeyCodec.named``).  ``key`` is the record's key, ``encoded`` the one that its row tells, or None if it tells none.
    """
    region_key = f"({', '.join(columns)})"
    if columns and encoded is None:
        return f"The record's {region_key} has no encoding: a null, or a value that {named} does not hold"
    if key is None:
        if not columns:
            return "A record without a key belongs in no partition"
        return f"The record has no key: the producer must send {named} of {region_key}"
    if encoded is not None and key != encoded and same_json(key, encoded):
        return f"The bytes of its key are another text of the same JSON: they must be {named} of {region_key}"
    if columns and key != encoded:
        return f"The bytes of its key are wrong: they are not {named} of {region_key}"
    if not key and partitioner == "crc32":
        return "The record's key is empty: producers with crc32 put such a record into any partition"
    wrong = (
        "The record's key is right, its partition is not"
        if columns
        else "The record's partition is not that of its key"
    )
    return (
        f"{wrong}: the producer does not use {partitioner}, or chooses partitions "
        f"itself. The property of librdkafka is partitioner={LIBRDKAFKA[partitioner]}"
    )


def other_partitioner(keys: Collection[bytes | None], partition: int, partitions: int, partitioner: Partitioner) -> str:
    """Return a sentence, with a full stop before it, if another partitioner puts all ``keys`` into the partition where
    they lie; else an empty text."""
    given = {key for key in keys if key is not None}
    found = that_places(given, partition, partitions)
    if found is None or found == partitioner:
        return ""
    said = f". All of the {len(given)} keys around it lie where {found} puts them"
    return f"{said}. Make the table with table.partitioner: {found}"
