"""Rows of every type of Spark's that a column can hold, for a load: in Spark's SQL, and as they must come in.

Knows neither Spark nor lancewal, as ``reads``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("ok", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("u8", pa.uint8()),
        ("u32", pa.uint32()),
        ("u64", pa.uint64()),
        ("f4", pa.float32()),
        ("f", pa.float64()),
        ("dec", pa.decimal128(38, 18)),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("days", pa.struct([("at", pa.timestamp("us", "UTC")), ("all", pa.list_(pa.date32()))])),
        ("times", pa.list_(pa.struct([("local", pa.timestamp("us")), ("n", pa.uint64())]))),
        ("vec", pa.list_(pa.float32(), 2)),
    ]
)
_MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1582, 10, 10, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 7, 1, 12, 30, tzinfo=UTC),
]


def _row(id: int, at: datetime) -> dict[str, Any]:
    local, u64 = at.replace(tzinfo=None), 2**64 - 1 - id
    return {
        "region": f"r{id}",
        "id": id,
        "ok": id % 2 == 0,
        "i8": -128,
        "i16": -(2**15),
        "i32": -(2**31),
        "u8": 255,
        "u32": 2**32 - 1,
        "u64": u64,
        "f4": 0.5,
        "f": 0.1,
        "dec": Decimal(f"-{10**19 + id}.000000000000000001"),
        "bin": b"\x00\xff",
        "day": at.date(),
        "at": at,
        "local": local,
        "tags": ["ä", None],
        "days": {"at": at, "all": [at.date(), None]},
        "times": [{"local": local, "n": u64}, None],
        "vec": [0.5, -1.5],
    }


ROWS: list[dict[str, Any]] = [_row(id, at) for id, at in enumerate(_MOMENTS)]
ROWS.append({name: "r9" if name == "region" else 9 if name == "id" else None for name in COLUMNS.names})


def _sql(row: dict[str, Any]) -> str:
    if row["at"] is None:
        return "SELECT " + ", ".join(
            f"{value!r} AS {name}" if value is not None else f"NULL AS {name}" for name, value in row.items()
        )
    day, local = f"date '{row['day'].isoformat()}'", f"timestamp_ntz '{row['local'].isoformat(sep=' ')}'"
    at, u64 = f"timestamp '{row['local'].isoformat(sep=' ')}Z'", f"cast('{row['u64']}' AS decimal(20, 0))"
    return (
        f"SELECT '{row['region']}' AS region, {row['id']}L AS id, {row['ok']} AS ok, cast(-128 AS tinyint) AS i8, "
        f"cast(-32768 AS smallint) AS i16, cast(-2147483648L AS int) AS i32, cast(255 AS smallint) AS u8, "
        f"4294967295L AS u32, {u64} AS u64, cast(0.5 AS float) AS f4, cast('0.1' AS double) AS f, "
        f"cast('{row['dec']}' AS decimal(38, 18)) AS dec, X'00FF' AS bin, {day} AS day, {at} AS at, {local} AS local, "
        f"array('ä', NULL) AS tags, named_struct('at', {at}, 'all', array({day}, NULL)) AS days, "
        f"array(named_struct('local', {local}, 'n', {u64}), NULL) AS times, "
        f"array(cast(0.5 AS float), cast(-1.5 AS float)) AS vec"
    )


SQL = " UNION ALL ".join(map(_sql, ROWS))
