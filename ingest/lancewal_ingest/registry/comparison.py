"""Comparison of the schemas in use with the registry: has it given an id to another schema?

Guarantees
 1. All schemas that this process uses are compared soon after it began to use them, then every ``EVERY_S``.
    A schema whose records have become bad is compared at once, but not again within ``BAD_S``.
 2. If the registry does not answer, or no longer has a schema, nothing is found, and the stored schema is used.  While
    the registry does not answer, the pauses double, from ``SOON_S`` up to ``EVERY_S``.  A schema without an answer is
    asked for after the others next time, so it keeps none of them from being compared.
 3. One comparison runs at a time, in a task, and begins with no further schema after ``TURN_S``: a process that ends
    waits for it.  The next one begins with those that were not reached, soon after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lancewal_core.errors import RegistryUnavailable, SchemaIdReused
from lancewal_core.names.ids import SchemaKey
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.wal.writer_schemas import WriterSchemas, check_same
from lancewal_ingest.registry.registry import Registry

Found = tuple[list[SchemaKey], dict[SchemaKey, SchemaIdReused]]
"""Schemas of which nothing was found, and an error for each that differs between the table and the registry.

The former are equal in both, or the registry no longer has them."""
EVERY_S = 60.0
"""Seconds between two comparisons of all schemas in use."""
TURN_S = 10.0
"""Seconds after which a comparison begins with no further schema."""
SOON_S = 1.0
"""Least seconds between two comparisons of schemas that were never found equal, or for which there was no time."""
BAD_S = 10.0
"""Least seconds between two comparisons for bad records.  A producer that writes one bad record after the other costs
the registry no more than that."""


class SchemaComparison:
    """Repeated comparison of stored schemas with the registry.  Only the loop's thread may call."""

    def __init__(self, schemas: WriterSchemas, registry: Registry, tasks: Tasks, clock: Clock) -> None:
        self._schemas = schemas
        self._registry = registry
        self._tasks = tasks
        self._clock = clock
        self._task: Task[Found] | None = None
        self._began_at = float("-inf")
        self._alike: set[SchemaKey] = set()
        """Schemas that were found equal at least once since they came into use."""
        self._number = 0
        self._asked_in: dict[SchemaKey, int] = {}
        """By schema, the number of the newest comparison in which the registry was asked for it."""
        self._counts: Mapping[SchemaKey, int] = {}
        """By schema, the version with which the comparison under way compares."""
        self._late = False
        """Whether the newest comparison had no time for all schemas."""
        self._asked_at = float("-inf")
        """Monotonic time in seconds at which the newest comparison began.  ``_began_at`` is that of the newest
        comparison of all schemas."""
        self._bad: set[SchemaKey] = set()
        """Schemas whose records have become bad, and that were not compared since."""
        self._bad_at = float("-inf")
        """Monotonic time in seconds at which the newest comparison for bad records began."""
        self._silent = False
        """Whether the registry gave the newest comparison no answer."""
        self._soon_s = SOON_S

    def hasten(self, key: SchemaKey) -> None:
        """Compare a schema soon.  It has bad records, which may have been written under another schema with the same
        id.
        """
        self._bad.add(key)

    def settle(self, counts: Mapping[str, int]) -> Found:
        """Return the findings of a comparison that has ended.  Each comparison is reported once.

        ``counts``: the version of each schema that the contract accepts.  If the contract has accepted another version
        since the comparison began, that schema is left out.
        """
        if self._task is None or not self._task.done():
            return [], {}
        (alike, reused), self._task = self._task.result(), None
        self._soon_s = min(2 * self._soon_s, EVERY_S) if self._silent else SOON_S
        since = {key for key, count in self._counts.items() if counts.get(key, 1) != count}
        alike = [key for key in alike if key not in since]
        self._alike.update(alike)
        return alike, {key: error for key, error in reused.items() if key not in since}

    def begin_if_due(self, used: Sequence[SchemaKey], counts: Mapping[str, int]) -> bool:
        """Begin a comparison of the schemas in ``used`` if one is due.  Return whether it has begun.

        ``counts``: the version of each schema that the contract accepts.
        """
        if not used or self._task is not None:
            return False
        now = self._clock.monotonic()
        new = {key for key in used if key not in self._alike}
        bad = self._bad.intersection(used) if now - self._bad_at >= BAD_S else set[SchemaKey]()
        asked, since = new | bad, now - self._began_at
        if since >= EVERY_S or (self._late and since >= SOON_S):
            asked, self._began_at = set(used), now
            # One that comes into use again is new again.
            self._alike &= asked
            self._asked_in = {key: number for key, number in self._asked_in.items() if key in asked}
        elif not asked or now - self._asked_at < self._soon_s:
            return False
        self._asked_at, self._bad_at = now, now if bad else self._bad_at
        self._bad -= asked
        self._number += 1
        ordered = sorted(asked, key=lambda key: (key not in bad, self._asked_in.get(key, 0)))
        self._counts = {key: counts.get(key, 1) for key in asked}
        self._task = self._tasks.start(partial(self._compare, ordered, self._counts))
        return True

    def _compare(self, used: Sequence[SchemaKey], counts: Mapping[SchemaKey, int]) -> Found:
        alike, reused = list[SchemaKey](), dict[SchemaKey, SchemaIdReused]()
        until, self._silent = self._clock.monotonic() + TURN_S, False
        for key in used:
            self._late = self._clock.monotonic() >= until
            if self._late:
                break
            self._asked_in[key] = self._number
            versions = self._schemas.known(key)
            try:
                schema = self._registry.schema(key)
                if schema is not None and versions:
                    check_same(key, schema, versions, counts[key])
            except RegistryUnavailable:
                self._silent = True
                break
            except SchemaIdReused as error:
                reused[key] = error
            else:
                alike.append(key)
        return alike, reused
