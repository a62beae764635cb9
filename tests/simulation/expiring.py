"""Rows that leave the table otherwise than by records: a flusher's expiry, and a user's deletes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, MergedPositionUnknown, TableRestored, VersionGone
from lancewal_core.rows.ttl import Ttl
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from tests.simulation.services import TakingUp, flusher_context
from tests.simulation.settings import EXPIRED_PER_S
from tests.simulation.world import PASSING, Process, World
from tests.twins.sim_clock import EPOCH_MS


@dataclass(frozen=True, slots=True)
class OldOffsets(Ttl):
    """Rows expire by the number in a column, which grows with their offsets, as time does."""

    def threshold(self, type_: pa.DataType, now_ms: int) -> int:
        return (now_ms - EPOCH_MS) * EXPIRED_PER_S // 1000


TTL = OldOffsets("b", 0)


def expirer(world: World, process: Process) -> None:
    """Rounds of expiry, as the flusher has them between its merges."""
    taking_up = TakingUp(flusher_context(world, process))
    oldest = OldestTimes()
    while True:
        rows_max = process.rng.choice([1, 3, 100])
        try:
            result = taking_up.act(partial(expire_next, ttl=TTL, oldest=oldest, rows_max=rows_max))
            if isinstance(result, Expired):
                world.note("expiry")
        except (*PASSING, TableRestored, VersionGone, MergedPositionUnknown, ContractMismatch) as error:
            world.note(f"expiry: {type(error).__name__}")
        world.scheduler.sleep(process.rng.choice([0.1, 0.6]))
