"""The local stack does what the rest of the tests lean on: crashes keep data, ports stay, nothing is left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from lancewal_core.store.obstore import open_store
from lancewal_demo.stack import KafkaBroker, Process, S3Server, StackFailed, cache, spark_java_home
from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.trust_store import PASSWORD, key_store, machine_certificates

# -- Kafka -----------------------------------------------------------------------------------------------------


def make_topic(broker: KafkaBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)


def produce(broker: KafkaBroker, topic: str, values: list[bytes]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert [failure for failure in failures if failure is not None] == []


def consume(broker: KafkaBroker, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "error"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes | None] = []
    deadline = time.monotonic() + 240
    while len(got) < count and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            got.append(message.value())
    consumer.close()
    return got


@pytest.mark.kafka
def test_produces_and_consumes(kafka: KafkaBroker, topic_name: str) -> None:
    make_topic(kafka, topic_name)
    values = [b"row %d" % number for number in range(1000)]
    produce(kafka, topic_name, values)
    assert consume(kafka, topic_name, 1000) == values


@pytest.mark.kafka
def test_no_topic_is_made_by_producing(kafka: KafkaBroker, topic_name: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": 2000})
    delivered: list[bool] = []
    producer.produce(topic_name, b"x", on_delivery=lambda error, _: delivered.append(error is None))
    producer.flush(20)
    assert delivered == [False]
    assert topic_name not in AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics


@pytest.mark.kafka
def test_a_killed_broker_comes_back_with_its_data_on_its_port(tmp_path: Path, topic_name: str) -> None:
    with KafkaBroker(tmp_path / "kafka") as broker:
        address = broker.bootstrap_servers
        make_topic(broker, topic_name)
        produce(broker, topic_name, [b"before"])
        broker.kill()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": address, "log_level": 2}).list_topics(timeout=1)
        broker.restart()
        assert broker.bootstrap_servers == address
        produce(broker, topic_name, [b"after"])
        assert consume(broker, topic_name, 2) == [b"before", b"after"]
    (port,) = free_ports(1)
    topics = {topic_name: 1, "more": 3}
    with KafkaBroker(str(tmp_path / "kafka"), port=port, topics=topics) as again:  # another takes up the same folder
        assert again.bootstrap_servers == f"127.0.0.1:{port}"
        assert consume(again, topic_name, 2) == [b"before", b"after"]
        there = AdminClient({"bootstrap.servers": again.bootstrap_servers}).list_topics(timeout=60).topics
        assert {name: len(there[name].partitions) for name in topics} == topics
        with pytest.raises(StackFailed, match=f"port {port} of 127.0.0.1 is taken"):
            KafkaBroker(tmp_path / "other", port=port).start()


@pytest.mark.kafka
def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "kafka", {"log.cleaner.threads": "many"})
    with pytest.raises(StackFailed, match=r"(?s)kafka\.log.*log\.cleaner\.threads"):
        broker.start()


# -- S3 --------------------------------------------------------------------------------------------------------


def open_bucket(server: S3Server, bucket: str) -> S3Store:
    return S3Store(
        server.bucket(bucket),
        endpoint=server.endpoint,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "10s"},
    )


@pytest.mark.s3
def test_puts_and_gets(s3: S3Server) -> None:
    store = open_bucket(s3, "plain")
    obstore.put(store, "folder/object", b"content")
    assert obstore.get(store, "folder/object").bytes().to_bytes() == b"content"
    assert [item["path"] for batch in obstore.list(store) for item in batch] == ["folder/object"]


@pytest.mark.s3
def test_a_conditional_put_has_one_winner(s3: S3Server) -> None:
    store = open_bucket(s3, "conditional")
    etag = obstore.put(store, "object", b"first", mode="create")["e_tag"]
    assert etag is not None
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "object", b"late", mode="create")
    obstore.put(store, "object", b"second", mode={"e_tag": etag})
    with pytest.raises(PreconditionError):
        obstore.put(store, "object", b"stale", mode={"e_tag": etag})
    assert obstore.get(store, "object").bytes().to_bytes() == b"second"


@pytest.mark.s3
def test_the_environment_is_enough_to_find_the_server(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store = S3Store(s3.bucket("by-environment"))
    obstore.put(store, "object", b"content")
    assert obstore.get(open_bucket(s3, "by-environment"), "object").bytes().to_bytes() == b"content"
    for options in ({}, {"timeout": "20s"}):
        assert open_store("s3://by-environment", options).get("object") == b"content"


@pytest.mark.s3
def test_a_killed_server_comes_back_with_its_objects_on_its_port(tmp_path: Path) -> None:
    with S3Server(tmp_path) as server:
        endpoint = server.endpoint
        store = open_bucket(server, "kept")
        etag = obstore.put(store, "object", b"content", mode="create")["e_tag"]
        server.kill()
        assert not listens(int(endpoint.rsplit(":", 1)[1]))
        server.restart()
        assert server.endpoint == endpoint
        kept = obstore.get(store, "object")
        assert kept.bytes().to_bytes() == b"content"
        assert kept.meta["e_tag"] == etag


@pytest.mark.s3
def test_a_file_system_without_attributes_is_served_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancewal_demo.stack.s3_server._takes_attributes", lambda _: False)
    with S3Server(tmp_path) as server:
        store = open_bucket(server, "sidecar")
        etag = obstore.put(store, "object", b"content", mode="create")["e_tag"]
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "object", b"late", mode="create")
        assert obstore.head(store, "object")["e_tag"] == etag
    assert os.listxattr(tmp_path / "buckets" / "sidecar" / "object") == []


# -- processes -------------------------------------------------------------------------------------------------

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def says_up(log: Path) -> Callable[[], bool]:
    return lambda: log.exists() and "up" in log.read_text()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_stop_ends_a_process_by_sigterm(tmp_path: Path) -> None:
    process = Process(SLEEP, tmp_path / "log")
    process.wait_until(says_up(tmp_path / "log"), "the child", 120)
    process.stop()
    assert process.exit_code == -signal.SIGTERM


def test_stop_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    process = Process(STUBBORN, tmp_path / "log")
    process.wait_until(says_up(tmp_path / "log"), "the child", 120)
    process.stop(grace_s=0.2)
    assert process.exit_code == -signal.SIGKILL


def test_a_process_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "import sys; print('the reason'); sys.exit(3)"], tmp_path / "log")
    with pytest.raises(StackFailed, match=r"(?s)exit code 3.*the reason"):
        process.wait_until(lambda: False, "the child", 120)


def test_a_process_must_not_be_tied_to_a_passing_thread(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def start() -> None:
        try:
            Process(SLEEP, tmp_path / "log")
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    parent_code = (
        "import sys, time; from pathlib import Path; from lancewal_demo.stack import Process\n"
        f"child = Process({SLEEP!r}, Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, env=environment) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            assert eventually(says_up(tmp_path / "log"))
            assert not is_gone(child)
        finally:
            parent.kill()
    assert eventually(lambda: is_gone(child))


# -- the rest --------------------------------------------------------------------------------------------------


def test_a_cache_entry_is_filled_once_and_never_seen_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[Path] = []

    def broken(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("no space")

    def fill(folder: Path) -> None:
        calls.append(folder)
        assert not list(folder.iterdir())
        (folder / "whole").write_text("x")

    with pytest.raises(OSError, match="no space"):
        cache.entry("thing", broken)
    assert not (tmp_path / "lancewal" / "thing").exists()
    threads = [threading.Thread(target=cache.entry, args=("thing", fill)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert [file.name for file in cache.entry("thing", fill).iterdir()] == ["whole"]


def test_free_ports_lie_outside_the_range_of_outgoing_connections() -> None:
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert [port for port in ports if lowest <= port <= highest] == []


@pytest.mark.skipif(not machine_certificates(), reason="this machine has no bundle of certificates")
def test_java_reads_the_machine_s_certificates(tmp_path: Path) -> None:
    certificates = machine_certificates()
    (tmp_path / "trusted.jks").write_bytes(key_store(certificates))
    (tmp_path / "List.java").write_text(
        "import java.io.*; import java.security.*; import java.util.*; class List {"
        "public static void main(String[] a) throws Exception {"
        "  KeyStore store = KeyStore.getInstance(new File(a[0]), a[1].toCharArray());"  # checks the digest
        "  for (String alias : Collections.list(store.aliases()))"
        "    System.out.println(HexFormat.of().formatHex("
        '      MessageDigest.getInstance("SHA-256").digest(store.getCertificate(alias).getEncoded()))); } }'
    )
    if shutil.which("javac") is None:
        pytest.skip("only a complete JDK runs a source file")
    done = subprocess.run(
        ["java", tmp_path / "List.java", tmp_path / "trusted.jks", PASSWORD],
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == sorted(hashlib.sha256(der).hexdigest() for der in certificates), done.stderr


def test_java_for_spark_starts_with_the_arguments_that_spark_gives() -> None:
    java = spark_java_home() / "bin" / "java"
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
