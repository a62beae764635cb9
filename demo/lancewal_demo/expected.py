"""The expected results, computed by DuckDB straight from the CSV file.

The results are the flights that departed, one row each, and their delays by carrier.  This module shares no code with the
feed or with lancewal.  Sums are of integers, so every figure is exact; a mean is a sum divided by a count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

NO_EXTENSIONS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
"""Settings with which DuckDB fetches nothing from the network."""

_FLIGHTS = """
    SELECT make_date(year, month, day) AS flight_date, carrier, flight::INTEGER AS flight, origin,
           sched_dep_time::INTEGER AS sched_dep_time, dest, sched_arr_time::INTEGER AS sched_arr_time,
           distance::INTEGER AS distance, strptime(time_hour, '%Y-%m-%dT%H:%M:%SZ') AS time_hour, tailnum,
           dep_time::INTEGER AS dep_time, dep_delay::INTEGER AS dep_delay, arr_time::INTEGER AS arr_time,
           arr_delay::INTEGER AS arr_delay, air_time::INTEGER AS air_time
    FROM read_csv(?, nullstr = 'NA', types = {'time_hour': 'VARCHAR'})
    WHERE dep_time IS NOT NULL
"""

_BY_CARRIER = f"""
    SELECT carrier,
           count(*) AS flights,
           count(DISTINCT tailnum) AS aircraft,
           count(DISTINCT dest) AS destinations,
           sum(dep_delay)::BIGINT AS departure_delay_sum,
           sum(dep_delay)::BIGINT / count(dep_delay) AS departure_delay_mean,
           max(dep_delay)::BIGINT AS departure_delay_max,
           count(arr_delay) AS arrivals,
           sum(arr_delay)::BIGINT AS arrival_delay_sum,
           sum(arr_delay)::BIGINT / count(arr_delay) AS arrival_delay_mean,
           max(arr_delay)::BIGINT AS arrival_delay_max,
           sum(air_time)::BIGINT AS air_minutes,
           sum(distance)::BIGINT AS miles
    FROM ({_FLIGHTS})
    GROUP BY carrier
"""


def expected_rows(csv: Path) -> pa.Table:
    """Return the rows that the table must have in the end, without ``sent_at``, in no particular order."""
    rows = _query(_FLIGHTS, csv)
    # DuckDB's times have no zone unless an extension is loaded; the file's are UTC.
    place = rows.column_names.index("time_hour")
    return rows.set_column(place, "time_hour", rows["time_hour"].cast(pa.timestamp("us", tz="UTC")))


def expected_by_carrier(csv: Path) -> pa.Table:
    """Return the expected delays by carrier, one row each, in no particular order."""
    return _query(_BY_CARRIER, csv)


def _query(sql: str, csv: Path) -> pa.Table:
    import duckdb

    with duckdb.connect(config=NO_EXTENSIONS) as connection:
        found: Any = connection.sql(sql, params=[str(csv)]).to_arrow_table()
    return found
