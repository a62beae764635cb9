"""One table with its topic, its feed and its program, and the ways to read it, each compared with the fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import lance
import pyarrow as pa

from lancewal_audit.verify.report import Report, report_text
from lancewal_audit.verify.verification import Sources, VerifyRequest, verify_table
from lancewal_core.cli.options import read_settings
from lancewal_core.errors import TableMissing
from lancewal_core.open import Address
from lancewal_core.store.address import local_folder
from lancewal_core.store.obstore import TableStore
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.table import Table, open_table
from lancewal_tables.define.create import create_table
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, Service, until
from tests.whole_path.feed import COLUMNS, PARTITIONS, PRIMARY_KEY, Feed, Key, Row

SESSION_MS = 2_500
"""A dead member is noticed after this; also under load the client's own thread sends its heartbeats in time."""


@dataclass(slots=True)
class World:
    lancewal: Lancewal
    feed: Feed
    uri: str
    options: Mapping[str, str]
    servers: str
    users: dict[Key, Row] = field(default_factory=dict)
    """Rows that a user has appended, of keys that Kafka never writes."""
    begin: Mapping[int, int] = field(default_factory=dict)
    """Offsets at which the table begins, if it was made with a later start."""
    reads: int = 0
    _kept: Table | None = None

    def check_strong(self) -> Receipt:
        """Two strong reads, one of them by an object that has read before, against the fold of what they say they saw."""
        if self._kept is None:
            self._kept = open_table(self.uri, storage_options=self.options)
        self._checked(self._kept.to_arrow())
        return self._checked(open_table(self.uri, storage_options=self.options).to_arrow())

    def check_merged(self) -> Receipt:
        """The merged table, by the reader and as a plain Lance data set of the same version."""
        receipt = self._checked(open_table(self.uri, storage_options=self.options).to_arrow(consistency="eventual"))
        plain = lance.dataset(self.uri, version=receipt.version, storage_options=dict(self.options)).to_table()
        self.compare(plain.to_pylist(), positions(receipt), "plain Lance")
        return receipt

    def caught_up(self, consistency: str = "strong") -> bool:
        """Whether a read now sees everything that was produced."""
        table = open_table(self.uri, storage_options=self.options)
        cut = positions(table.receipt(consistency="strong" if consistency == "strong" else "eventual"))
        return all(cut.get(partition, 0) >= end for partition, end in self.feed.history.ends.items())

    def compare(self, rows: Sequence[Row], cut: Mapping[int, int], what: str) -> None:
        """These rows are the fold of the records below ``cut``, and what users have appended."""
        self.reads += 1
        expected = {**self.feed.history.fold(cut, self.begin), **self.users}
        found: dict[Key, list[Row]] = {}
        for row in rows:
            found.setdefault((row["customer"], row["id"]), []).append(row)
        wrong = [key for key in found.keys() | expected.keys() if found.get(key, []) != _once(expected.get(key))]
        if wrong:
            key = min(wrong)
            lines = [
                f"{what} differs from the fold in {len(wrong)} of {len(expected)} keys, cut {dict(cut)}; {key}:",
                f"read     {found.get(key, [])}",
                f"expected {_once(expected.get(key))}",
                *self.feed.history.of(key),
            ]
            raise AssertionError("\n".join(lines))

    def verify(self, sources: Sources = "both") -> Report:
        """`lancewal verify`, in this process; it must find nothing."""
        report = verify_table(read_settings(self.lancewal.config), self.uri, VerifyRequest(sources))
        assert report.equal, report_text(report)
        return report

    def append_as_user(self, rows: Sequence[Row]) -> None:
        """As somebody does who knows nothing of lancewal."""
        schema = lance.dataset(self.uri, storage_options=dict(self.options)).schema
        lance.write_dataset(
            pa.Table.from_pylist([dict(row) for row in rows], schema),
            self.uri,
            mode="append",
            storage_options=dict(self.options),
        )

    def objects(self) -> set[str]:
        """Keys of all objects at the table's address."""
        with suppress(TableMissing):
            return {info.key for info in self.store().list("")}
        return set()

    def store(self) -> TableStore:
        return Address(self.uri, self.options).store()

    def remove_by_hand(self) -> None:
        """``rm -rf``, or the prefix deleted by a tool: repeated while services still write."""
        folder = local_folder(self.uri)
        while found := self.objects():
            if folder is None:
                self.store().delete(sorted(found))
            else:
                rmtree(folder, ignore_errors=True)
        if folder is not None:
            rmtree(folder, ignore_errors=True)

    def merge_all(self) -> None:
        """Flush runs until everything produced is in the table; ingest has handed everything over."""
        for _ in range(5):
            self.lancewal.succeed("merge")
            if self.caught_up("eventual"):
                return
        raise AssertionError("five runs of `lancewal merge` have left something unmerged")

    def check_all_in(self, receipt: Receipt) -> None:
        """The receipt's cut is everything that was produced; partitions without a record may stand in it with 0."""
        cut = {partition: position for partition, position in positions(receipt).items() if position}
        assert cut == self.feed.history.ends, (
            f"a read of version {receipt.version} saw {cut}, not {self.feed.history.ends}"
        )

    def finish(self, services: Sequence[Service] = ()) -> None:
        """End the services in this order, merge, and compare: everything produced is in the table, once, read in every way.

        Before they end they take over what members had that were killed: records of these may be durable long before that.
        """
        if services:
            self.feed.produce_everywhere()
            self.wait_caught_up()
        self.check_strong()
        for service in services:
            service.stop()
        self.merge_all()
        ends = self.feed.history.ends
        for receipt in (self.check_strong(), self.check_merged()):
            # Or further: behind the last record there may be markers of transactions.
            assert all(positions(receipt).get(partition, 0) >= end for partition, end in ends.items()), receipt

    def wait_caught_up(self, consistency: str = "strong") -> None:
        until(
            lambda: self.caught_up(consistency),
            lambda: f"{consistency} reads do not see {self.feed.history.ends}\n{self.lancewal.tails}",
            poll_s=0.06,  # each look opens the table
        )

    def _checked(self, rows: pa.Table) -> Receipt:
        receipt = receipt_of(rows.schema)
        self.compare(rows.to_pylist(), positions(receipt), f"a read of version {receipt.version}")
        return receipt


def positions(receipt: Receipt) -> dict[int, int]:
    """The receipt's cut, by partition."""
    return {region.partition: int(position) for region, position in receipt.positions.items()}


def user_row(customer: str, number: int, status: str) -> Row:
    return {**dict.fromkeys(COLUMNS), "customer": customer, "id": number, "status": status}


def make_world(
    kafka: KafkaBroker,
    topic: str,
    folder: Path,
    seed: int,
    /,
    *,
    region_key: Sequence[str] = ("customer",),
    uri: str | None = None,
    options: Mapping[str, str] | None = None,
    in_process: bool = False,
    topic_config: Mapping[str, str] | None = None,
    **sections: Mapping[str, object],
) -> World:
    """Topics, settings, and the table by ``lancewal table create``.  ``sections`` change the settings.

    ``in_process``: by the function that the command calls, which saves the start of a process.
    """
    make_topics(kafka.bootstrap_servers, {topic: PARTITIONS}, topic_config)
    make_topics(kafka.bootstrap_servers, {f"{topic}.dead-letters": 1})
    place = uri or str(folder / "table")
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": place,
            "topic": topic,
            "columns": dict(COLUMNS),
            "primary_key": list(PRIMARY_KEY),
            "region_key": list(region_key),
            # Short, so that objects are trimmed while the test reads.
            "history_window_s": 2,
            "grace_s": 4,
        },
        "kafka": {
            "bootstrap_servers": kafka.bootstrap_servers,
            "options": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 400},
        },
        "storage": {"options": dict(options or {})},
        # Many small generations and segments.
        "ingest": {
            "seal_rows": 60,
            "seal_age_s": 0.5,
            "linger_ms": 10,
            "retry_interval_s": 0.1,
            "offset_commit_interval_s": 0.5,
        },
        "flusher": {"merge_interval_s": 0.2, "merge_defer_s": 0, "gc_interval_s": 1.0},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    for name, section in sections.items():
        tree.setdefault(name, {}).update(section)
    lancewal = Lancewal(folder, tree)
    if in_process:
        create_table(read_settings(lancewal.config))
    else:
        lancewal.succeed("table", "create")
    patches = tree["table"].get("patches", True) is not False
    feed = Feed(kafka.bootstrap_servers, topic, seed, region_key, patches=patches)
    return World(lancewal, feed, place, dict(options or {}), kafka.bootstrap_servers)


def _once(row: Row | None) -> Sequence[Row]:
    return [] if row is None else [row]


def plain_rows(table: Any) -> Sequence[Row]:
    """Rows of an Arrow table as dicts."""
    rows: list[Row] = table.to_pylist()
    return rows
