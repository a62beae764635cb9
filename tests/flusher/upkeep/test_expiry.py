"""Rows that expire, on real Lance tables: what is hidden is what DuckDB says has expired, and nothing that came meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.cli import program as cli
from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSchema, InvalidSettings, ObjectCorrupt
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import FailpointError, configure
from lancewal_core.rows.schema import Op
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.contract import decode_contract, encode_contract, read_contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.protocol import CommitLost, CommitOutcome, Committed, TableCommit
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commands.gc import summary_text
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.garbage.collect_all import look
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.table import FlusherTable as ServedTable
from lancewal_flusher.service.turns import Turn
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult, OldestTimes, expire_next
from lancewal_tables.commands.table import app as table_app
from lancewal_tables.define.alter import alter_terms
from tests.flusher.service.test_service import samples, serving, settings_of, wait_for
from tests.support.flusher_tables import COMBINE, FlusherTable, Operation, ScriptedTable, delete
from tests.support.scripted import ManualClock

DAY_S = 86_400
TTL = Ttl("at", DAY_S)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TYPES = {
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
    "timestamp[ms]": pa.timestamp("ms"),
    "timestamp[s]": pa.timestamp("s"),
    "timestamp[ns, UTC]": pa.timestamp("ns", "UTC"),
    "date32": pa.date32(),
}


def made(folder: Path, type_: str = "timestamp[us, UTC]") -> FlusherTable:
    return FlusherTable(
        folder, more=[pa.field("at", TYPES[type_])], patches=False, ttl_column="at", ttl_s=DAY_S, history_window_s=0
    )


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    found = made(tmp_path)
    yield found
    found.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=int(NOW.timestamp() * 1000))


def row(id: int, hours: float | None, a: int = 0) -> Operation:
    """A row whose time lies so many hours back."""
    at = None if hours is None else NOW - timedelta(hours=hours)
    return Operation(Op.UPSERT, id, {"a": a, "s": None, "tags": None, "at": at})


def context_of(table: FlusherTable, clock: ManualClock, raced: ScriptedTable | None = None) -> FlusherContext:
    return replace(table.context(raced), clock=clock)


def expire(
    table: FlusherTable,
    clock: ManualClock,
    raced: ScriptedTable | None = None,
    oldest: OldestTimes | None = None,
    rows_max: int = 1_000,
) -> ExpiryResult:
    return expire_next(context_of(table, clock, raced), TTL, oldest or OldestTimes(), rows_max)


def drop_expired(table: FlusherTable, clock: ManualClock) -> int:
    """Take what has expired of the model's rows out of it; DuckDB says which."""
    at = table.dataset.schema.field("at").type
    stored = pa.table(
        {
            "region": [key[0] for key in table.model],
            "id": [key[1] for key in table.model],
            "moment": pa.array([r["at"] for r in table.model.values()], at),
        }
    )
    zoned = pa.types.is_timestamp(at) and at.tz is not None
    time = "epoch_us(moment::timestamptz)" if zoned else "epoch_us(moment::timestamp)"
    cut_us = (clock.now_ms() - DAY_S * 1000) * 1000
    old = duckdb.connect().execute(f"select region, id from stored where {time} < {cut_us}") if len(stored) else None
    found = [] if old is None else old.fetchall()
    for key in found:
        del table.model[key]
    return len(found)


@pytest.mark.parametrize("type_", TYPES)
def test_rows_of_every_type_of_time(tmp_path: Path, clock: ManualClock, type_: str) -> None:
    table = made(tmp_path, type_)
    unit = timedelta(days=1) if type_ == "date32" else timedelta(seconds=1)
    edge = NOW - timedelta(days=1)
    times = [edge - unit, edge, edge + unit, None, NOW, NOW + unit, edge - 400 * unit, datetime(1969, 1, 1, tzinfo=UTC)]
    zoned = "UTC" in type_
    values: list[Any] = [t.date() if type_ == "date32" else t if zoned else t.replace(tzinfo=None) for t in times if t]
    values.insert(3, None)
    table.generation(
        0, [Operation(Op.UPSERT, i, {"a": 0, "s": None, "tags": None, "at": v}) for i, v in enumerate(values)]
    )
    table.round()
    table.check()
    expected = drop_expired(table, clock)
    done = expire(table, clock)
    assert isinstance(done, Expired)
    assert done.rows == expected == len(times) - len(table.model)
    assert ("r0", 3) in table.model
    table.check()
    assert expire(table, clock) is None
    table.close()


def test_rounds_are_bounded_and_whole_fragments_go(table: FlusherTable, clock: ManualClock) -> None:
    for first in (0, 10, 20):
        table.generation(0, [row(id, 30 if first < 20 else 1) for id in range(first, first + 10)])
        table.round()
    oldest = OldestTimes()
    done = [expire(table, clock, oldest=oldest, rows_max=8) for _ in range(4)]
    assert [(d.rows, d.more) for d in done if isinstance(d, Expired)] == [(8, True), (8, True), (4, False)]
    assert done[-1] is None
    drop_expired(table, clock)
    table.check()
    assert len(table.dataset.get_fragments()) == 1


def test_a_fragment_is_read_again_only_when_it_may_have_expired(
    table: FlusherTable, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, [row(id, id) for id in range(20)])
    table.round()
    scans: list[object] = []
    scan = LancePinnedTable.scan

    def counted(*args: Any, **named: Any) -> Any:
        scans.append(args)
        return scan(*args, **named)

    monkeypatch.setattr(LancePinnedTable, "scan", counted)
    oldest = OldestTimes()
    assert expire(table, clock, oldest=oldest) is None
    clock.sleep(4 * 3600)
    assert expire(table, clock, oldest=oldest) is None
    assert len(scans) == 1
    clock.sleep(2 * 3600)
    done = expire(table, clock, oldest=oldest)
    assert isinstance(done, Expired)
    assert done.rows == drop_expired(table, clock) == 1
    table.check()


def expired_and_restored(table: FlusherTable, clock: ManualClock, oldest: OldestTimes) -> None:
    """Four rows expire and are back, by a restore of which a person says that nothing is to be merged again."""
    table.generation(0, [row(id, 48 if id < 4 else 1) for id in range(20)])
    table.round()
    table.round()
    before = table.dataset.version
    done = [expire(table, clock, oldest=oldest) for _ in range(2)]
    assert [type(d) for d in done] == [Expired, type(None)]
    watermarks = table.context().watermarks
    merged = watermarks.at(before).regions
    dataset: Any = lance.dataset(table.uri, version=before)
    dataset.restore()
    watermarks.decide(InForce(TableVersion(table.dataset.version), None, merged), "keep")


@pytest.mark.parametrize("hidden_since", [0, 3, 4, 9])
def test_rows_that_a_restore_brings_back_expire_again(
    table: FlusherTable, clock: ManualClock, hidden_since: int
) -> None:
    """However many others have been hidden since."""
    oldest = OldestTimes()
    expired_and_restored(table, clock, oldest)
    if hidden_since:
        table.generation(0, [row(id, 1, a=5) for id in range(4, 4 + hidden_since)])
        table.round()
    done = expire(table, clock, oldest=oldest)
    assert isinstance(done, Expired)
    assert done.rows == drop_expired(table, clock) == 4
    table.check()
    assert expire(table, clock, oldest=oldest) is None


@pytest.mark.parametrize("cleaned", [False, True])
def test_rows_that_merges_hide_cause_no_further_reading(
    table: FlusherTable, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, cleaned: bool
) -> None:
    """But where the version of the round before is gone, so that nothing says what was hidden then."""
    table.generation(0, [row(id, 48 if id < 4 else 1) for id in range(20)])
    table.round()
    oldest = OldestTimes()
    read: list[list[int]] = []
    scan = LancePinnedTable.scan

    def counted(*args: Any, **named: Any) -> Any:
        read.append(named["fragment_ids"])
        return scan(*args, **named)

    assert isinstance(expire(table, clock, oldest=oldest), Expired)
    assert expire(table, clock, oldest=oldest) is None
    for id in range(4, 8):
        table.generation(0, [row(id, 1, a=5)])
        table.round()
        if cleaned:
            table.clean_up()
        with monkeypatch.context() as patched:
            patched.setattr(LancePinnedTable, "scan", counted)
            assert expire(table, clock, oldest=oldest) is None
    new = table.dataset.get_fragments()[1:]
    assert read == [i for f in new for i in ([[0], [f.fragment_id]] if cleaned else [[f.fragment_id]])]


def test_a_newer_row_that_waits_comes_in(table: FlusherTable, clock: ManualClock) -> None:
    table.generation(0, [row(1, 30), row(2, 30), row(3, 30)])
    table.round()
    table.generation(0, [row(1, 1, a=1), delete(2)])
    assert isinstance(expire(table, clock), Expired)
    table.round()
    drop_expired(table, clock)
    table.check()
    assert list(table.model) == [("r0", 1)]


def race_merge(table: FlusherTable) -> Callable[[], object]:
    """It gives an expired row a newer time, deletes another, and brings a third anew."""
    table.generation(0, [row(1, 1, a=1), delete(2), row(50, 30), row(51, 1)])
    return table.round


@pytest.mark.parametrize("act", ["merge", "compaction", "append", "clean-up"])
def test_what_lands_in_between(table: FlusherTable, clock: ManualClock, act: str) -> None:
    for first in (0, 10):
        table.generation(0, [row(id, 30 if id % 2 else 1) for id in range(first, first + 10)])
        table.round()
    raced = ScriptedTable(table.uri)
    by_hand = {"region": "r1", "id": 99, "a": 1, "s": None, "tags": None, "at": None}
    appended = pa.Table.from_pylist([by_hand], table.dataset.schema)

    def clean_up() -> None:
        table.generation(0, [row(1, 1, a=1)])
        table.round()
        table.clean_up()

    acts: dict[str, Callable[[], object]] = {
        "merge": race_merge(table) if act == "merge" else list,
        "compaction": lambda: table.dataset.optimize.compact_files(),
        "append": lambda: lance.write_dataset(appended, table.uri, mode="append"),
        "clean-up": clean_up,
    }
    raced.before = [acts[act]]
    first_try = expire(table, clock, raced)
    assert isinstance(first_try, Expired if act == "append" else Refused)
    if act == "append":
        table.model["r1", 99] = by_hand
    table.round()
    while isinstance(expire(table, clock), Expired):
        pass
    drop_expired(table, clock)
    table.check()
    assert act != "merge" or table.model["r0", 1]["a"] == 1


def test_a_merge_planned_before_it(table: FlusherTable, clock: ManualClock) -> None:
    """The merge replaces a row that expires under it."""
    table.generation(0, [row(id, 30) for id in range(10)])
    table.round()
    table.generation(0, [row(1, 1, a=1), delete(2), row(60, 1)])
    raced = ScriptedTable(table.uri)
    raced.before = [lambda: expire(table, clock)]
    table.round(COMBINE, table.context(raced))
    drop_expired(table, clock)
    table.check()
    assert sorted(table.model) == [("r0", 1), ("r0", 60)]


def test_a_merge_that_is_not_finished_is_waited_for(table: FlusherTable, clock: ManualClock) -> None:
    table.generation(0, [row(1, 30), row(2, 1)])
    configure({"LANCEWAL_FAILPOINT": "commit.recv:after=error", "LANCEWAL_TESTING": "1"})
    try:
        with pytest.raises(FailpointError):
            table.round()
    finally:
        configure({})
    refused = expire(table, clock)
    assert isinstance(refused, Refused)
    assert "is not finished yet" in refused.reason
    table.round()
    assert isinstance(expire(table, clock), Expired)
    drop_expired(table, clock)
    table.check()


class DeafTable(ScriptedTable):
    """A commit lands and its reply is lost."""

    def commit(self, commit: TableCommit) -> CommitOutcome:
        outcome = super().commit(commit)
        return CommitLost("the reply was lost") if isinstance(outcome, Committed) else outcome


def test_a_lost_reply_and_a_crash(table: FlusherTable, clock: ManualClock) -> None:
    table.generation(0, [row(id, 30 if id < 5 else 1) for id in range(10)])
    table.round()
    for where in ("dv.write:after", "commit.send:before"):
        configure({"LANCEWAL_FAILPOINT": f"{where}=error", "LANCEWAL_TESTING": "1"})
        try:
            with pytest.raises(FailpointError):
                expire(table, clock)
        finally:
            configure({})
        table.check()
    done = expire(table, clock, DeafTable(table.uri))
    assert isinstance(done, Expired)
    assert done.rows == drop_expired(table, clock) == 5
    table.check()


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(6))
def test_random_times_merges_and_rounds(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = made(tmp_path)
    clock = ManualClock(epoch_ms=int(NOW.timestamp() * 1000))
    oldest = OldestTimes()

    def stream() -> None:
        back = -clock.monotonic() / 3600
        table.generation(
            chance.randrange(2),
            [
                delete(chance.randrange(20)) if chance.random() < 0.3
                else row(chance.randrange(20), chance.choice([None, back + chance.randrange(40)]), chance.randrange(99))
                for _ in range(6)
            ],
        )  # fmt: skip

    for _ in range(10):
        stream()
        raced = ScriptedTable(table.uri)
        if chance.random() < 0.4:
            raced.before = [lambda: expire(table, clock, oldest=oldest)]
        table.round(COMBINE, table.context(raced))
        clock.sleep(chance.randrange(8) * 3600)
        raced = ScriptedTable(table.uri)
        raced.lose_request = chance.randrange(2)
        while expire(table, clock, raced, oldest, rows_max=chance.randint(1, 5)) is not None:
            pass
        drop_expired(table, clock)
        table.check()
    table.close()


# -- when, and what is said of it --------------------------------------------------------------------------------


def expiry_turn(table: FlusherTable, clock: ManualClock) -> Turn[Any]:
    """As the service takes it."""
    context = context_of(table, clock)
    served = ServedTable(settings_of(table), context, FlusherMetrics(clock, "t", context.events), bool)
    (turn,) = [turn for turn in served.turns.others if turn.name == "expiry"]
    return turn


def test_turns_keep_the_stated_bound(table: FlusherTable, clock: ManualClock) -> None:
    turn = expiry_turn(table, clock)
    table.generation(0, [row(id, 24 - id / 100) for id in range(100)])
    table.round()
    seen: list[int] = []
    while clock.monotonic() < 3 * 3600:
        clock.sleep(turn.wait_s())
        turn.take()
        rows = table.rows()
        oldest_s = max((clock.now_ms() / 1000 - r["at"].timestamp() for r in rows), default=0.0)
        assert oldest_s <= DAY_S + 600
        seen.append(len(rows))
        clock.sleep(1.0)
    assert seen[0] == 100
    assert seen[-1] == 0
    assert len(seen) < 25


def test_the_service_lets_rows_expire(table: FlusherTable) -> None:
    now = datetime.now(UTC)
    values = [now - timedelta(days=2), now, None]
    table.generation(
        0, [Operation(Op.UPSERT, id, {"a": 0, "s": None, "tags": None, "at": at}) for id, at in enumerate(values)]
    )
    with serving(settings_of(table, flusher={"merge_interval_s": 0.05, "expiry_interval_s": 0.05})) as port:
        wait_for(lambda: samples(port).get("expired_rows_total") == 1)
    del table.model["r0", 0]
    table.check()


def test_a_flusher_that_works_by_an_older_contract_lets_nothing_expire(table: FlusherTable, clock: ManualClock) -> None:
    table.generation(0, [row(1, 30)])
    table.round()
    turn = expiry_turn(table, clock)
    alter_terms(Settings(table=TableSettings(uri=table.uri)), _ttl(None))
    with pytest.raises(ContractMismatch, match="Start the flusher again"):
        turn.take()
    table.check()


def test_looking_counts_and_changes_nothing(table: FlusherTable, clock: ManualClock) -> None:
    table.generation(0, [row(1, 30), row(2, 1), row(3, None)])
    table.round()
    version = table.dataset.version
    summary = look(context_of(table, clock))
    assert summary.expired_rows == 1
    assert "rows that have expired, which the flusher hides: 1" in summary_text(summary, dry_run=True)
    assert table.dataset.version == version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ttl_column": "nowhere"}, "column 'nowhere' is not among"),
        ({"ttl_column": "a"}, "column 'a' has type int64; rows expire by a timestamp or a date32"),
        ({"patches": True}, "allows patches"),
    ],
)
def test_contracts_that_cannot_be(table: FlusherTable, change: dict[str, Any], message: str) -> None:
    wrong = table.contract.model_copy(update=change)
    with pytest.raises(ObjectCorrupt, match=message):
        decode_contract(encode_contract(wrong), "here")


def test_policies_are_changed_and_a_flusher_goes_on(table: FlusherTable) -> None:
    """Past any number of such versions; behind another change it ends."""
    settings, context = Settings(table=TableSettings(uri=table.uri)), table.context()
    topic = table.contract.topic
    for terms in ({"on_bad_record": "ignore"}, {"on_misrouted": "dead-letter", "dead_letter_topic": "elsewhere"}):
        altered = alter_terms(settings, terms)
        assert {name: getattr(altered, name) for name in terms} == terms
        check_contract(context)
    with pytest.raises(InvalidInput, match=f"the topic '{topic}' is also the dead-letter topic"):
        alter_terms(settings, {"dead_letter_topic": topic})
    with pytest.raises(InvalidInput, match=r"dead_letter_topic .* expected the name of a topic.*Nothing was changed"):
        alter_terms(settings, {"dead_letter_topic": "dead\nletters"})
    with pytest.raises(InvalidInput, match="history_window_s"):
        alter_terms(settings, {"history_window_s": -1})
    alter_terms(settings, {"history_window_s": 5})
    with pytest.raises(ContractMismatch, match="Start the flusher again"):
        check_contract(context)


def test_the_contract_is_changed(table: FlusherTable) -> None:
    settings = Settings(table=TableSettings(uri=table.uri))
    assert read_contract(table.store, table.uri).ttl == TTL
    longer = alter_terms(settings, _ttl(Ttl("at", 2 * DAY_S)))
    assert (longer.version, longer.ttl) == (2, Ttl("at", 2 * DAY_S))
    with pytest.raises(InvalidSettings, match="already has these terms"):
        alter_terms(settings, _ttl(Ttl("at", 2 * DAY_S)))
    with pytest.raises(InvalidSchema, match="has type int64"):
        alter_terms(settings, _ttl(Ttl("a", DAY_S)))
    with pytest.raises(ContractMismatch, match=r"nothing was changed.*table\.ttl_s"):
        alter_terms(Settings(table=TableSettings(uri=table.uri, ttl_column="at", ttl_s=5)), _ttl(Ttl("at", 6)))
    assert alter_terms(settings, _ttl(None)).ttl is None
    assert read_contract(table.store, table.uri).version == 3
    assert b"ttl" not in encode_contract(read_contract(table.store, table.uri))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "name one change"),
        (("--ttl-column", "at"), 2, "--ttl DURATION with --ttl-column COLUMN"),
        (("--ttl", "5s"), 2, "--ttl DURATION with --ttl-column COLUMN"),
        (("--no-ttl", "--partitions", "5"), 2, "name one change"),
        (("--ttl-column", "s", "--ttl", "5s"), 2, "rows expire by a timestamp or a date32"),
        (("--ttl-column", "at", "--ttl", "5s"), 0, "5 s after at"),
        (("--no-ttl",), 0, "rows expire       never"),
    ],
)
def test_the_command(
    table: FlusherTable,
    options: Sequence[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli.app, "registered_groups", [*cli.app.registered_groups])
    cli.app.add_typer(table_app, name="table")
    monkeypatch.setenv("LANCEWAL_TABLE__URI", table.uri)
    assert cli.run(["table", "alter", *options]) == code
    out, err = capsys.readouterr()
    assert said in out + err


def test_the_command_shows_what_would_change(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__URI", table.uri)
    stored = read_contract(table.store, table.uri)
    alter = ("table", "alter", "--on", "misrouted=dead-letter", "--dry-run")
    assert cli.run(alter) == 0
    version, misrouted, end = capsys.readouterr().out.splitlines()
    assert (version.split()[0], misrouted.split()) == ("contract", ["misrouted", "stop", "->", "dead-letter"])
    assert end == "nothing was changed (--dry-run)"
    assert cli.run((*alter, "-o", "json")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["before"] == stored.model_dump(mode="json")
    assert {name for name, said in shown["after"].items() if said != shown["before"][name]} == {
        "version",
        "on_misrouted",
    }
    assert cli.run(("table", "alter", "--ttl-column", "s", "--ttl", "5s", "--dry-run")) == 2
    assert "rows expire by a timestamp" in capsys.readouterr().err
    assert read_contract(table.store, table.uri) == stored


def test_thresholds_at_the_unit_s_edge() -> None:
    for type_ in TYPES.values():
        for now_ms in (86_400_000, 86_400_001, 1_800_000_000_123, 86_399_999):
            threshold = TTL.threshold(type_, now_ms)
            stored = pa.array([threshold - 1, threshold], pa.int32() if pa.types.is_date32(type_) else pa.int64()).cast(
                type_
            )
            ns = [int(v) for v in np.array(stored.cast(pa.timestamp("ns")).cast(pa.int64()))]
            cut = (now_ms - DAY_S * 1000) * 1_000_000
            assert ns[0] < cut <= ns[1]


def _ttl(ttl: Ttl | None) -> dict[str, object]:
    """As terms of a contract."""
    return {"ttl_column": None if ttl is None else ttl.column, "ttl_s": None if ttl is None else ttl.seconds}
