"""Comparison of the schemas in use with the registry: has it given an id to another schema?

Guarantees
 1. All schemas that this process uses are compared soon after it began to use them, then every ``EVERY_S``.
 2. Silence is no finding, nor is a schema that the registry no longer has: the stored one counts.
    A schema without an answer is asked for after the others next time, so it keeps none of them from being compared.
 3. One comparison runs at a time, in a task, and begins with no further schema after ``TURN_S``: a process that ends waits
    for it.  The next one begins with those that were not reached, soon after.
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
"""Schemas that are alike, and an error for each that is not."""
EVERY_S = 60.0
TURN_S = 10.0
SOON_S = 1.0
"""Seconds between two comparisons while there are schemas that were never compared."""


class SchemaComparison:
    """See the module docstring.  Called by the loop's thread only."""

    def __init__(self, schemas: WriterSchemas, registry: Registry, tasks: Tasks, clock: Clock) -> None:
        self._schemas = schemas
        self._registry = registry
        self._tasks = tasks
        self._clock = clock
        self._task: Task[Found] | None = None
        self._began_at = float("-inf")
        self._alike: set[SchemaKey] = set()
        """Schemas that were found alike at least once."""
        self._number = 0
        self._asked_in: dict[SchemaKey, int] = {}
        """Number of the last comparison in which each schema was asked for."""
        self._late = False
        """Whether the last comparison had no time for all schemas."""

    def settle(self) -> Found:
        """Return what a comparison that has ended has found, once."""
        if self._task is None or not self._task.done():
            return [], {}
        found, self._task = self._task.result(), None
        self._alike.update(found[0])
        return found

    def begin_if_due(self, used: Sequence[SchemaKey], counts: Mapping[str, int]) -> bool:
        """Begin a comparison of ``used`` if one is due; return whether it has begun.

        ``counts``: the versions that count by the contract."""
        now = self._clock.monotonic()
        new = any(key not in self._alike for key in used)
        soon = new or self._late
        if not used or self._task is not None or now - self._began_at < (SOON_S if soon else EVERY_S):
            return False
        self._began_at = now
        self._number += 1
        ordered = sorted(used, key=lambda key: self._asked_in.get(key, 0))
        self._task = self._tasks.start(partial(self._compare, ordered, counts))
        return True

    def _compare(self, used: Sequence[SchemaKey], counts: Mapping[str, int]) -> Found:
        alike, reused = list[SchemaKey](), dict[SchemaKey, SchemaIdReused]()
        until = self._clock.monotonic() + TURN_S
        for key in used:
            self._late = self._clock.monotonic() >= until
            if self._late:
                break
            self._asked_in[key] = self._number
            versions = self._schemas.known(key)
            try:
                schema = self._registry.schema(key)
                if schema is not None and versions:
                    check_same(key, schema, versions, counts.get(key, 1))
            except RegistryUnavailable:
                break
            except SchemaIdReused as error:
                reused[key] = error
            else:
                alike.append(key)
        return alike, reused
