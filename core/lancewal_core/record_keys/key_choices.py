"""Choices that a table has for its record keys, by name.  Importing them does not load Arrow, which takes long."""

from __future__ import annotations

from typing import Literal

KeyFormat = Literal[
    "canonical",
    "short",
    "integer",
    "long",
    "json-compact",
    "json",
    "connect-json",
    "avro",
    "protobuf",
    "json-schema",
    "bytes",
]
"""Format of a table's record keys (``key_format``)."""
Partitioner = Literal["murmur2", "crc32", "fnv1a", "none"]
"""Partitioner of a table's producers (``partitioner``)."""
