"""What is read.  Knows neither Spark nor DuckDB: the program that reads and the one that compares both import it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Read:
    """One read and what to compare it with.

    ``sql`` is asked of both engines alike; ``t`` is the view of the read in Spark, and in DuckDB the rows that the model has
    (``of``).  ``condition``: what the options keep of them.  A value of ``options`` may name a point: ``{receipt}``,
    ``{version}``, ``{token}``.
    """

    name: str
    sql: str
    options: dict[str, str] = field(default_factory=dict)
    of: Literal["rows", "merged", "earlier"] = "rows"
    condition: str = "true"
    by: Literal["view", "count", "schema", "stream"] = "view"
    """A stream is read to its end into a table of Spark's memory."""
    filters: bool = False
    """With Spark's setting that offers filters to sources."""
    first: tuple[str, ...] = ()
    """Statements on the same view, which Spark runs before ``sql``."""


_SOME = "region, id, a, s, ok, f, dec, day, t.at, local"
_WHOLE = f"SELECT {_SOME}, u64, bin, tags, st, sts, vec, bits FROM t ORDER BY region, id"
_GROUPS = "SELECT region, count(*) AS n, max(a) AS a, sum(f) AS f FROM t GROUP BY region ORDER BY region"
_OFFERED = "SELECT count(*) FROM t WHERE s IS NULL"

READS = (
    Read("all columns", _WHOLE),
    Read("count(*)", "SELECT count(*) AS n FROM t"),
    Read("count(*), one column named", "SELECT count(*) AS n FROM t", {"columns": "id"}),
    Read("aggregate of three columns", _GROUPS, {"columns": "region,a,f"}),
    Read("a schema given", "SELECT f4, region, id FROM t ORDER BY region, id", by="schema"),
    Read("a condition", f"SELECT {_SOME} FROM t WHERE a > 0 AND s LIKE '%a%' ORDER BY region, id"),
    Read("a condition offered", f"SELECT {_SOME} FROM t WHERE a > 0 AND s LIKE 'a%' ORDER BY region, id", filters=True),
    Read("instants offered", "SELECT region, id, t.at FROM t WHERE t.at >= timestamp '1990-01-01 00:00:00+00:00' "
         "AND NOT ok ORDER BY region, id", filters=True),
    Read("all columns after a condition offered", _WHOLE, filters=True, first=(_OFFERED,)),
    Read("the same, cached", _WHOLE, filters=True, first=("CACHE TABLE t", _OFFERED, "UNCACHE TABLE t")),
    Read("union with itself, a condition offered", "SELECT 1 AS n, region, id FROM t WHERE s IS NULL UNION ALL "
         "SELECT 2, region, id FROM t ORDER BY n, region, id", filters=True),
    Read("join with itself, a condition offered", "SELECT x.region, x.id, y.id AS n FROM t x LEFT JOIN t y "
         "ON x.region = y.region AND x.id = y.id AND y.s IS NULL ORDER BY x.region, x.id", filters=True),
    Read("option filter", _GROUPS, {"filter": "ok AND a < 5"}, condition="ok AND a < 5"),
    Read("join with itself", "SELECT x.region, count(*) AS n FROM t x JOIN t y ON x.region = y.region AND x.id < y.id "
         "GROUP BY x.region ORDER BY x.region", {"columns": "region,id"}),
    Read("eventual", _WHOLE, {"consistency": "eventual"}, of="merged"),
    Read("at a version", _GROUPS, {"at": "version:{version}"}, of="merged"),
    Read("at a receipt", _WHOLE, {"at": "{receipt}"}, of="earlier"),
    Read("at a snapshot", _WHOLE, {"at": "snapshot:kept"}, of="earlier"),
    Read("changes from the empty table", _WHOLE, {"start": "earliest", "end": "{receipt}"}, of="earlier"),
    Read("a stream of changes", _WHOLE, {"start": "earliest", "max_rows_per_trigger": "150"}, by="stream"),
    Read("at least a token", _WHOLE, {"at_least": "{token}", "timeout_s": "30"}),
    Read("lancewal.spark.count", "SELECT count(*) AS n FROM t", by="count"),
    Read("lancewal.spark.count, filtered", "SELECT count(*) AS n FROM t", {"filter": "ok"}, condition="ok", by="count"),
)  # fmt: skip

REFUSED = (
    ("an unknown option", {"column": "id"}, "InvalidInput: option 'column' is unknown"),
    ("a filter that is refused", {"filter": "no = 3"}, "InvalidInput: filter 'no = 3' is not accepted"),
    ("a credential", {"aws_secret_access_key": "hush"}, "InvalidInput: option 'aws_secret_access_key' is refused"),
)
"""Options, and what the error says in its first line."""

LOADED = "lancewal.spark.load_dataframe"
"""Not a read: what ``loaded`` has comes in, and is compared in the table."""
