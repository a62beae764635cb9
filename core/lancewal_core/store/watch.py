"""Whether the object store answers, asked beside a loop that may wait for it: a call that hangs tells nobody that it does.

Guarantees
 1. ``problem`` says so once the store has not answered for ``SILENT_S``, whatever the loop does meanwhile, and not before: one
    request that is lost, or an act that takes long by itself, is no silence.
 2. It says nothing as soon as the store has answered again.  An answer that refuses is none: the loop's own errors say more.
 3. Its thread holds up no end of the process.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from lancewal_core.errors import LancewalError
from lancewal_core.process.clock import Clock
from lancewal_core.store.object_store import ObjectStore

ASK_S = 20.0
SILENT_S = 60.0


class StoreWatch:
    """Asks for ``key``, a small object that is always there, now and then inside of ``with``."""

    def __init__(self, store: ObjectStore, clock: Clock, key: str) -> None:
        self._store = store
        self._clock = clock
        self._key = key
        self._heard_at = clock.monotonic()
        self._over = threading.Event()

    @property
    def problem(self) -> str | None:
        """For ``/readyz``."""
        silent_s = self._clock.monotonic() - self._heard_at
        return f"the store has not answered for {silent_s:.0f} s" if silent_s > SILENT_S else None

    def ask(self) -> None:
        """One request; it may take as long as the store's client waits."""
        try:
            self._store.get(self._key)
        except LancewalError:
            return
        self._heard_at = self._clock.monotonic()

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name="lancewal-store-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(ASK_S):
            self.ask()
