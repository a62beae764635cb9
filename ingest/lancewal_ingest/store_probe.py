"""Is the store one that the protocol can build on?  Asked before anything is consumed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from lancewal_core import paths
from lancewal_core.errors import StoreNotWritable, StoreUnavailable
from lancewal_core.store import ObjectStore, PutUnknown, Stored, Taken
from lancewal_core.tasks import Tasks

_PROBERS = 4


def check_writable(store: ObjectStore, tasks: Tasks, uri: str, new_id: Callable[[], str]) -> None:
    """``StoreNotWritable`` unless the store takes a probe object, from exactly one of several that put it at once."""
    key = paths.probe(new_id())
    outcomes = tasks.map(lambda n: store.put_if_absent(key, b"probe %d" % n), range(_PROBERS))
    winners = sum(isinstance(outcome, Stored) for outcome in outcomes)
    unknown = [outcome.cause for outcome in outcomes if isinstance(outcome, PutUnknown)]
    if winners > 1:
        raise StoreNotWritable(
            f"the store at {uri} let {winners} of {_PROBERS} writers create the same object: it does not honour "
            "conditional PUT (If-None-Match), without which two owners could write the same segment",
            object=key,
        )
    if unknown and not any(isinstance(outcome, Stored | Taken) for outcome in outcomes):
        raise StoreNotWritable(
            f"the store at {uri} took no object: {unknown[0]}. Check store.options, the credentials, and their right to "
            f"put objects under {paths.ROOT}",
            object=key,
        )
    with contextlib.suppress(StoreUnavailable):  # ingest never deletes anything else, and may not be allowed to
        store.delete([key])
