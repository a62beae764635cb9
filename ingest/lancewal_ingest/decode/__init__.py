"""Kafka records to WAL batches."""

from lancewal_ingest.decode.json.decoder import Decoder
from lancewal_ingest.decode.outcomes import Decoded, Rejected
from lancewal_kafka.records import Records

__all__ = ["Decoded", "Decoder", "Records", "Rejected"]
