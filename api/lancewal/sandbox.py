"""Public names for trying lancewal on one machine: a Kafka broker, Kafka Connect with Debezium, and a schema registry.

lancewal fetches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker
    from lancewal_demo.stack.connect import ConnectWorker
    from lancewal_demo.stack.registry import RegistryServer

__all__ = ["ConnectWorker", "KafkaBroker", "RegistryServer"]

__getattr__, __dir__ = names_of(
    __name__,
    {
        "ConnectWorker": "lancewal_demo.stack.connect:ConnectWorker",
        "KafkaBroker": "lancewal_demo.stack:KafkaBroker",
        "RegistryServer": "lancewal_demo.stack.registry:RegistryServer",
    },
)
