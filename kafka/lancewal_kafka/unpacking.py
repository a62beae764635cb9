"""Sizes that a batch of a Kafka topic can unpack to, by what its brokers let into the topic.

A broker holds what it stores against ``max.message.bytes``.  With a ``compression.type`` of its own it packs every
batch anew.  No other codec is then in what it stores from then on.  With ``producer`` each producer chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = {"uncompressed": 1, "snappy": 22, "lz4": 255, "gzip": 1032, "producer": 1032}
"""Bytes that one byte can become, by the codecs' formats.  snappy copies 64 bytes in 3, lz4 255 in a byte of length,
deflate 258 in two bits.  zstd knows no such number; its readers have a limit (``receive.message.max.bytes``)."""


@dataclass(frozen=True, slots=True)
class StoredBatches:
    """How a topic stores batches: its effective ``compression.type`` and ``max.message.bytes``."""

    compression: str
    bytes_max: int

    def unpacked_bytes_max(self, zstd_bytes_max: int) -> int:
        """Return the bytes that one batch can become; for zstd as many as its reader lets pass."""
        if self.compression == "zstd":
            return zstd_bytes_max
        most = self.bytes_max * _MOST.get(self.compression, max(_MOST.values()))
        return max(most, zstd_bytes_max) if self.compression == "producer" else most
