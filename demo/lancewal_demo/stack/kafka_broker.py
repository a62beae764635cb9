"""A real Kafka broker on 127.0.0.1: one KRaft node, its data in one folder.

The settings fit a single node that is restarted often and whose consumer groups must notice a death within seconds.
Topics are never made by accident: ``auto.create.topics.enable`` is false.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from lancewal_demo.stack.java import find_java
from lancewal_demo.stack.kafka_jars import kafka_jars
from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.processes import Process, Restartable, StackFailed, run_logged

#: Little memory and a quick start; a benchmark that wants the broker at its best passes its own.
QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

_START_TIMEOUT_S = 90.0

_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A compaction test should not wait 15 s for the cleaner.
    "log.cleaner.backoff.ms": "500",
    # After a crash the controller refuses the broker until the session of its former life has run out (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

_QUICK_GROUPS = {
    # Classic groups: the client asks for its session timeout, the broker's lower bound is 6 s by default.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # KIP-848 groups: the broker decides; by default a death is noticed after 45 s.
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
}


class KafkaBroker(Restartable):
    """A broker that runs inside ``with``.  ``kill``, ``stop`` and ``restart`` keep the data and the ports."""

    def __init__(
        self,
        directory: Path | str,
        config: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = QUICK_START,
        listeners: Mapping[str, int] | None = None,
        port: int | None = None,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        """``config`` is added to the broker's settings, and wins.  A ``directory`` with data in it is taken up.

        ``listeners`` are ports of further listeners by name; ``config`` says their security protocols.  ``port`` is a free one
        unless it is given; ``topics`` (name to number of partitions) are there once it has started.
        """
        self.directory = Path(directory)
        self._config = dict(config or {})
        self._jvm_options = tuple(jvm_options)
        self._listeners = dict(listeners or {})
        self._topics = dict(topics or {})
        free, self._controller_port = free_ports(2)
        self._wanted_port = port
        self._port = free if port is None else port

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "kafka.log"

    def start(self) -> None:
        """Format the folder if it is new, start, and wait until the broker answers an admin request."""
        if self._wanted_port is not None and listens(self._wanted_port):
            raise StackFailed(
                f"port {self._wanted_port} of 127.0.0.1 is taken: stop the program that listens there, or give another port"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "server.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        if not (self._data / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
            # In one argument with its name: about one id in 64 begins with a dash and would be taken for an option.
            format_ = [*self._java("kafka.tools.StorageTool"), "format", f"--cluster-id={cluster}", "-c", settings]
            run_logged(format_, self.log, "formatting Kafka's folder")
        self._process = Process([*self._java("kafka.Kafka"), settings], self.log)
        self._process.wait_until(lambda: listens(self._port), "the Kafka broker", _START_TIMEOUT_S)
        self._process.wait_until(self._answers, "the Kafka broker", _START_TIMEOUT_S)
        self._make_topics()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _settings(self) -> dict[str, str]:
        broker, controller = (f"127.0.0.1:{port}" for port in (self._port, self._controller_port))
        more = "".join(f",{name}://127.0.0.1:{port}" for name, port in self._listeners.items())
        return {
            **_SINGLE_NODE,
            **_QUICK_GROUPS,
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}{more}",
            "advertised.listeners": f"PLAINTEXT://{broker}{more}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._data),
            **self._config,
        }

    def _java(self, main: str) -> list[str | Path]:
        return [find_java().program, *self._jvm_options, *_LOGGING, "-cp", f"{kafka_jars()}/*", main]

    def _make_topics(self) -> None:
        if not self._topics:
            return
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        there = admin.list_topics(timeout=_START_TIMEOUT_S).topics
        new = [NewTopic(name, partitions, 1) for name, partitions in self._topics.items() if name not in there]
        for made in admin.create_topics(new).values() if new else ():
            made.result()

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        # log_level 2: librdkafka reports refused connections at level 3, and while the broker starts they are normal.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        try:
            return bool(admin.list_topics(timeout=2.0).brokers)
        except KafkaException:
            return False
