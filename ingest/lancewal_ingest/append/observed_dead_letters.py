"""Dead letters whose failed sends are counted: while sending fails, the records after them wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Region
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_kafka.records import Records


class ObservedDeadLetters:
    """``DeadLetters`` that send through ``letters``.  ``failed`` is called for each ``send`` that raises an error."""

    def __init__(self, letters: DeadLetters, failed: Callable[[], None]) -> None:
        self._letters = letters
        self._failed = failed

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        try:
            self._letters.send(region, records, rejected)
        except LancewalError:
            self._failed()
            raise
