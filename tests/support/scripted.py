"""Twins that do what a test has written down: one fault, one act of another process, at one call.

``ScriptedStore`` notes every call, and runs a test's acts before or after the calls that they name; ``ManualClock`` stands
still but for sleeps and for what the test adds; ``InlineTasks`` runs everything at once, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from lancewal_core.errors import StoreUnavailable
from lancewal_core.process.tasks import Task
from lancewal_core.store.object_store import ObjectInfo, PutOutcome
from tests.twins.faults import Faultless, ListFault, PutFault
from tests.twins.memory_store import MemoryBucket, MemoryStore

T = TypeVar("T")
A = TypeVar("A")

Act = Literal["get", "put", "list", "delete"]

DAY_S = 24 * 3600.0


@dataclass(slots=True)
class ManualClock:
    """Both clocks move by ``sleep`` only."""

    seconds: float = 0.0
    epoch_ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.epoch_ms + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class _Over(Generic[T]):
    value: T

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> None: ...

    def result(self) -> T:
        return self.value


class InlineTasks:
    """Runs each call where it is started."""

    def start(self, call: Callable[[], T]) -> Task[T]:
        return _Over(call())

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        return [call(item) for item in items]


class ScriptedFaults(Faultless):
    """The next puts and listings meet these faults, in order; none are left, nothing goes wrong."""

    def __init__(self) -> None:
        self.puts: deque[PutFault] = deque()
        self.listings: deque[ListFault] = deque()
        self.landing = True
        """Whether a put that is under way lands at the next call."""

    def put(self, key: str) -> PutFault:
        return self.puts.popleft() if self.puts else PutFault.NONE

    def listing(self, prefix: str) -> ListFault:
        return self.listings.popleft() if self.listings else ListFault.NONE

    def lands(self) -> bool:
        return self.landing

    def some(self, items: Sequence[T]) -> list[T]:
        return []


@dataclass(slots=True)
class _Hook:
    when: Literal["before", "after"]
    act: Act
    part: str
    call: Callable[[], object]
    times: int


@dataclass(slots=True)
class _Script:
    hooks: list[_Hook] = field(default_factory=list)
    calls: list[tuple[Act, str]] = field(default_factory=list)


class ScriptedStore(MemoryStore):
    """See the module docstring.  Acts of a test see the store without the script: ``plain``."""

    def __init__(self, clock: ManualClock, bucket: MemoryBucket | None = None) -> None:
        self.faults = ScriptedFaults()
        self._script = _Script()
        super().__init__(clock, bucket, self.faults)
        self.plain = MemoryStore(clock, self.bucket)

    @property
    def calls(self) -> list[tuple[Act, str]]:
        """(act, key or prefix) of every call so far."""
        return self._script.calls

    def before(self, act: Act, part: str, call: Callable[[], object], times: int = 1) -> None:
        """Run ``call`` before the next ``times`` calls of ``act`` whose key contains ``part``."""
        self._script.hooks.append(_Hook("before", act, part, call, times))

    def after(self, act: Act, part: str, call: Callable[[], object], times: int = 1) -> None:
        self._script.hooks.append(_Hook("after", act, part, call, times))

    def fail(self, act: Act, part: str, times: int = 1, *, after: bool = False) -> None:
        """Those calls raise ``StoreUnavailable``, before (or after) they have done what they do."""

        def fail() -> None:
            raise StoreUnavailable(f"could not {act} {part}: 503")

        (self.after if after else self.before)(act, part, fail, times)

    def get(self, key: str) -> bytes | None:
        self._meet("get", key)
        found = super().get(key)
        self._run("after", "get", key)
        return found

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._meet("put", key)
        outcome = super().put_if_absent(key, data)
        self._run("after", "put", key)
        return outcome

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        self._meet("list", prefix)
        found = super().list(prefix, limit, after)
        self._run("after", "list", prefix)
        return found

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._meet("delete", key)
            super().delete([key])
            self._run("after", "delete", key)

    def _meet(self, act: Act, key: str) -> None:
        self._script.calls.append((act, key))
        self._run("before", act, key)

    def _run(self, when: Literal["before", "after"], act: Act, key: str) -> None:
        for hook in [h for h in self._script.hooks if (h.when, h.act) == (when, act) and h.part in key and h.times]:
            hook.times -= 1
            hook.call()
