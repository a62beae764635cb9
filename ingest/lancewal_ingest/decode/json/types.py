"""How deep column types may nest, so that values of them can be decoded.

Each type that a contract can have (``lancewal_core.rows.column_types``) has a JSON form.  ``cells`` and
docs/reference/json-types.md have the form of each type.
"""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.errors import InvalidSchema

NESTING_MAX = 16
"""Largest number of levels of lists, maps and structs inside each other in one column."""


def check_nesting(columns: pa.Schema) -> None:
    """Raise ``InvalidSchema``, which names the column, if the type of a column nests too deep."""
    for field in columns:
        if _levels(field.type) > NESTING_MAX:
            raise InvalidSchema(
                f"column {field.name!r} nests more than {NESTING_MAX} lists, maps and structs in each other. Flatten its type"
            )


def _levels(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return 1
    if pa.types.is_map(type_):
        return 1 + _levels(type_.item_type)
    return 1 + max((_levels(type_.field(place).type) for place in range(type_.num_fields)), default=0)
