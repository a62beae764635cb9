"""Members add columns for fields that the schemas of records have (``on_unknown_column: add``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lancewal_core.errors import StoreUnavailable
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from tests.simulation.checker import require
from tests.simulation.column_scenarios import ColumnStage
from tests.simulation.columns import TYPES
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member
from tests.support.format_with_schemas import known_by_name, values_have_schemas


class AddingStage(ColumnStage):
    """A stage whose contract says ``add``.  Each name in ``TYPES`` is that of an optional field."""

    def __init__(self) -> None:
        super().__init__(partitions=2)
        self.alter(format=2, on_unknown_column="add")

    def gives(self, member: Member, partition: int, **values: object) -> None:
        """A record is durable, or stays with its member if that cannot take it."""
        keys = (k for k in range(100) if partition_of(encode_region_key(k), 2) == partition)
        k = next(k for k in keys if k not in self._sent(partition))
        value, key = json.dumps({"k": k, **values}).encode(), encode_region_key(k)
        self.topic.append(partition, lambda offset: Record(offset, 0, key, value, None, Op.UPSERT, k, values))
        self.step(member, 2)

    def heir_of(self, dead: Member, name: str, partition: int) -> Member:
        """A member that has just started has the partition of one that died."""
        heir = self.member(name)
        self.take_over(dead, heir, partition)
        self.step(heir, 4)
        return heir

    def has_added(self, *names: str, version: int = 3) -> None:
        """These columns were added, by this version of the contract, and no record was rejected."""
        require(self.checker.rejected == {}, "records were rejected:", self.checker.rejected)
        have = [column.name for column in self.contract.columns if column.name not in ("k", "a", "b")]
        require(have == [*names], "columns were added:", have)
        require(self.contract.version == version, "the contract has version", self.contract.version)
        require(set(names) <= set(self.dataset.schema.names), "the table has", self.dataset.schema.names)


@contextmanager
def adding() -> Iterator[AddingStage]:
    with values_have_schemas(known_by_name({name: parse_type(type_) for name, type_ in TYPES.items()})):
        yield AddingStage()


def two_members_meet_a_field_at_once() -> None:
    """A has grown the table for ``c``, when B adds it."""
    with adding() as stage:
        a, b = stage.member("a", 0), stage.member("b", 1)
        stage.faults_of("a").before("put", "/contract/", lambda: stage.gives(b, 1, c="b"))
        stage.gives(a, 0, c="a")
        stage.has_added("c")
        stage.gives(a, 0, c="a", d=1)
        stage.gives(b, 1, c="b", d=2)
        stage.has_added("c", "d", version=4)
        for member in (a, b):
            stage.seal(member)
        stage.check_rows_and_columns()


def member_dies_before_its_contract() -> None:
    """A dies when it has grown the table for ``c``.  B opens its partition."""
    with adding() as stage:
        a = stage.member("a", 0)
        stage.faults_of("a").before("put", "/contract/", crash)
        with suppress(Crashed):
            stage.gives(a, 0, a="x", c="c")
        require("c" in stage.dataset.schema.names, "the table has not grown")
        stage.columns_fit()
        b = stage.heir_of(a, "b", 0)
        stage.has_added("c")
        stage.seal(b)
        stage.check_rows_and_columns()


def member_dies_before_it_shrinks() -> None:
    """A dies right after it has stored the contract with ``c``.  B opens its partition, and adds ``d`` later."""
    with adding() as stage:
        a = stage.member("a", 0)
        script = stage.faults_of("a")
        script.before("put", "/contract/", lambda: script.before("newest", "table", crash))
        with suppress(Crashed):
            stage.gives(a, 0, a="x", c="c")
        stage.columns_fit()
        b = stage.heir_of(a, "b", 0)
        stage.has_added("c")
        stage.gives(b, 0, c="c", d=1)
        stage.has_added("c", "d", version=4)
        stage.seal(b)
        stage.check_rows_and_columns()


def store_does_not_answer_while_a_column_is_added() -> None:
    """A look at the table, its growth and the swap of the contract fail once each."""
    with adding() as stage:
        a = stage.member("a", 0)
        script = stage.faults_of("a")

        def silent() -> None:
            raise StoreUnavailable("no answer")

        for act, what in (("newest", "table"), ("commit", "table"), ("put", "/contract/")):
            script.before(act, what, silent)
        stage.gives(a, 0, a="x", c="c")
        stage.step(a, 20)
        stage.has_added("c")
        require(not script.cues, "left:", script.cues)
        stage.seal(a)
        stage.check_rows_and_columns()


def record_has_a_dropped_field_and_a_new_one() -> None:
    """``c`` was added and dropped while A slept.  A record has ``c``, and ``d`` that is new."""
    with adding() as stage:
        a = stage.member("a", 0)
        stage.change(add=("c",))
        stage.change(drop=("c",))
        stage.gives(a, 0, c="c", d=1)
        stage.has_added("d", version=5)
        stage.seal(a)
        stage.check_rows_and_columns()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    member_dies_before_its_contract: ("what a dead process has added is not known", "records were rejected"),
    store_does_not_answer_while_a_column_is_added: ("a silent store refuses a column", "records were rejected"),
    record_has_a_dropped_field_and_a_new_one: ("a dropped name is added again", "columns were added: .*c"),
}

ACCIDENTS: list[Callable[[], None]] = [two_members_meet_a_field_at_once, member_dies_before_it_shrinks]
