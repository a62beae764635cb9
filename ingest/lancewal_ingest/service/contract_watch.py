"""Watch for a newer version of the contract, and let the running process follow it.

To *take up* a version means to follow it from the next segment on, without a restart.

Guarantees
 1. If only terms in ``TAKEN_UP`` have changed, such as columns and policies, the process takes the version up, with
    all that depends on it at once.  The process notices any other change when it checks the topic.  It then goes on
    with its own version, or ends with a named error.
 2. If a version cannot be taken up yet, because the store, Kafka or the dead-letter topic does not answer, it is tried
    again.  ``problem`` says so.  Until then the process follows the previous version.  That is safe, because each entry
    names its contract version.
 3. The loop never waits for the store or Kafka: a task prepares everything that a version needs, and the loop only
    swaps.

Rounds of requests to the store (docs/reference/requests.md), as counted: 1 ("look for another contract").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lancewal_core.errors import FormerGroup, LancewalError, OtherGroup, Problem, TableDropped
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_ingest.append.newer_contract import contract_to_take_up

POLL_S = 5.0
"""Seconds between two looks.  A look is usually one GET of an object that does not exist yet."""


@dataclass(eq=False)
class ContractWatch:
    """Watch of one table's contract.

    ``look`` raises the errors of ``check_group`` for ``group``, and ``TableDropped``."""

    store: ObjectStore
    contract: Contract
    tasks: Tasks
    clock: Clock
    prepare: Callable[[Contract], Callable[[], None]]
    """Function that prepares a newer version, in a task.  It returns the function that the loop calls to follow it."""
    failed: Callable[[str, object], None]
    """Function that is told why a version could not be followed: the name of the operation, and the cause."""
    group: str = ""
    _again_at: float = field(init=False)
    _asked: Task[tuple[Contract, Callable[[], None]] | None] | None = None
    """The running look.  Its result is a newer contract and the function that makes the process follow it, or None."""
    _problem: LancewalError | None = None

    def __post_init__(self) -> None:
        self._again_at = self.clock.monotonic() + POLL_S

    @property
    def problem(self) -> Problem | None:
        """Why this process cannot follow a newer contract version, for ``/readyz``; None if there is no such
        problem."""
        what = "this process does not follow the newest contract version yet"
        return None if self._problem is None else Problem.of(self._problem, what)

    def look(self) -> None:
        now = self.clock.monotonic()
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._again_at = now + POLL_S
            try:
                prepared = asked.result()
                if prepared is not None:
                    newest, take_up = prepared
                    take_up()
                    self.contract = newest
            except (FormerGroup, OtherGroup, TableDropped):
                raise
            except LancewalError as error:
                self._problem = error
                self.failed("contract", error)
            else:
                self._problem = None
        elif self._asked is None and now >= self._again_at:
            self._asked = self.tasks.start(self._look)

    def _look(self) -> tuple[Contract, Callable[[], None]] | None:
        newest = contract_to_take_up(self.store, self.contract, self.group)
        return None if newest is None else (newest, self.prepare(newest))
