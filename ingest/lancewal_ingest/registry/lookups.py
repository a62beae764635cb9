"""Lookups of the schemas that consumed records name.

Guarantees
 1. No record is decoded before its schema is stored (``lancewal_core.wal.writer_schemas``, guarantee 1).
 2. The loop never waits for a registry: each lookup runs in a task, at most ``AT_ONCE`` at the same time.
 3. A registry without an answer is asked again, after ``FIRST_PAUSE_S`` and twice as long each time, up to
    ``PAUSE_S_MAX``.
 4. A schema is unknown after two answers "not found" at least ``NOT_FOUND_S`` apart, and never by silence.

Steps of one lookup
 1. Read the objects.  If there is one, the registry is not asked.
 2. Ask the registry.
 3. Put version 1.  If the schema is unknown and the policy says ``dead-letter``, put that it is unknown.  Under
    ``stop`` end with ``SchemaUnknown``.  A schema that is too large to be stored, or for which there is no room, is
    stored as unknown under ``dead-letter``: its records become dead letters.

A lookup that ends with an error for a person is tried again every ``AGAIN_S``, since a person may repair the registry
or an object.  After ``follow`` it is tried at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import (
    LancewalError,
    RegistryUnavailable,
    Retry,
    SchemaIdReused,
    SchemaUnknown,
    TooManySchemas,
)
from lancewal_core.names.ids import SchemaKey
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchemas
from lancewal_ingest.registry.comparison import SchemaComparison
from lancewal_ingest.registry.registry import Registry

AT_ONCE = 4
FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 10.0
NOT_FOUND_S = 10.0
AGAIN_S = 30.0
EXPECTED_S = 1.0
"""Seconds within which nearly every registry answers.  Until then the loop checks often for the answer."""


@dataclass(slots=True)
class SchemaLookup:
    """The lookup of one schema."""

    began_at: float
    """Monotonic time in seconds at which the lookup began."""
    again_at: float
    """Monotonic time in seconds from which on the next try may begin."""
    task: Task[bool] | None = None
    """The running request; its result says whether the schema is stored.  None while none is running."""
    pause_s: float = FIRST_PAUSE_S
    not_found_at: float | None = None
    """Monotonic seconds of the first answer "not found"."""
    cause: Retry | None = None
    """Why the newest try had no answer; None if it had one, or if no try has ended yet."""
    failure: LancewalError | None = None
    """Error on which a person must act; None if there is none."""
    doubted: bool = False
    """Whether the registry has another schema than the table has stored.  The stored one is not used until both are
    equal."""


class SchemaLookups:
    """Lookups of the schemas that one process needs.  Only the loop's thread may call; ``known`` and ``read`` are for
    any thread.
    """

    asked_first = True

    def __init__(
        self,
        schemas: WriterSchemas,
        registry: Registry | None,
        tasks: Tasks,
        clock: Clock,
        new_id: Callable[[], str],
        contract: Contract,
    ) -> None:
        self.schemas = schemas
        self._registry = registry
        self._tasks = tasks
        self._clock = clock
        self._new_id = new_id
        self._wanted: dict[SchemaKey, SchemaLookup] = {}
        self._unknown_are_letters = contract.on_unknown_schema == "dead-letter"
        self.counts: Mapping[str, int] = contract.schema_versions
        """By schema, the newest stored version that the contract accepts; 1 for all other schemas."""

    def comparison(self) -> SchemaComparison | None:
        """Return a comparison of the schemas with the registry; None without a registry."""
        if self._registry is None:
            return None
        return SchemaComparison(self.schemas, self._registry, self._tasks, self._clock)

    # -- for decoders --------------------------------------------------------------------------------------------------

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        """Return the stored versions of a schema, if this process has read them (``framed.decoder.Schemas``)."""
        return self.schemas.known(key)

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        """Return the stored versions of a schema.  Raises ``RegistryUnavailable`` if this process has not read it
        yet."""
        if not self.schemas.known(key):
            raise RegistryUnavailable(f"schema {key} has not been looked up yet")
        return self.schemas.read(key, at_least)

    # -- for the loop --------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> Mapping[SchemaKey, SchemaLookup]:
        """Lookups that have not found their schemas yet."""
        return self._wanted

    @property
    def expecting(self) -> bool:
        """Whether a lookup began a moment ago, so that the registry may answer soon."""
        now = self._clock.monotonic()
        return any(one.task is not None and now - one.began_at < EXPECTED_S for one in self._wanted.values())

    def missing(self, keys: Collection[SchemaKey]) -> list[SchemaKey]:
        """Return the schemas in ``keys`` that this process has not read yet, and begin to look them up."""
        found = [key for key in keys if not self.schemas.known(key)]
        now = self._clock.monotonic()
        for key in found:
            self._wanted.setdefault(key, SchemaLookup(now, now))
        if found:
            self._start_due()
        return found

    def failure(self, key: SchemaKey) -> LancewalError | None:
        """Return the error of a lookup if a person must act on it; None otherwise."""
        found = self._wanted.get(key)
        return None if found is None else found.failure

    def follow(self, contract: Contract) -> None:
        """Follow the policies of a newer version of the contract.  Lookups that ended with an error are tried again."""
        self._unknown_are_letters = contract.on_unknown_schema == "dead-letter"
        now = self._clock.monotonic()
        before, self.counts = self.counts, contract.schema_versions
        accepted = [SchemaKey(name) for name, count in self.counts.items() if before.get(name) != count]
        for key in accepted:
            if len(self.schemas.known(key)) < self.counts[key]:
                self.schemas.forget(key)
        # The result of a try that is under way was found by the version before.
        for key, one in self._wanted.items():
            self._wanted[key] = SchemaLookup(one.began_at, now, doubted=one.doubted and key not in accepted)

    def doubt(self, key: SchemaKey, error: SchemaIdReused) -> None:
        """Stop using a stored schema, because the registry has a different schema for its id.  The schema is used again
        once both are equal.
        """
        self.schemas.forget(key)
        now = self._clock.monotonic()
        self._wanted[key] = SchemaLookup(now, now + AGAIN_S, failure=error, doubted=True)

    def keep(self, keys: Collection[SchemaKey]) -> None:
        """Forget the lookups of schemas that are not in ``keys``, because no record waits for them."""
        for key in [
            key for key, one in self._wanted.items() if key not in keys and one.task is None and not one.doubted
        ]:
            del self._wanted[key]

    def advance(self) -> list[Retry]:
        """Take the results of lookups that have ended, and begin those that are due.  Return the errors of lookups that
        got no answer.
        """
        unanswered = list[Retry]()
        for key, one in list(self._wanted.items()):
            if one.task is not None and one.task.done():
                task, one.task = one.task, None
                self._settle(key, one, task)
                if one.cause is not None:
                    unanswered.append(one.cause)
        self._start_due()
        return unanswered

    def _settle(self, key: SchemaKey, one: SchemaLookup, task: Task[bool]) -> None:
        now = self._clock.monotonic()
        try:
            stored = task.result()
        except Retry as error:
            one.cause = error
            one.again_at, one.pause_s = now + one.pause_s, min(2 * one.pause_s, PAUSE_S_MAX)
            return
        except LancewalError as error:
            one.cause, one.failure, one.again_at = None, error, now + AGAIN_S
            return
        one.cause, one.pause_s = None, FIRST_PAUSE_S
        if stored:
            del self._wanted[key]
            return
        if one.not_found_at is None:
            one.not_found_at = now
        one.again_at = one.not_found_at + NOT_FOUND_S

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        running = sum(one.task is not None for one in self._wanted.values())
        for key, one in self._wanted.items():
            if one.task is not None or one.again_at > now:
                continue
            if running >= AT_ONCE:
                break
            running += 1
            waited_s = None if one.not_found_at is None else now - one.not_found_at
            one.task = self._tasks.start(partial(self._look_up, key, waited_s, one.doubted))

    def _look_up(self, key: SchemaKey, waited_s: float | None, doubted: bool) -> bool:
        """Do the steps of a lookup, and return whether the schema is stored.

        ``waited_s``: seconds since the first answer "not found"; None: there was none."""
        # Step 1
        counts = self.counts.get(key, 1)
        if not doubted and self.schemas.read(key, counts):
            return True
        # Step 2
        if self._registry is None:
            raise RegistryUnavailable(
                f"records name schema {key}, which the table has not stored, and registry.url is not set. Set it to the "
                "registry of the producers"
            )
        schema = self._registry.schema(key)
        # Step 3
        if schema is None:
            if waited_s is None or waited_s < NOT_FOUND_S:
                return False
            if not self._unknown_are_letters:
                raise SchemaUnknown(
                    f"the schema registry does not know schema {key}. Register the schema again, or set registry.url and "
                    "registry.context to the registry of the producers. Or make dead letters of such records, for good: "
                    "`lancewal table alter --on unknown-schema=dead-letter`",
                    schema=key,
                )
        try:
            self.schemas.put_first(key, schema, self._clock, self._new_id, counts)
        except TooManySchemas:
            if schema is None or not self._unknown_are_letters:
                raise
            self.schemas.put_first(key, None, self._clock, self._new_id, counts)
        return True
