"""Jars that are fetched are those of the lock, all of them and no others, or nothing starts.

No network: the repository is a dict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers import fetch, remote
from benchmarks.peers.engines import ENGINES, Engine
from benchmarks.peers.remote import RemotePeer
from lancewal_demo.stack import StackFailed
from lancewal_demo.stack.maven_jars import JarSet

GOOD = {"delta-1.jar": b"the engine", "storage-1.jar": b"what it needs"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    files = dict(GOOD)

    def resolve(_jars: JarSet, folder: Path) -> None:
        for name, content in files.items():
            (folder / name).write_bytes(content)

    monkeypatch.setattr(JarSet, "_resolve", resolve)
    return files


@pytest.fixture
def jars(tmp_path: Path) -> JarSet:
    lock = tmp_path / "peer-jars.lock"
    lock.write_text("".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in GOOD.items()))
    return JarSet("peer", "", lock, "once")


@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (lambda files: files.update({"storage-1.jar": b"What it needs"}), "storage-1.jar"),
        (lambda files: files.update({"more-1.jar": b""}), "more-1.jar"),
        (lambda files: files.pop("delta-1.jar"), "delta-1.jar"),
    ],
    ids=["changed", "one more", "one less"],
)
def test_what_the_lock_does_not_name_is_not_used(
    repository: dict[str, bytes], jars: JarSet, tamper: Callable[[dict[str, bytes]], object], named: str
) -> None:
    tamper(repository)
    for _ in range(2):  # what was refused once does not lie in the cache
        with pytest.raises(StackFailed, match=rf"differ from peer-jars\.lock: {named} "):
            fetch.checked_jars(jars)
    repository.clear()
    repository.update(GOOD)
    assert {jar.name: jar.read_bytes() for jar in fetch.checked_jars(jars).glob("*.jar")} == GOOD


def test_a_jar_that_was_changed_in_the_cache_starts_no_peer(
    repository: dict[str, bytes], jars: JarSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fetch.checked_jars(jars) / "delta-1.jar").write_bytes(b"another engine")
    monkeypatch.setattr(remote, "jars_of", lambda _engine: jars)
    monkeypatch.setattr(remote, "python_of", lambda _engine: "/bin/false")
    with pytest.raises(StackFailed, match=r"delta-1\.jar"):
        RemotePeer(Engine("delta", "", "", "a:b:1"), tmp_path / "peer")


def test_the_lock_is_what_the_repository_has(repository: dict[str, bytes], jars: JarSet) -> None:
    repository["delta-1.jar"] = b"a newer engine"
    jars.write_lock()
    assert (fetch.checked_jars(jars) / "delta-1.jar").read_bytes() == b"a newer engine"


def test_every_peer_in_spark_has_a_lock_that_names_its_package() -> None:
    for engine in ENGINES.values():
        if engine.by_spark:
            _, name, version = engine.package.split(":")
            lines = fetch.jars_of(engine).lock.read_text().splitlines()
            assert f"{name}-{version}.jar" in {line.split()[1] for line in lines}
            assert all(len(line.split()[0]) == 64 for line in lines)
