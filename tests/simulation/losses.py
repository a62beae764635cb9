"""WAL segments that are lost from the midst of a log, and put back later, as from a backup.

While one is lost, whoever needs it is either right all the same or stops with an error that names it; nobody takes a log to
end there.  A log's newest segment is never lost: nothing would show that it was there.
"""

from __future__ import annotations

from random import Random

from lancewal_core.errors import LancewalError
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Sequence
from lancewal_core.process.clock import Clock
from lancewal_core.wal.segment import Segment, decode_segment
from tests.twins.faults import Faultless
from tests.twins.memory_store import MemoryBucket, MemoryStore

_MOST_IN_A_ROW = 4


class Losses:
    """What is lost from a bucket, by key."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self._lost: dict[str, bytes] = {}
        self._ever: set[str] = set()

    def get(self, key: str) -> bytes | None:
        """A lost object."""
        return self._lost.get(key)

    def lose(self, rng: Random) -> list[str]:
        """Some segments in a row of some log, none of them its newest object."""
        logs: dict[LogId, list[Sequence]] = {}
        for info in self._bucket.listing(paths.WAL):
            found = paths.parse_wal_segment(info.key)
            if found is not None:
                logs.setdefault(found[0], []).append(found[1])
        log = rng.choice(sorted(log for log, numbers in logs.items() if len(numbers) > 1) or [None])
        if log is None:
            return []
        older = logs[log][:-1]
        first = rng.randrange(len(older))
        keys = [paths.wal_segment(log, n) for n in older[first : first + rng.randint(1, _MOST_IN_A_ROW)]]
        return [key for key in keys if self.take(key)]

    def take(self, key: str) -> bool:
        """Lose this segment; False where there is none."""
        data = self._bucket.get(key)
        if data is None or not isinstance(decode_segment(data, key), Segment):
            return False
        self._lost[key] = data
        self._ever.add(key)
        self._bucket.delete(key)
        return True

    def put_back(self, now_ms: int) -> list[str]:
        """Everything.  Of what was needed no more, the number may be taken: by a claimer that knew no better."""
        found = sorted(self._lost)
        for key in found:
            self._bucket.put(key, self._lost.pop(key), now_ms)
        return found

    def named_by(self, error: LancewalError) -> bool:
        """Whether the error says which segment is lost, or was when it was looked for."""
        return any(key in str(error) for key in self._ever)


class WithWhatIsLost(MemoryStore):
    """The bucket as it would be, were nothing lost."""

    def __init__(self, clock: Clock, bucket: MemoryBucket, losses: Losses) -> None:
        super().__init__(clock, bucket, Faultless())
        self._losses = losses

    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        return self._losses.get(key) if found is None else found
