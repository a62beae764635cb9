"""Options of ``spark.read.format("lancewal")``.

Spark shows options in plans, logs and its web pages: a credential is never one of them.  Storage options stand in the
environment of the driver and of the executors (``settings.executor``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from lancewal_core.errors import InvalidInput
from lancewal_core.store.address import split_address
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_reader.left_out import OnConflict

OPTIONS: dict[str, str] = {
    "table": "where the table lies: a local path, file:// or s3:// (`path` and `load(...)` mean the same)",
    "consistency": "strong (default): every row durable before load(); eventual: the merged table alone",
    "columns": "comma-separated names of the columns to read (default all)",
    "base_paths": "refuse (default) or allow a table whose files lie in other folders too, as a shallow clone's do",
    "conflicts": "leave-out (default) records of keys in conflict, or fail where there are any",
}
_ALIASES = {"path": "table"}
_CREDENTIAL = re.compile(
    r"secret|password|passwd|token|credential|access.?key|account.?key|private.?key|^aws|^azure|sas"
)


@dataclass(frozen=True, slots=True)
class SparkOptions:
    table: str
    consistency: Literal["strong", "eventual"]
    columns: tuple[str, ...] | None
    """None: all."""
    base_paths: BasePaths = "refuse"
    on_conflict: OnConflict = "leave-out"


def parse_options(options: Mapping[str, str]) -> SparkOptions:
    """Raise ``InvalidInput`` for an option that is unknown, missing, given twice or malformed."""
    found: dict[str, str] = {}
    for given, value in options.items():
        name = _ALIASES.get(given.lower(), given.lower())
        if name not in OPTIONS:
            raise InvalidInput(_refusal(given))
        if name in found and found[name] != value:
            raise InvalidInput("options 'table' and 'path' name different tables: give one of them")
        found[name] = value
    if not found.get("table"):
        raise InvalidInput(f"option 'table' is missing: {OPTIONS['table']}")
    consistency = found.get("consistency", "strong").lower()
    if consistency not in ("strong", "eventual"):
        raise InvalidInput(f"option consistency={found['consistency']!r} is unknown: use 'strong' or 'eventual'")
    base_paths = found.get("base_paths", "refuse").lower()
    if base_paths not in ("refuse", "allow"):
        raise InvalidInput(f"option base_paths={found['base_paths']!r} is unknown: use 'refuse' or 'allow'")
    conflicts = found.get("conflicts", "leave-out").lower()
    if conflicts not in get_args(OnConflict):
        raise InvalidInput(f"option conflicts={found['conflicts']!r} is unknown: use 'leave-out' or 'fail'")
    split_address(found["table"])
    columns = None
    if "columns" in found:
        columns = tuple(name.strip() for name in found["columns"].split(","))
        if not all(columns):
            raise InvalidInput(f"option columns={found['columns']!r}: expected names separated by commas")
    return SparkOptions(
        found["table"],
        cast('Literal["strong", "eventual"]', consistency),
        columns,
        cast("BasePaths", base_paths),
        cast("OnConflict", conflicts),
    )


def _refusal(given: str) -> str:
    if _CREDENTIAL.search(given.lower()):
        # The value is not shown, nor is it kept.
        return (
            f"option {given!r} is refused: Spark shows options in plans and logs, so credentials and storage options "
            "come from the environment of driver and executors (AWS_* variables, a role, or LANCEWAL_STORAGE__OPTIONS__...)"
        )
    known = "; ".join(f"{name}: {text}" for name, text in OPTIONS.items())
    return f"option {given!r} is unknown. Options of format lancewal: {known}"
