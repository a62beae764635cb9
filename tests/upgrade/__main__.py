"""``python3 dev.py check-upgrade [FROM]``: two releases work on one table, side by side, and every row is compared.

FROM is a commit, by default that of the newest release.  Its services and those of this checkout run against a real broker
and a local folder, in the order of ``docs/how-to/upgrade.md`` and back, while records come.  At each step both releases
read, and the rows must be the fold of the records, by a dict.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa
import yaml

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.processes import Process, log_tail
from lancewal_reader.point.receipt import receipt_of
from tests.support.topics import make_topics
from tests.upgrade.releases import Release, git, install, newest_release, this_checkout
from tests.whole_path.feed import COLUMNS, PARTITIONS, PRIMARY_KEY, Feed, Key, Row
from tests.whole_path.world import positions

TOPIC = "trips"
FEED_RECORDS = 40
STAGE_S = 6.0
"""Records come for so long before a stage is judged."""
DEADLINE_S = 120.0
READ = Path(__file__).with_name("read.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py check-upgrade", description=__doc__)
    parser.add_argument("commit", nargs="?", metavar="FROM", default="")
    commit = git("rev-parse", "--verify", f"{parser.parse_args().commit or newest_release()}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="lancewal-upgrade-") as place, ExitStack() as stack:
        folder = Path(place)
        old, new = install(commit, folder / "old"), this_checkout()
        say(f"old: {git('log', '-1', '--format=%h %s', commit)}")
        say(f"new: {git('log', '-1', '--format=%h %s')}, with what is not committed")
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        make_topics(broker.bootstrap_servers, {TOPIC: PARTITIONS, f"{TOPIC}.dead-letters": 1})
        deployment = Deployment(folder, broker.bootstrap_servers)
        stack.callback(deployment.kill)
        old_and_new(deployment, old, new)
    say("passed")
    return 0


def old_and_new(deployment: Deployment, old: Release, new: Release) -> None:
    """The steps of the page, there and back; the old flusher beside the new ingest comes in between."""
    deployment.run(old, "table", "create")
    readers = (old, new)
    with deployment.records():
        for what, flusher, ingests in (
            ("the old release", old, [old]),
            ("the flusher is new", new, [old]),
            ("one member of ingest is new", new, [old, new]),
            ("all is new", new, [new]),
            ("the flusher is old again", old, [new]),
            ("one member of ingest is old again", old, [new, old]),
            ("all is old again", old, [old]),
            ("and new once more", new, [new]),
        ):
            deployment.turn_to(flusher, ingests)
            time.sleep(STAGE_S)
            rows = deployment.check(readers)
            say(f"{what}: {rows} rows, as expected by strong and eventual reads of both releases")
    deployment.turn_to(None, [])
    for release in readers:
        deployment.run(release, "merge")
        deployment.run(release, "verify")
    plain = lance.dataset(str(deployment.table)).to_table()
    deployment.compare(plain, deployment.feed.history.ends, "plain Lance")
    say(f"plain Lance: {plain.num_rows} rows; `lancewal verify` of both releases found nothing")


@dataclass(slots=True)
class Deployment:
    """A table, its services of either release, and the records that come."""

    folder: Path
    servers: str
    feed: Feed = field(init=False)
    _running: dict[tuple[str, str], Process] = field(default_factory=dict)
    _feeding: threading.Lock = field(default_factory=threading.Lock)
    _started: int = 0

    def __post_init__(self) -> None:
        self.feed = Feed(self.servers, TOPIC, 1, ("customer",))
        settings = {
            "table": {
                "uri": str(self.table),
                "topic": TOPIC,
                "columns": COLUMNS,
                "primary_key": list(PRIMARY_KEY),
                "region_key": ["customer"],
            },
            "kafka": {"bootstrap_servers": self.servers},
            # Much is sealed and merged while a stage lasts.
            "ingest": {"seal_rows": 200, "seal_age_s": 0.5},
            "flusher": {"merge_interval_s": 0.5, "merge_defer_s": 0},
            "http": {"ingest_port": 0, "flusher_port": 0},
        }
        self.settings.write_text(yaml.safe_dump(settings))

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def settings(self) -> Path:
        return self.folder / "lancewal.yaml"

    def run(self, release: Release, *command: str) -> None:
        """Run a command of a release, which must succeed."""
        done = subprocess.run(
            [release.program, *command, "--config", self.settings], cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{release.name}: lancewal {' '.join(command)}:\n{done.stdout}{done.stderr}"

    @contextmanager
    def records(self) -> Iterator[None]:
        """Records come until the end, but while ``check`` compares."""
        over = threading.Event()

        def feed() -> None:
            while not over.wait(0.05):
                with self._feeding:
                    self.feed.produce(FEED_RECORDS)

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def turn_to(self, flusher: Release | None, ingests: Sequence[Release]) -> None:
        """Stop and start services, until these run: new members of ingest before the former ones end."""
        wanted = {(release.name, "ingest"): release for release in ingests}
        if flusher is not None:
            wanted[flusher.name, "flusher"] = flusher
        gone = [service for service in self._running if service not in wanted]
        for service in gone:
            if service[1] == "flusher":
                self._stop(service)
        for service, release in wanted.items():
            if service not in self._running:
                self._started += 1
                log = self.folder / f"{self._started:02d}-{'-'.join(service)}.log"
                command: list[str | Path] = [release.program, service[1], "run", "--config", self.settings]
                self._running[service] = Process(command, log)
                self._wait_ready(service)
        for service in gone:
            if service in self._running:
                self._stop(service)

    def check(self, readers: Sequence[Release]) -> int:
        """Compare what each release reads with the records; the number of rows.  Everything must have been merged."""
        with self._feeding:
            ends = self.feed.history.ends
            deadline = time.monotonic() + DEADLINE_S
            while any(self._read(reader, "eventual")[1] != ends for reader in readers):
                assert time.monotonic() < deadline, f"not merged up to {ends}:\n{self._tails()}"
            for reader in readers:
                assert self._read(reader, "strong")[1] == ends
            return len(self.feed.history.fold(ends))

    def compare(self, rows: pa.Table, cut: dict[int, int], what: str) -> None:
        expected = self.feed.history.fold(cut)
        found: dict[Key, Row] = {(row["customer"], row["id"]): row for row in rows.to_pylist()}
        wrong = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
        assert len(found) == rows.num_rows, f"{what} shows a key twice"
        assert not wrong, f"{what} differs in {len(wrong)} keys, as in {wrong[0]}: {self.feed.history.of(wrong[0])}"

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()

    def _read(self, release: Release, consistency: str) -> tuple[pa.Table, dict[int, int]]:
        """Rows, compared with the records below the read's positions, and these."""
        file = self.folder / "read.arrow"
        subprocess.run([release.python, READ, self.table, consistency, file], cwd=self.folder, check=True)
        with pa.ipc.open_file(file.read_bytes()) as stored:
            rows = stored.read_all()
        cut = positions(receipt_of(rows.schema))
        self.compare(rows, cut, f"{consistency} read by the {release.name} release")
        return rows, cut

    def _wait_ready(self, service: tuple[str, str]) -> None:
        """Wait until it says that it has started."""
        process = self._running[service]
        process.wait_until(lambda: "service_started" in process.log.read_text(), " ".join(service), DEADLINE_S)

    def _stop(self, service: tuple[str, str]) -> None:
        process = self._running.pop(service)
        process.stop(DEADLINE_S)
        assert process.exit_code == 0, f"{' '.join(service)} ended with {process.exit_code}\n{log_tail(process.log)}"

    def _tails(self) -> str:
        return "\n".join(log_tail(process.log) for process in self._running.values())


def say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
