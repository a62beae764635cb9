"""Sizes to which a batch of a Kafka topic can unpack, by the topic's configuration.

A broker compares the stored size of a batch with ``max.message.bytes``.  If the topic has a ``compression.type`` of
its own, the broker packs every batch again, so new batches have no other codec.  With ``producer`` each producer
chooses the codec.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = {"uncompressed": 1, "snappy": 22, "lz4": 255, "gzip": 1032, "producer": 1032}
"""Largest number of bytes that one stored byte can unpack to, by the codecs' formats.  snappy copies 64 bytes in 3, lz4
255 in a byte of length, deflate 258 in two bits.  zstd has no such limit, but its readers have one
(``receive.message.max.bytes``)."""


@dataclass(frozen=True, slots=True)
class StoredBatches:
    """How a topic stores batches: its effective ``compression.type`` and ``max.message.bytes``."""

    compression: str
    bytes_max: int

    def unpacked_bytes_max(self, zstd_bytes_max: int) -> int:
        """Return the most bytes that one batch can unpack to.  ``zstd_bytes_max`` is the reader's limit for zstd."""
        if self.compression == "zstd":
            return zstd_bytes_max
        most = self.bytes_max * _MOST.get(self.compression, max(_MOST.values()))
        return max(most, zstd_bytes_max) if self.compression == "producer" else most
