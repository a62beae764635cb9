"""lancewal's public names, each loaded when it is first used: ``import lancewal`` takes milliseconds.

All names outside of this module, ``lancewal.errors``, ``lancewal.namespace``, ``lancewal.spark`` and ``lancewal.sandbox`` are
private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal._lazy import names_of

if TYPE_CHECKING:
    from lancewal import errors as errors
    from lancewal import sandbox as sandbox
    from lancewal import spark as spark
    from lancewal_core.catalog.entry import TableEntry as TableEntry
    from lancewal_core.record_keys.key_format import encode_region_key as encode_region_key
    from lancewal_core.record_keys.partitioner import partition_of as partition_of
    from lancewal_core.settings.load import load_settings as load_settings
    from lancewal_core.table.snapshots import Snapshot as Snapshot
    from lancewal_core.table.subscriptions.subscriptions import Subscription as Subscription
    from lancewal_reader.catalog import Catalog as Catalog
    from lancewal_reader.catalog import open_catalog as open_catalog
    from lancewal_reader.cuts import CutTables as CutTables
    from lancewal_reader.point.at import At as At
    from lancewal_reader.point.receipt import Receipt as Receipt
    from lancewal_reader.point.receipt import receipt_of as receipt_of
    from lancewal_reader.point.token import Token as Token
    from lancewal_reader.reading.rows import Rows as Rows
    from lancewal_reader.search.found import SearchCoverage as SearchCoverage
    from lancewal_reader.search.found import SearchRows as SearchRows
    from lancewal_reader.search.options import RRF as RRF
    from lancewal_reader.search.texts.text_query import Boolean as Boolean
    from lancewal_reader.search.texts.text_query import Boost as Boost
    from lancewal_reader.search.texts.text_query import Match as Match
    from lancewal_reader.search.texts.text_query import Phrase as Phrase
    from lancewal_reader.subscriptions import Subscriptions as Subscriptions
    from lancewal_reader.table import Table as Table
    from lancewal_reader.table import open_table as open_table
    from lancewal_reader.unmerged.left_out import LeftOut as LeftOut
    from lancewal_reader.unmerged.left_out import left_out_of as left_out_of
    from lancewal_tables.load.whole import load_files as load_files

_PLACES = {
    "At": "lancewal_reader.point.at:At",
    "Boolean": "lancewal_reader.search.texts.text_query:Boolean",
    "Boost": "lancewal_reader.search.texts.text_query:Boost",
    "Catalog": "lancewal_reader.catalog:Catalog",
    "CutTables": "lancewal_reader.cuts:CutTables",
    "LeftOut": "lancewal_reader.unmerged.left_out:LeftOut",
    "Match": "lancewal_reader.search.texts.text_query:Match",
    "Phrase": "lancewal_reader.search.texts.text_query:Phrase",
    "RRF": "lancewal_reader.search.options:RRF",
    "Receipt": "lancewal_reader.point.receipt:Receipt",
    "Rows": "lancewal_reader.reading.rows:Rows",
    "SearchCoverage": "lancewal_reader.search.found:SearchCoverage",
    "SearchRows": "lancewal_reader.search.found:SearchRows",
    "Snapshot": "lancewal_core.table.snapshots:Snapshot",
    "Subscription": "lancewal_core.table.subscriptions.subscriptions:Subscription",
    "Subscriptions": "lancewal_reader.subscriptions:Subscriptions",
    "Table": "lancewal_reader.table:Table",
    "TableEntry": "lancewal_core.catalog.entry:TableEntry",
    "Token": "lancewal_reader.point.token:Token",
    "encode_region_key": "lancewal_core.record_keys.key_format:encode_region_key",
    "errors": "lancewal.errors",
    "left_out_of": "lancewal_reader.unmerged.left_out:left_out_of",
    "load_files": "lancewal_tables.load.whole:load_files",
    "load_settings": "lancewal_core.settings.load:load_settings",
    "open_catalog": "lancewal_reader.catalog:open_catalog",
    "open_table": "lancewal_reader.table:open_table",
    "partition_of": "lancewal_core.record_keys.partitioner:partition_of",
    "receipt_of": "lancewal_reader.point.receipt:receipt_of",
    "sandbox": "lancewal.sandbox",
    "spark": "lancewal.spark",
}
__all__ = [*_PLACES]
__getattr__, __dir__ = names_of(__name__, _PLACES)
