"""The deployment to be estimated: lancewal over one table."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from lancewal_core.errors import InvalidInput
from lancewal_core.table.contract import PARTITIONS_MAX


@dataclass(frozen=True, slots=True)
class Deployment:
    """Size and load of a deployment.  Raises ``InvalidInput`` for values that no deployment can have."""

    rows_per_s: float
    """Records of all partitions together, the same in each."""
    row_bytes: float
    """Bytes of one row as Arrow; about those of its record's value."""
    partitions: int
    members: int
    """Ingest processes, among which the partitions are divided evenly."""
    latency_s: float
    """Seconds from a request to the store to its answer."""
    freshness_s: float | None
    """Longest time from a record's arrival at the broker to the end of the read that shows it.  None: the time that
    results from the default settings."""
    readers: int
    """Processes that keep the table open and read it strongly again and again."""
    read_every_s: float
    """Time between the beginnings of two reads of one of them; 0: no pause between them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (not math.isfinite(value) or value < 0):
                raise InvalidInput(f"{field.name} is {value}: expected a number, 0 or more")
        for name in ("rows_per_s", "row_bytes", "partitions", "members"):
            if not getattr(self, name):
                raise InvalidInput(f"{name} is 0: give at least 1, or there is nothing to estimate")
        if self.partitions > PARTITIONS_MAX:
            raise InvalidInput(f"{self.partitions} partitions: a table has at most {PARTITIONS_MAX}")
        if self.members > self.partitions:
            raise InvalidInput(
                f"members: {self.members}, partitions: {self.partitions}. Give at most as many members as partitions: "
                "a member without a partition has nothing to do"
            )

    @property
    def member_rows_per_s(self) -> float:
        return self.rows_per_s / self.members

    @property
    def member_partitions(self) -> float:
        return self.partitions / self.members
