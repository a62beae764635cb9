"""The reason why a record lies in a wrong partition: whether its key or its partition is wrong, and which other
setting would fit."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.record_keys.json_compact import same_json
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.record_keys.key_format import KeyCodec, key_codec
from lancewal_core.record_keys.partitioner import that_places
from lancewal_core.rows.schema import RowSchema

LIBRDKAFKA: dict[Partitioner, str] = {
    "murmur2": "murmur2_random",
    "crc32": "consistent_random",
    "fnv1a": "fnv1a_random",
}
"""Value of librdkafka's property ``partitioner`` for each of lancewal's partitioners."""


def why_misrouted(
    rows: RowSchema, key_format: KeyFormat, key: bytes | None, encoded: bytes | None, partitioner: Partitioner
) -> str:
    """Return a sentence, without its full stop, that says whether a misrouted record's key or its partition is wrong.

    ``rows`` has the column names that records use.  ``key`` is the record's key.  ``encoded`` is the key computed
    from the record's row; None if it cannot be computed.
    """
    codec = key_codec(rows, key_format)
    if codec is None:
        if key is None:
            return "A record without a key belongs in no partition"
        return _wrong_partition("The record's partition is not that of its key", key, partitioner)
    of_columns = f"{codec.named} of ({', '.join(rows.region_key)})"
    if encoded is None:
        return (
            f"The record's ({', '.join(rows.region_key)}) has no encoding: a null, or a value that {codec.named} does "
            "not hold"
        )
    if key is None:
        return f"The record has no key: the producer must send {of_columns}"
    if key == encoded:
        return _wrong_partition("The record's key is right, its partition is not", key, partitioner)
    if key_format == "json-compact" and same_json(key, encoded):
        return (
            f"The bytes of its key are another text of the same JSON: they must be {of_columns}. If producers write other "
            "texts, make the table with table.format.key: json"
        )
    said = f"The bytes of its key are wrong: they are not {of_columns}"
    other = _other_format(rows, codec, key, encoded)
    if other is None:
        return said
    return f"{said}. They are this row's key in another format: make the table with table.format.key: {other}"


def _wrong_partition(said: str, key: bytes, partitioner: Partitioner) -> str:
    if not key and partitioner == "crc32":
        return "The record's key is empty: producers with crc32 put such a record into any partition"
    return (
        f"{said}: the producer does not use {partitioner}, or chooses partitions "
        f"itself. The property of librdkafka is partitioner={LIBRDKAFKA[partitioner]}"
    )


def _other_format(rows: RowSchema, codec: KeyCodec, key: bytes, encoded: bytes) -> KeyFormat | None:
    """Return the format in which the record's row has the key ``key``; None if there is none."""
    values = codec.decode(encoded)
    for other in get_args(KeyFormat):
        try:
            of_other = key_codec(rows, other)
            if values is None or of_other is None:
                continue
            found = of_other.encode(values)
        except (InvalidSchema, InvalidInput):
            continue  # no format for this region key, or for these values
        if found == key:
            return other  # type: ignore[no-any-return]  # one of its names
        if other == "json-compact" and same_json(key, found):
            return "json"
    return None


def other_partitioner(
    placed: Collection[tuple[bytes | None, int]], partitions: int, partitioner: Partitioner
) -> str | None:
    """Return a sentence, without its full stop, about another partitioner that would put all keys into their actual
    partitions.

    Return None if there is no such partitioner.  ``placed``: keys of nearby records, each with its partition.
    """
    given = {(key, lies) for key, lies in placed if key is not None}
    found = that_places(given, partitions)
    if found is None or found == partitioner:
        return None
    said = f"All of the {len(given)} keys around it lie where {found} puts them"
    return f"{said}. Make the table with table.partitioner: {found}"
