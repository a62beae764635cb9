"""Kafka's id of a topic, as text.

Kafka's own tools write the 16 bytes in the URL-safe alphabet of base64, without padding; librdkafka writes the standard
alphabet, whose ``+`` and ``/`` can be no part of an object key or of a region's name.  About every second id has one.
"""

from __future__ import annotations

from lancewal_core.ids import TopicId


def topic_id(text: str) -> TopicId:
    """The id as ``kafka-topics --describe`` shows it, from that form or from ``str(Uuid)`` of the Python client."""
    return TopicId(text.rstrip("=").replace("+", "-").replace("/", "_"))
