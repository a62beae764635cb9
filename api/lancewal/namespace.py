"""Public names for clients of Lance Namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal_tables.catalog.namespace import PostgresNamespace

__all__ = ["PostgresNamespace"]

__getattr__, __dir__ = names_of(__name__, {"PostgresNamespace": "lancewal_tables.catalog.namespace:PostgresNamespace"})
