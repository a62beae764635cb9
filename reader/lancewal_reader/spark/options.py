"""Options of ``spark.read.format("lancewal")``.

Spark shows options in plans, logs and its web pages, so no option is a credential.  Storage options come from the
environment of the driver and of the executors (``settings.executor``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.named import address_of, may_be_name
from lancewal_core.catalog.opened import open_by_text
from lancewal_core.errors import InvalidInput
from lancewal_core.open import Address
from lancewal_core.settings.durations import duration_s
from lancewal_core.settings.executor import catalog_password, storage_options
from lancewal_core.store.address import as_spark_writes, table_address, whole_address
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_reader.cuts import is_cut, table_in_cut
from lancewal_reader.point.at import Point
from lancewal_reader.point.read_options import TIMEOUT_S, ReadOptions, read_options
from lancewal_reader.spark.feed_options import FEED_OPTIONS, SPARKS_FEED_OPTIONS, FeedOptions, feed_options
from lancewal_reader.unmerged.left_out import OnConflict
from lancewal_reader.unmerged.portions import UNMERGED_KEYS_MAX

OPTIONS: dict[str, str] = {
    "table": "the table's address: a path, or s3:// and the like (`path` and `load(...)` mean the same). Or its name, where "
    "a catalog is named",
    "catalog": "address of a catalog, which finds the table by its name: its root, or that of a server without a secret, such "
    "as postgresql://...",
    "consistency": "strong (default): every row durable before load(); eventual: the merged table alone",
    "columns": "comma-separated names of the columns to read (default all)",
    "filter": "a Lance SQL condition; only rows that pass it are read",
    "at": "a point: the receipt of an earlier read (lw1...), for its rows again. Or version:412, positions:0=120,1=88, "
    "timestamp:..., record-time:..., snapshot:NAME, or cut:NAME with a catalog. versionAsOf and timestampAsOf mean the same",
    "at_least": "what the read must reach: a token (lw1...), a record such as orders-3-1841, or a receipt; it waits for it",
    "timeout_s": "how long at_least waits, in seconds (default 30)",
    "max_staleness_s": "seconds, such as 5 or 5s: allowed, and equal to strong, since a DataFrame is planned once",
    "base_paths": "refuse (default) or allow a table whose files lie in other folders too, as a shallow clone's do",
    "conflicts": "leave-out (default) records of keys in conflict, or fail where there are any",
    "unmerged_keys_max": "most keys with unmerged records, which each task holds in memory; with more, a read is refused "
    "(default 10000000)",
    **FEED_OPTIONS,
}
IO_THREADS = 8
"""Largest number of requests that a process of Spark sends to the store at the same time.  Many such processes share a
machine."""
COUNT = "lancewal_count"
"""Option that only ``lancewal.spark.count`` sets: tasks return numbers of rows instead of rows."""
NOT_OF_A_COUNT = frozenset({"columns", "limit", "path"})
_ALIASES = {"path": "table"}
_POINTS = {"versionasof": "version:", "timestampasof": "timestamp:"}
"""Options of other formats that mean ``at`` with a version or a time, each with the beginning of the text of ``at``."""
_SPARKS = {"limit": "use limit() of the DataFrame: a source would read so many rows in each task"}
"""Options that other interfaces have, and what to use in Spark."""
_OF_A_CATALOG = "provider"
"""Option that shows that the call comes from ``CREATE TABLE``, which is refused.  Spark adds it, like ``owner``, when
it asks for the columns of the new table."""
_VIEW = (
    "use a temporary view: lancewal.spark.view(spark, ADDRESS, NAME), or in SQL CREATE OR REPLACE TEMPORARY VIEW NAME USING "
    "lancewal OPTIONS (table 'ADDRESS')"
)
_CREDENTIAL = re.compile(
    r"secret|password|passwd|token|credential|access.?key|account.?key|private.?key|service.?account|bearer|^aws|^azure|^google|sas"
)


@dataclass(frozen=True, slots=True)
class SparkOptions:
    table: str
    """The table's address."""
    read: ReadOptions
    columns: tuple[str, ...] | None
    """Columns to read; None: all."""
    filter: str | None = None
    base_paths: BasePaths = "refuse"
    on_conflict: OnConflict = "leave-out"
    unmerged_keys_max: int = UNMERGED_KEYS_MAX
    count: bool = False
    """Whether each task gives its number of rows instead of rows."""
    feed: FeedOptions | None = None
    """The changes that are asked for; None: a state."""

    @property
    def address(self) -> Address:
        """The table's address, with the credentials of this process's environment."""
        return Address(self.table, storage_options(os.environ), self.base_paths)


def parse_options(options: Mapping[str, str]) -> SparkOptions:
    """Check the options.  Raises ``InvalidInput`` if an option is unknown, missing, given twice or malformed.

    If the table is given by name, its address is looked up.  This may raise ``TableUnknown`` and errors of the catalog.
    """
    if _OF_A_CATALOG in map(_plain, options):
        raise InvalidInput(
            "CREATE TABLE ... USING lancewal makes a table that cannot be read: Spark keeps its options, and gives them to no "
            f"read of a Python source. Instead {_VIEW}"
        )
    found = _by_name(options)
    if not found.get("table"):
        # Spark 4.0 to 4.3 give no option at all where a table of their catalog is read or written.
        lost = "" if options else f". A table made by CREATE TABLE has lost it in Spark: {_VIEW}"
        raise InvalidInput(f"option 'table' is missing: {OPTIONS['table']}{lost}")
    base_paths = found.get("base_paths", "refuse").lower()
    if base_paths not in ("refuse", "allow"):
        raise InvalidInput(f"option base_paths={found['base_paths']!r} is unknown: use 'refuse' or 'allow'")
    conflicts = found.get("conflicts", "leave-out").lower()
    if conflicts not in get_args(OnConflict):
        raise InvalidInput(f"option conflicts={found['conflicts']!r} is unknown: use 'leave-out' or 'fail'")
    keys_max = found.get("unmerged_keys_max", str(UNMERGED_KEYS_MAX)).strip()
    if not (keys_max.isascii() and keys_max.isdecimal()):
        raise InvalidInput(f"option unmerged_keys_max={keys_max!r}: expected a number of keys from 0 on")
    catalog = _catalog(found)
    table, at = _table_and_point(found, catalog)
    table_address(table)
    feed = feed_options(found)
    count = any(_plain(name) == _plain(COUNT) for name in options)
    if count and feed is not None:
        raise InvalidInput("count: it counts the rows of a state. For changes, use count() of the DataFrame")
    timeout_s = _seconds(found, "timeout_s")
    read = read_options(
        found.get("consistency", "strong").lower(),
        at,
        found.get("at_least"),
        _seconds(found, "max_staleness_s"),
        TIMEOUT_S if timeout_s is None else timeout_s,
    )
    columns = None
    if "columns" in found:
        columns = tuple(name.strip() for name in found["columns"].split(","))
        if not all(columns):
            raise InvalidInput(f"option columns={found['columns']!r}: expected names separated by commas")
    return SparkOptions(
        table,
        read,
        columns,
        found.get("filter"),
        cast("BasePaths", base_paths),
        cast("OnConflict", conflicts),
        int(keys_max),
        count,
        feed,
    )


def _by_name(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their own names.  Raises ``InvalidInput`` if one is unknown or given twice."""
    found: dict[str, str] = {}
    for given, value in options.items():
        plain = _plain(given)
        if plain == _plain(COUNT):
            continue
        if plain in _POINTS:
            if "at" in found:
                raise InvalidInput("options at, versionAsOf and timestampAsOf each say what is read: give one of them")
            plain, value = "at", _POINTS[plain] + value.strip()
        name = _NAMES.get(_ALIASES.get(plain, plain))
        if name is None:
            raise InvalidInput(_refusal(given))
        if name in found and found[name] != value:
            other = "'table' and 'path' name different tables" if name == "table" else f"{name!r} is there twice"
            raise InvalidInput(f"options {other}: give one of them")
        found[name] = value
    return found


def _address(table: str, catalog: StoredCatalog | None) -> str:
    """Return the address of the table.  A name is looked up in the catalog, on the driver; tasks get the address."""
    if catalog is not None and may_be_name(table):
        return address_of(catalog, table)
    return whole_address(as_spark_writes(table), storage_options(os.environ))


def _table_and_point(found: Mapping[str, str], catalog: StoredCatalog | None) -> tuple[str, Point | str | None]:
    """Return the address of the table, and the point that is read.  A cut is looked up in the catalog, on the driver; tasks
    get the state that it names."""
    table, at = found["table"], found.get("at")
    if at is None or not is_cut(at):
        return _address(table, catalog), at
    return table_in_cut(catalog, at, table, lambda: _address(table, catalog))


def _catalog(found: Mapping[str, str]) -> StoredCatalog | None:
    named = found.get("catalog")
    return open_by_text(named, storage_options(os.environ), catalog_password(os.environ)) if named else None


def _seconds(found: Mapping[str, str], name: str) -> float | None:
    text = found.get(name)
    if text is None:
        return None
    seconds = float(text) if text.strip().replace(".", "", 1).isdecimal() else duration_s(text)
    if seconds is None:
        raise InvalidInput(
            f"option {name}={text!r}: expected a number of seconds, or a duration such as 500ms, 5s or 2m"
        )
    return seconds


def _plain(name: str) -> str:
    """Return an option's name in lower case and without ``_``: neither matters."""
    return name.lower().replace("_", "")


_NAMES = {_plain(name): name for name in (*OPTIONS, *SPARKS_FEED_OPTIONS)}


def _refusal(given: str) -> str:
    if _CREDENTIAL.search(given.lower()):
        # The value is not shown, nor is it kept.
        return (
            f"option {given!r} is refused: Spark shows options in plans and logs. Credentials and storage options "
            "come from the environment of driver and executors (AWS_*, AZURE_* or GOOGLE_* variables, a role, or "
            "LANCEWAL_STORAGE__OPTIONS__...)"
        )
    known = "; ".join(f"{name}: {text}" for name, text in OPTIONS.items())
    if _plain(given) in _SPARKS:
        return f"option {given!r} is unknown: {_SPARKS[_plain(given)]}"
    return f"option {given!r} is unknown. Options of format lancewal: {known}"
