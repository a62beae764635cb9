"""Interleavings around subscriptions, and the garbage collection that they hold back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lancewal_core.errors import OutsideHistoryWindow, PlanStale
from lancewal_core.names import paths
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.find import FENCE_SIZE_MAX
from lancewal_flusher.garbage.table_versions import VersionsSeen
from lancewal_reader.point.receipt import Receipt
from tests.simulation.checker import require
from tests.simulation.drain_accidents import rebind
from tests.simulation.feeds import FeedReading, Mode
from tests.simulation.reading import Seen
from tests.simulation.run import limits_of
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.settings import Limits
from tests.simulation.stage import Member, Stage
from tests.simulation.subscribing import Subscribing, check_subscribed
from tests.simulation.world import MAX_SKEW_MS
from tests.twins.sim_clock import SimClock

_NAME = "kept"


def _subscribing(stage: Stage, name: str = "s") -> Subscribing:
    return Subscribing(stage, stage.process(name))


def _begun() -> tuple[Stage, Member, FlusherContext, Subscribing]:
    """A member with a row in its log, a flusher and a consumer."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append(a, 0)
    return stage, a, f, _subscribing(stage)


def _merged_again(stage: Stage, a: Member, f: FlusherContext, times: int = 2) -> None:
    """As often something new is merged."""
    for _ in range(times):
        stage.append_and_seal(a, 0, 1)
        stage.round(f)


def _collected(stage: Stage, f: FlusherContext, state: GarbageState | None = None) -> None:
    """Garbage is collected, beyond the windows, and the versions of the table too."""
    state = state or GarbageState(versions=VersionsSeen(every_s=0.0, window_min_ms=0))
    stage.collect(f, state)


def _trimmed(f: FlusherContext) -> bool:
    """Whether a round of garbage collection moves a boundary."""
    collect_garbage(f, GarbageState())
    return any(state.trimmed_generation for state in f.read_states().values())


def subscription_holds_beyond_the_windows() -> None:
    """A consumer is behind for longer than the windows; later it goes on, and what it has passed goes."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    _merged_again(stage, a, f)
    stage.append(a, 0)
    subscribing = _subscribing(stage)
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    _collected(stage, f)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription read, behind") == 1, "it is not behind:", stage.counts)
    subscribing.commit(_NAME, subscribing.look())
    before = len(stage.bucket.listing(paths.WAL))
    _merged_again(stage, a, f)
    _collected(stage, f)
    require(len(stage.bucket.listing(paths.WAL)) < before, "what it has passed is still there")
    check_subscribed(stage)
    stage.check()


def consumer_is_behind_history_pages() -> None:
    """A consumer begins at an empty table, and what it needs has left the states of regions for pages when it commits.

    While the pages are missing, the commit ends by name."""
    stage = Stage()
    subscribing = _subscribing(stage)
    subscribing.create(_NAME, subscribing.look())
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    with limits_of(Limits(page_at=4, page_rest=1, versions_kept=20)):
        _merged_again(stage, a, f, times=3)
        middle = subscribing.look()
        _merged_again(stage, a, f, times=5)
        stage.scheduler.now += stage.contract.history_window_s + 10
        collect_garbage(f, GarbageState())
    folder = paths.history_prefix(stage.region(0), stage.contract.making)
    pages = [info.key for info in stage.bucket.listing(folder)]
    require(bool(pages), "nothing has left the states")
    subscribing.read(_NAME)
    with stage.without(*pages), stops(PlanStale, says="is neither in the region's state"):
        subscribing.commit(_NAME, middle)
    subscribing.commit(_NAME, middle)
    require(stage.counts.get("subscription committed") == 1, "it was not committed:", stage.counts)
    check_subscribed(stage)
    stage.check()


def subscription_is_over() -> None:
    """A consumer never comes back: after the bound nothing is held, and a read at its receipt says so."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    stage.scheduler.now += stage.contract.subscription_hold_s_max
    _collected(stage, f)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription is over") == 1, "it is still held:", stage.counts)
    subscribing.commit(_NAME, subscribing.look())
    require(stage.counts.get("subscription committed") == 1, "it cannot begin again:", stage.counts)
    check_subscribed(stage)
    stage.check()


def subscription_is_made_while_garbage_is_collected() -> None:
    """A round of collection that has not seen a subscription takes what it needs, right before it is put."""
    stage, a, f, subscribing = _begun()
    at = subscribing.look()
    _merged_again(stage, a, f)
    stage.scripts["s"].before("put", "/names/", lambda: _collected(stage, f))
    require(not subscribing.create(_NAME, at), "it was created without what it needs")
    again = subscribing.look()
    require(subscribing.create(_NAME, again), "its name is not free")
    check_subscribed(stage)
    stage.check()


def collection_has_decided_before_a_subscription() -> None:
    """A round of collection has decided what goes, and sleeps; a subscription is made of what is still there."""
    stage, a, f, subscribing = _begun()
    at = subscribing.look()
    _merged_again(stage, a, f)
    stage.scheduler.now += stage.contract.history_window_s + 1
    made: list[bool] = []
    stage.scripts["f"].before("put", "/pages/", lambda: made.append(subscribing.create(_NAME, at)))
    collect_garbage(f, GarbageState())
    require(made == [False], "it was created of what goes:", made)
    stage.check()


def merge_comes_between_subscription_and_look() -> None:
    """What a subscription needs is merged between its put and its look, and the history window is over at once."""
    stage = Stage(history_window_s=0)
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    fast = replace(f, clock=SimClock(stage.scheduler, skew_ms=MAX_SKEW_MS))
    stage.append(a, 0)
    subscribing = _subscribing(stage)

    def created_and_merged() -> None:
        require(subscribing.create(_NAME, subscribing.look()), "it was not created")
        _merged_again(stage, a, stage.flusher("g"))

    stage.scripts["f"].before("get", "contract/", created_and_merged)
    state = GarbageState()
    collect_garbage(fast, state)
    stage.scheduler.now += stage.contract.grace_s + 1
    collect_garbage(fast, state)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription read, behind") == 1, "it is not behind:", stage.counts)
    stage.check()


def version_comes_between_subscription_and_expiry() -> None:
    """Between a round's two looks at subscriptions one is made, and its version is no longer the newest."""
    stage = Stage(history_window_s=0)
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    fast = replace(f, clock=SimClock(stage.scheduler, skew_ms=MAX_SKEW_MS))
    _merged_again(stage, a, f)
    stage.append(a, 0)
    subscribing, g = _subscribing(stage), stage.flusher("g")

    def created_and_merged() -> None:
        stage.append_and_seal(a, 0, 1)
        stage.round(g)
        require(subscribing.create(_NAME, subscribing.look()), "it was not created")
        stage.user_appends(5_000)
        stage.append_and_seal(a, 0, 1)
        stage.round(g)

    state = GarbageState(versions=VersionsSeen(every_s=0.0, window_min_ms=0))
    stage.scripts["f"].before("stored versions", "table", created_and_merged)
    collect_garbage(fast, state)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription read, behind") == 1, "it is not behind:", stage.counts)
    stage.check()


def damaged_subscription_holds_everything() -> None:
    """A subscription cannot be read while garbage is collected; then somebody puts it back."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    for part in ("/of/", "/names/"):
        key = min(info.key for info in stage.bucket.listing(paths.SUBSCRIPTIONS) if part in info.key)
        whole = stage.bucket.get(key) or b""
        stage.bucket.delete(key)
        stage.bucket.put(key, whole[:-2], 0)
        state = GarbageState(versions=VersionsSeen(every_s=0.0, window_min_ms=0))
        _collected(stage, f, state)
        stage.bucket.delete(key)
        stage.bucket.put(key, whole, 0)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription read, behind") == 1, "it is not behind:", stage.counts)
    stage.check()


def consumer_dies_within_a_commit() -> None:
    """It dies after its put, and a later one commits again: what that needs is held or refused."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    newer = subscribing.look()
    _merged_again(stage, a, f)
    stage.scripts["s"].before("put", "/of/", lambda: stage.scripts["s"].before("get", "/pages/", crash))
    with stops(Crashed):
        subscribing.commit(_NAME, newer)
    stage.scheduler.now += stage.contract.history_window_s + 1
    heir = _subscribing(stage, "heir")
    with suppress(OutsideHistoryWindow):
        heir.commit(_NAME, (heir.look()), back=False)
    check_subscribed(stage)
    stage.check()


def commit_backwards_is_refused_before_its_put() -> None:
    """Nothing has held what an earlier receipt needs: the subscription stays as it was, also if the consumer dies."""
    stage, a, f, subscribing = _begun()
    old = subscribing.look()
    _merged_again(stage, a, f)
    stage.scheduler.now += stage.contract.history_window_s + 1
    subscribing.create(_NAME, subscribing.look())
    stage.scripts["s"].before("put", "/of/", crash)
    subscribing.commit(_NAME, old, back=True)
    require(stage.counts.get("subscription committed") is None, "it went back:", stage.counts)
    check_subscribed(stage)
    stage.check()


def collection_comes_within_a_commit() -> None:
    """A consumer is behind the windows.  Between the put of its commit and the look, garbage is collected: what only the
    receipt before needed goes."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    middle = subscribing.look()
    _merged_again(stage, a, f)
    stage.scheduler.now += stage.contract.history_window_s + 1
    stage.scripts["s"].before(
        "put", "/of/", lambda: stage.scripts["s"].before("get", "/pages/", lambda: trimmed.append(_trimmed(f)))
    )
    trimmed = list[bool]()
    subscribing.commit(_NAME, middle)
    require(trimmed == [True], "nothing was collected:", trimmed)
    require(stage.counts.get("subscription committed") == 1, "it was not committed:", stage.counts)
    subscribing.read(_NAME)
    check_subscribed(stage)
    stage.check()


def subscription_is_dropped_within_a_commit() -> None:
    """Another process drops a subscription, and makes one of its name, while a consumer commits."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append(a, 0)
    subscribing, other = _subscribing(stage), _subscribing(stage, "other")
    at = subscribing.look()
    subscribing.create(_NAME, at)
    _merged_again(stage, a, f)

    def made_again() -> None:
        other.drop(_NAME)
        other.create(_NAME, other.look())
        stage.subscriptions[_NAME].dropped = True  # as the consumer knows it

    stage.scripts["s"].before("put", "/of/", made_again)
    newer = subscribing.look()
    subscribing.commit(_NAME, newer)
    stage.subscriptions[_NAME].dropped = False
    require(stage.counts.get("subscription committed") is None, "it was committed:", stage.counts)
    check_subscribed(stage)
    stage.check()


def topic_is_made_anew_while_a_consumer_is_behind() -> None:
    """A consumer is behind when everything of its topic is merged, and the topic is made anew.  Garbage is collected.  It
    goes on there, record by record; what it has passed goes, and all else once it has passed the former topic."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    stage.append(a, 0)
    middle = subscribing.look()
    _merged_again(stage, a, f)
    end = subscribing.look()
    former = _log_keys(stage)
    stage.topic.topic_id = "topic-id-2"
    stage.altered(rebind(stage))
    g = stage.flusher("g")
    _collected(stage, g)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription read, behind") == 1, "it is not behind:", stage.counts)
    feeds = FeedReading(stage, stage.process("changes"))
    begin = Receipt.parse(subscribing.all.get(_NAME).receipt), stage.subscriptions[_NAME].rows[_receipt(subscribing)]
    wanted: list[tuple[Seen, Mode]] = [(begin, "all"), (begin, "net"), (middle, "all")]
    for start, mode in wanted:
        require(feeds.read(start, end, mode) is not None, f"no changes {mode}:", stage.counts)
    subscribing.commit(_NAME, middle)
    _collected(stage, g)
    subscribing.read(_NAME)
    require(feeds.read(middle, end, "all") is not None, "no changes from its commit on:", stage.counts)
    subscribing.commit(_NAME, subscribing.look())
    require(stage.counts.get("subscription committed") == 2, "it was not committed:", stage.counts)
    _collected(stage, g)
    left = former & _log_keys(stage)
    require(not left, "what it has passed is still there:", left)
    check_subscribed(stage)


def subscription_is_made_at_a_former_topic() -> None:
    """The topic was made anew, and nothing keeps what is merged of the former one: a subscription may not begin there."""
    stage = Stage(history_window_s=3600)
    a, f, subscribing = stage.member("a", 0, 1), stage.flusher("f"), _subscribing(stage)
    stage.append(a, 0)
    old = subscribing.look()
    _merged_again(stage, a, f)
    stage.topic.topic_id = "topic-id-2"
    stage.altered(rebind(stage))
    again = _subscribing(stage, "t")
    require(not again.create(_NAME, old), "it was created without what it needs")
    require(again.create(_NAME, again.look()), "it was not created")
    again.commit(_NAME, old, back=True)
    require(stage.counts.get("subscription committed back") is None, "it went back:", stage.counts)
    check_subscribed(stage)


def consumer_never_passes_a_former_topic() -> None:
    """The topic was made anew, and nothing comes of the new one.  What a consumer needs of the former one goes at its
    bound."""
    stage, a, f, subscribing = _begun()
    subscribing.create(_NAME, subscribing.look())
    _merged_again(stage, a, f)
    stage.topic.topic_id = "topic-id-2"
    stage.altered(rebind(stage))
    g = stage.flusher("g")
    stage.scheduler.now += stage.contract.subscription_hold_s_max
    _collected(stage, g)
    subscribing.read(_NAME)
    require(stage.counts.get("subscription is over") == 1, "it is still held:", stage.counts)
    subscribing.commit(_NAME, subscribing.look())
    require(stage.counts.get("subscription committed") == 1, "it cannot begin again:", stage.counts)
    check_subscribed(stage)


def _receipt(subscribing: Subscribing) -> str:
    return subscribing.all.get(_NAME).receipt


def _log_keys(stage: Stage) -> set[str]:
    """Segments with rows."""
    infos = stage.bucket.listing(paths.WAL)
    return {info.key for info in infos if info.size > FENCE_SIZE_MAX and paths.parse_wal_segment(info.key)}


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    subscription_holds_beyond_the_windows: ("subscriptions hold nothing", "lost what it holds"),
    subscription_is_made_while_garbage_is_collected: (
        "a subscription is not looked at again",
        "it was created without what it needs",
    ),
    collection_has_decided_before_a_subscription: ("what is over may be subscribed", "it was created of what goes"),
    merge_comes_between_subscription_and_look: ("subscriptions are read before what is over", "lost what it holds"),
    damaged_subscription_holds_everything: ("a damaged subscription holds nothing", "lost what it holds"),
    topic_is_made_anew_while_a_consumer_is_behind: ("former topics are not held", "no changes all"),
    subscription_is_made_at_a_former_topic: ("a former topic is kept anyway", "it was created without what it needs"),
}

ACCIDENTS: list[Callable[[], None]] = [
    subscription_is_over,
    consumer_never_passes_a_former_topic,
    consumer_is_behind_history_pages,
    version_comes_between_subscription_and_expiry,
    consumer_dies_within_a_commit,
    commit_backwards_is_refused_before_its_put,
    collection_comes_within_a_commit,
    subscription_is_dropped_within_a_commit,
]
