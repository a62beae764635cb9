"""The store is away for minutes: first it takes requests and is silent, then nobody listens, then it is back.

A read that is begun meanwhile waits, or says that the store does not answer; it never is another answer than one of a quiet
moment.  So audits rest, and each half of the outage has one reader of its own, whose result is looked at when all is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pyarrow as pa

from lancewal_core.errors import StoreUnavailable
from lancewal_demo.stack.clouds import AzureServer
from lancewal_reader.table import open_table
from tests.support.store_addresses import StoreServer

READ_S_MAX = 300.0
"""A read that was begun in the outage has its result so long after it: Lance's client repeats for three minutes."""


class Outage:
    """From its construction until ``tick`` says that it is over."""

    def __init__(self, store: StoreServer, length_s: float, uri: str, options: Mapping[str, str]) -> None:
        self._store = store
        self._uri, self._options = uri, options
        now = time.monotonic()
        self._refuse_at, self._end_at = now + length_s / 2, now + length_s
        self._refusing = False
        store.freeze()
        self._readers = [_WaitingReader(uri, options)]

    def tick(self) -> bool:
        """Whether the store is back."""
        now = time.monotonic()
        if not self._refusing and now >= self._refuse_at:
            self._refusing = True
            self._end_store()
            self._readers.append(_WaitingReader(self._uri, self._options))
        if now >= self._end_at:
            self._store.start()
            return True
        return False

    def _end_store(self) -> None:
        if isinstance(self._store, AzureServer):  # killed, Azurite would forget the blobs of the last seconds
            self._store.thaw()
            self._store.stop()
        else:
            self._store.kill()

    def reads(self) -> list[pa.Table | StoreUnavailable]:
        """What became of the reads that were begun while the store was away; anything else is raised."""
        return [reader.result() for reader in self._readers]


class _WaitingReader:
    """One strong read in a thread."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._place = uri, options
        self._result: pa.Table | BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="waiting-reader", daemon=True)
        self._thread.start()

    def result(self) -> pa.Table | StoreUnavailable:
        self._thread.join(READ_S_MAX)
        result = self._result
        if result is None:
            raise AssertionError(f"a read has no result {READ_S_MAX:g} s after the store is back")
        if isinstance(result, BaseException) and not isinstance(result, StoreUnavailable):
            raise AssertionError("a read of a store that was away") from result
        return result

    def _read(self) -> None:
        uri, options = self._place
        try:
            self._result = open_table(uri, storage_options=options).to_arrow()
        except BaseException as error:  # also a panic: the caller's thread raises it
            self._result = error
