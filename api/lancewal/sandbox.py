"""Public names for trying lancewal on one machine: a Kafka broker that lancewal fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker

__all__ = ["KafkaBroker"]

__getattr__ = names_of(__name__, {"KafkaBroker": "lancewal_demo.stack:KafkaBroker"})


def __dir__() -> list[str]:
    return __all__
