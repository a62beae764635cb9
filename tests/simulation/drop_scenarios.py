"""A table is dropped and taken back, at every step of the processes that work on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import lancewal_tables.define.drop as dropping
from lancewal_core.errors import ContractMismatch, LancewalError, TableDropped
from lancewal_core.names import paths
from lancewal_core.table.contract import newest_contract
from tests.simulation.checker import require
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Member, Stage

_STEPS_MAX = 40


def _drop(stage: Stage) -> set[str]:
    """The command, run until it ends; returns all segments and fences."""
    process = stage.process("drop")
    known = newest_contract(process.store)
    assert known is not None
    contract, failed = dropping.drop(process.opened(known), process.new_id)
    require(not failed, "not ended:", failed)
    stage.altered(contract)
    return _logs(stage)


def _logs(stage: Stage) -> set[str]:
    keys = {found.key for found in stage.process("look").store.list(paths.WAL)}
    return {key for key in keys if paths.parse_wal_segment(key) is not None}


def _undrop(stage: Stage) -> None:
    process = stage.process("undrop")
    stage.altered(dropping.undrop(process.store, process.clock, stage.contract))
    require(stage.contract.drop is None, "it is", stage.contract.drop)


def _works(stage: Stage, member: Member, times: int = 4) -> None:
    """Records come, and the member works until it meets the drop."""
    with suppress(TableDropped):
        for partition in (0, 1):
            stage.send(partition)
        stage.step(member, times)


def _goes_on(stage: Stage) -> None:
    """A new ingest and a new flusher take all that is there, and lose nothing."""
    c = stage.member("c")
    for partition in (0, 1):
        owner = stage.group.owner[partition]
        if owner is not None:
            stage.group.expel(owner)
    stage.give(c, 0, 1)
    stage.step(c, 3)
    for partition in (0, 1):
        stage.append_and_seal(c, partition)
    ends = {p: log.high for p, log in enumerate(stage.topic.partitions)}
    require(stage.acknowledged == ends, "durable up to", stage.acknowledged, "of", ends)
    stage.check()
    stage.round(stage.flusher("g"))
    stage.check()
    stage.check_table()


def _while_it_is_dropped(act: Callable[[Stage, Member], Member]) -> None:
    """Before each put of the command ``act`` is done, with A at work.  Nothing is appended afterwards."""
    for step in range(1, _STEPS_MAX):
        stage = Stage()
        a = stage.member("a", 0, 1)
        stage.append_and_seal(a, 0)
        stage.append(a, 0)
        stage.append(a, 1)
        met: list[Member] = []

        def cue(stage: Stage = stage, a: Member = a, met: list[Member] = met) -> None:
            met.append(act(stage, a))

        stage.faults_of("drop").before("put", "", cue, step)
        logs = _drop(stage)
        for member in (a, *met):
            _works(stage, member)
        require(_logs(stage) == logs, "appended after the drop:", _logs(stage) - logs)
        _undrop(stage)
        _goes_on(stage)
        if not met:
            require(step > 3, "steps of the command:", step - 1)
            return
    raise AssertionError("the command does not end")


def owner_appends_while_the_table_is_dropped() -> None:
    """A appends, and opens what was fenced."""

    def act(stage: Stage, a: Member) -> Member:
        _works(stage, a)
        return a

    _while_it_is_dropped(act)


def heir_claims_while_the_table_is_dropped() -> None:
    """B takes over from A, and appends."""

    def act(stage: Stage, a: Member) -> Member:
        b = stage.member("b")
        with suppress(TableDropped):
            stage.take_over(a, b, 0, 1)
        _works(stage, b)
        return b

    _while_it_is_dropped(act)


def table_is_dropped_at_each_step_of_ingest() -> None:
    """Before each put of A the table is dropped, and perhaps taken back at once."""
    for back in (False, True):
        for step in range(1, _STEPS_MAX):
            stage = Stage()
            a = stage.member("a", 0, 1)
            stage.append(a, 0)
            logs: list[set[str]] = []

            def act(stage: Stage = stage, logs: list[set[str]] = logs, back: bool = back) -> None:
                logs.append(_drop(stage))
                if back:
                    _undrop(stage)

            a.script.before("put", "", act, step)
            with suppress(TableDropped):
                stage.append(a, 1)
                stage.append_and_seal(a, 0, 1)
            _works(stage, a)
            if not back and logs:
                require(_logs(stage) == logs[0], "appended after the drop:", _logs(stage) - logs[0])
            if logs and not back:
                _undrop(stage)
            _goes_on(stage)
            if not logs:
                break


def table_is_dropped_at_each_step_of_a_merge() -> None:
    """Before each put and commit of the flusher the table is dropped, and perhaps taken back at once."""
    for act_of in ("put", "commit"):
        for back in (False, True):
            for step in range(1, _STEPS_MAX):
                stage = Stage()
                a = stage.member("a", 0, 1)
                stage.append_and_seal(a, 0, 1)
                f = stage.flusher("f")
                met: list[bool] = []

                def act(stage: Stage = stage, met: list[bool] = met, back: bool = back) -> None:
                    _drop(stage)
                    met.append(True)
                    if back:
                        _undrop(stage)

                stage.scripts["f"].before(act_of, "", act, step)
                with suppress(LancewalError):
                    stage.round(f)
                if met and not back:
                    _undrop(stage)
                _goes_on(stage)
                if not met:
                    break


def drop_is_cut_short() -> None:
    """The command dies before each of its puts.  Nobody goes on, or the table is as it was; the command goes on."""
    for step in range(1, _STEPS_MAX):
        stage = Stage()
        a = stage.member("a", 0, 1)
        stage.append_and_seal(a, 0, 1)
        stage.append(a, 0)
        script = stage.faults_of("drop")
        script.before("put", "", crash, step)
        try:
            _drop(stage)
        except Crashed:
            ended = False
        else:
            ended = True
        script.clear()
        logs = _drop(stage)
        _works(stage, a)
        require(_logs(stage) == logs, "appended after the drop:", _logs(stage) - logs)
        _undrop(stage)
        _goes_on(stage)
        if ended:
            break


def table_is_taken_back_while_its_deletion_begins() -> None:
    """Whoever puts the next contract first wins: nothing is deleted, or nothing brings the table back."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append_and_seal(a, 0, 1)
    _drop(stage)
    deleter, dropped = stage.process("delete"), stage.contract
    stage.faults_of("delete").before("put", "/contract/", lambda: _undrop(stage))
    with stops(ContractMismatch, "undropped meanwhile"):
        deleting = dropping.begin_deletion(deleter.store, deleter.clock, dropped)
        dropping.delete_objects(deleter.store, deleter.tasks, deleting)
    _goes_on(stage)
    _drop(stage)
    deleting = dropping.begin_deletion(deleter.store, deleter.clock, stage.contract)
    with stops(TableDropped, "its objects are deleted"):
        _undrop(stage)
    dropping.delete_objects(deleter.store, deleter.tasks, deleting)
    left = [found.key for found in deleter.store.list("")]
    require(all(paths.parse_contract_version(key) for key in left), "left:", left)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    owner_appends_while_the_table_is_dropped: ("the fences come before the drop", "appended after the drop"),
    heir_claims_while_the_table_is_dropped: ("a claim does not look for a drop", "appended after the drop"),
    table_is_dropped_at_each_step_of_ingest: ("a dropped table's logs go on", "appended after the drop"),
    drop_is_cut_short: ("a dropped table's logs go on", "appended after the drop"),
    table_is_taken_back_while_its_deletion_begins: ("a deletion swaps no contract", "ContractMismatch was expected"),
}
ACCIDENTS: list[Callable[[], None]] = [table_is_dropped_at_each_step_of_a_merge]
