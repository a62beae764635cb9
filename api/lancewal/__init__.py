"""lancewal's public names, each loaded when it is first used: ``import lancewal`` takes milliseconds.

All names outside of this module, ``lancewal.errors``, ``lancewal.spark`` and ``lancewal.sandbox`` are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal import errors, sandbox, spark
    from lancewal_core.rows.murmur2 import partition_of
    from lancewal_core.rows.region_key import encode_region_key
    from lancewal_core.settings.load import load_settings
    from lancewal_core.table.snapshots import Snapshot
    from lancewal_reader.point.at import At
    from lancewal_reader.point.receipt import Receipt, receipt_of
    from lancewal_reader.point.token import Token
    from lancewal_reader.reading.rows import Rows
    from lancewal_reader.search.found import SearchCoverage, SearchRows
    from lancewal_reader.search.options import RRF
    from lancewal_reader.search.texts.text_query import Boolean, Boost, Match, Phrase
    from lancewal_reader.table import Table, open_table
    from lancewal_reader.unmerged.left_out import LeftOut, left_out_of
    from lancewal_tables.load.whole import load_files

__all__ = [
    "RRF",
    "At",
    "Boolean",
    "Boost",
    "LeftOut",
    "Match",
    "Phrase",
    "Receipt",
    "Rows",
    "SearchCoverage",
    "SearchRows",
    "Snapshot",
    "Table",
    "Token",
    "encode_region_key",
    "errors",
    "left_out_of",
    "load_files",
    "load_settings",
    "open_table",
    "partition_of",
    "receipt_of",
    "sandbox",
    "spark",
]

_load = names_of(
    __name__,
    {
        "At": "lancewal_reader.point.at:At",
        "Boolean": "lancewal_reader.search.texts.text_query:Boolean",
        "Boost": "lancewal_reader.search.texts.text_query:Boost",
        "LeftOut": "lancewal_reader.unmerged.left_out:LeftOut",
        "Match": "lancewal_reader.search.texts.text_query:Match",
        "Phrase": "lancewal_reader.search.texts.text_query:Phrase",
        "RRF": "lancewal_reader.search.options:RRF",
        "Receipt": "lancewal_reader.point.receipt:Receipt",
        "Rows": "lancewal_reader.reading.rows:Rows",
        "SearchCoverage": "lancewal_reader.search.found:SearchCoverage",
        "SearchRows": "lancewal_reader.search.found:SearchRows",
        "Snapshot": "lancewal_core.table.snapshots:Snapshot",
        "Table": "lancewal_reader.table:Table",
        "Token": "lancewal_reader.point.token:Token",
        "encode_region_key": "lancewal_core.rows.region_key:encode_region_key",
        "errors": "lancewal.errors",
        "left_out_of": "lancewal_reader.unmerged.left_out:left_out_of",
        "load_files": "lancewal_tables.load.whole:load_files",
        "load_settings": "lancewal_core.settings.load:load_settings",
        "open_table": "lancewal_reader.table:open_table",
        "partition_of": "lancewal_core.rows.murmur2:partition_of",
        "receipt_of": "lancewal_reader.point.receipt:receipt_of",
        "sandbox": "lancewal.sandbox",
        "spark": "lancewal.spark",
    },
)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return __all__
