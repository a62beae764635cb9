"""Commands that meet a damaged object: a declared exit code, the object's name, never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import lancewal_audit.repair.topic_records as topic_records
from lancewal_core.cli import program
from lancewal_core.errors import ASKS_FOR_A_PERSON, DAMAGED
from lancewal_core.store.object_kinds import ObjectKind, kind_of
from tests.audit.repair.test_segment import MemoryRecords
from tests.support.pipeline import Failures, Pipeline


class World(NamedTuple):
    pipeline: Pipeline
    settings: Path
    newest: Mapping[str, Path]
    """The newest object of each kind."""


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


def _too_large(path: Path) -> None:
    """The file system stores nothing of it."""
    with path.open("r+b") as file:
        file.truncate(_kind(path).bytes_max + 1)


def _key(path: Path) -> str:
    return "_lancewal" + path.as_posix().partition("/_lancewal")[2]


def _kind(path: Path) -> ObjectKind:
    found = kind_of(_key(path))
    assert found is not None, path
    return found


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "empty": _bytes(lambda whole: b""),
    "truncated": _bytes(lambda whole: whole[: len(whole) // 2]),
    "other bytes": _bytes(lambda whole: b"\x00\xffother" * 50),
    "a huge length at the start": _bytes(lambda whole: b"\xff" * 8 + whole[8:]),
    "a huge length at the end": _bytes(lambda whole: whole[:-8] + b"\xff" * 8),
    "bytes after the end": _bytes(lambda whole: whole + b"\x00more"),
    "too large": _too_large,
    "a folder": _folder,
}
RECORDS = frozenset({"contract", "merge record", "state page"})
ROWS = frozenset({"flush", "deleted keys", "patches"})
BESIDE = frozenset({"bundle", "part of a key run", "key catalog", "finished merge"})
"""Kinds without which commands go on: they cost time."""
SEGMENT, FILE = "SEGMENT", "FILE"
COMMANDS: Mapping[str, list[str]] = {
    "read": ["read"],
    "status": ["status"],
    "table export-memwal": ["table", "export-memwal", FILE],
    "verify": ["verify", "--from", "wal"],
    "repair region": ["repair", "region", "0", "--dry-run"],
    "repair generation": ["repair", "generation", "0", "--dry-run"],
    "repair segment": ["repair", "segment", SEGMENT, "--dry-run"],
    "repair merged-position": ["repair", "merged-position", "--dry-run"],
    "gc": ["gc", "--dry-run"],
    "conflict list": ["conflict", "list"],
}
NEEDED: Mapping[str, frozenset[str]] = {
    "read": frozenset({*RECORDS, *ROWS, "keys in conflict", "segment"}),
    "status": frozenset({*RECORDS, *ROWS, "keys in conflict", "segment", "control"}),
    "table export-memwal": RECORDS,
    "verify": frozenset({*RECORDS, *ROWS, "keys in conflict", "segment"}),
    "repair generation": RECORDS - {"state page"},
    "repair region": RECORDS - {"state page"},
    "repair segment": frozenset({"contract"}),
    "repair merged-position": RECORDS - {"state page"},
    "gc": RECORDS,
    "conflict list": frozenset({*RECORDS, "keys in conflict"}) - {"state page"},
}
"""Kinds whose newest object a command cannot do without.  A repair can do without what it mends."""
MENDED: Mapping[str, frozenset[str]] = {
    "repair generation": ROWS,
    "repair region": frozenset({"state page"}),
    "repair segment": frozenset({"segment"}),
}
ALSO: Mapping[str, frozenset[str]] = {
    "repair generation": frozenset({"state page"}),
    "repair region": frozenset({"finished merge"}),
}
"""Kinds that a command reads in part, or asks for: some damages are met, and some are not."""
BEHIND = ("bytes after the end", "too large")
READ_BY_SIZE = frozenset({"deleted keys", "patches"})
"""Kinds whose objects are read by the size that their manifest names: what lies behind is never looked at."""


def expected_code(command: str, kind: str, damage: str) -> int:
    """The exit code of a command that names the damaged object."""
    if kind in MENDED.get(command, ()):
        # Nothing lists a folder, so a log ends before it: once it is removed, ingest reads the records from Kafka again.
        return ASKS_FOR_A_PERSON if (kind, damage) == ("segment", "a folder") else 0
    return 1 if command == "status" and kind != "contract" else DAMAGED


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Merged rows, keys in conflict, a flush that is not merged, segments that are not flushed, a bundle, a pause."""
    suffix = ""
    made = Pipeline(
        tmp_path_factory.mktemp("made"),
        seed=5,
        partitions=2,
        seal_rows=10_000,
        observer=Failures(),
        keyed_by=lambda region, id: f"{region}{suffix}".encode(),
    )
    made.produce(60)
    made.merge_all()
    suffix = "x"
    for id in range(5):
        made.upsert("r1", id, a=1)
        made.upsert("r2", id, a=1)
    made.merge_all()
    suffix = ""
    made.produce(60)
    made.ingest()
    made.hand_over()
    for _ in range(40):
        made.produce(2)
        made.ingest()
    made.settle()
    settings = Path(made.uri).parent / "lancewal.yaml"
    settings.write_text(yaml.safe_dump({"table": {"uri": made.uri}}))
    for service in ("ingest", "flusher"):
        assert program.run(["pause", service, "--config", str(settings)]) == 0
    below = sorted((Path(made.uri) / "_lancewal").rglob("*"), key=lambda path: path.stat().st_mtime_ns)
    newest = {_kind(path).name: path for path in below if path.is_file()}
    assert newest.keys() >= {*RECORDS, *ROWS, *BESIDE, "keys in conflict", "segment", "control"}
    yield World(made, settings, newest)
    made.close()


def test_status_calls_no_table_idle_whose_flush_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Pipeline(tmp_path, seed=5, partitions=2)
    made.produce(60)
    made.merge_all()
    made.produce(60)
    made.ingest()
    made.hand_over()
    made.settle()
    for manifest in made.objects("manifest.json"):
        manifest.write_bytes(b"{")
    assert program.run(["status", "--table", made.uri]) == 1
    said = capsys.readouterr().out
    assert "merge_due: generation 2 is flushed" in said
    assert "caught_up" not in said
    made.close()


@pytest.mark.in_turns("command", "damage", each=3)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_named(
    world: World,
    tmp_path: Path,
    damage: str,
    command: str,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_records, "KafkaTopicRecords", lambda *_: MemoryRecords(world.pipeline))
    if command == "repair segment":
        monkeypatch.setenv("LANCEWAL_KAFKA__BOOTSTRAP_SERVERS", "nobody:1")
    failed = set()
    for number, (kind, path) in enumerate(world.newest.items()):
        if kind in BESIDE and damage not in ("empty", "a folder"):
            continue
        given = {SEGMENT: _key(world.newest["segment"]), FILE: str(tmp_path / f"{number}.bin")}
        whole = path.read_bytes()
        DAMAGES[damage](path)
        try:
            code = program.run(
                [*(given.get(word, word) for word in COMMANDS[command]), "--config", str(world.settings)]
            )
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(whole)
        said = b"".join(capfdbinary.readouterr()).decode(errors="replace")
        assert "Traceback" not in said, (path, said)
        if f"{path.parent.name}/{path.name}" not in said:
            assert code == 0, (path, code, said)
            continue
        failed.add(kind)
        assert code == expected_code(command, kind, damage), (path, code, said)
    beyond = READ_BY_SIZE if damage in BEHIND else frozenset()
    met = NEEDED[command] | MENDED.get(command, frozenset()) | ALSO.get(command, frozenset())
    assert NEEDED[command] - beyond <= failed <= met
