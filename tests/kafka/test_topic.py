"""What is asked of the brokers about a topic: which errors come out, and who is asked again; the client is a twin."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined] # imported there, not listed

from lancewal_core.errors import (
    ASKS_FOR_A_PERSON,
    InvalidSettings,
    KafkaForbidden,
    KafkaRefused,
    KafkaUnavailable,
    LancewalError,
    TopicMissing,
)
from lancewal_kafka import topic as topic_module
from lancewal_kafka.topic import TopicInspector

NO_LEADER = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
]
NOT_ALLOWED = [
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
]


def answered(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(code: int, text: str = "") -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code, text) if text else KafkaError(code)))
    return future


class Offset:
    offset = 7


class Admin:
    """As librdkafka's, whose answers a test has scripted."""

    def __init__(self, inspector: TopicInspector) -> None:
        self.inspector = inspector
        self.described = failed(KafkaError._TIMED_OUT)
        self.electing: list[int] = []
        """Codes with which partition 1 fails, one a question."""
        self.hears = ""
        self.asked = 0
        self.learned = 0

    def describe_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
        return {"t": self.described}

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        return dict.fromkeys(resources, self.described)

    def describe_consumer_groups(self, _: object, **__: object) -> dict[str, Future[Any]]:
        return {"g": self.described}

    def list_offsets(self, of: dict[TopicPartition, Any], **_: object) -> dict[TopicPartition, Future[Any]]:
        self.asked += 1
        found = {at: answered(Offset()) for at in of}
        if self.electing:
            found[TopicPartition("t", 1)] = failed(self.electing.pop(0))
        return found

    def list_topics(self, timeout: float) -> None:
        self.learned += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "still nobody"))

    def poll(self, _: float) -> None:
        if self.hears:
            self.inspector._hear(KafkaError(KafkaError._TRANSPORT, self.hears))


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "_ELECTION_PAUSE_S", 0.0)


def scripted(election_s: float | None = None) -> tuple[TopicInspector, Admin]:
    inspector = TopicInspector({"bootstrap.servers": "127.0.0.1:1"}, 5.0, election_s=election_s)
    admin = Admin(inspector)
    inspector._admin = admin  # type: ignore[assignment] # a twin of what is asked
    return inspector, admin


@pytest.mark.parametrize("code", NO_LEADER)
@pytest.mark.usefixtures("no_pause")
def test_a_partition_without_a_leader_is_asked_again(code: int) -> None:
    """As right behind a topic's creation, when the broker knows the topic and does not lead its partitions yet."""
    inspector, admin = scripted(election_s=math.inf)
    admin.electing = [code, code]
    assert inspector.ends("t", range(3)) == {0: 7, 1: 7, 2: 7}
    assert admin.asked == 3


@pytest.mark.usefixtures("no_pause")
def test_partitions_of_several_topics_are_asked_for_at_once() -> None:
    inspector, admin = scripted(election_s=math.inf)
    admin.electing = [KafkaError.NOT_LEADER_FOR_PARTITION]
    assert inspector.ends_of({"t": range(2), "u": range(1)}) == {"t": {0: 7, 1: 7}, "u": {0: 7}}
    assert admin.asked == 4, "one question for each topic, and all of them again"


def test_who_asks_again_anyway_does_not_wait_for_an_election() -> None:
    inspector, admin = scripted(election_s=0)
    admin.electing = [KafkaError.NOT_LEADER_FOR_PARTITION]
    with pytest.raises(KafkaUnavailable, match="a partition has no leader"):
        inspector.begins("t", range(3))
    assert admin.asked == 1


@pytest.mark.usefixtures("no_pause")
def test_no_other_error_of_a_partition_is_asked_again() -> None:
    inspector, admin = scripted(election_s=math.inf)
    admin.electing = [KafkaError._TIMED_OUT, KafkaError._TIMED_OUT]
    with pytest.raises(KafkaUnavailable, match="Timed out"):
        inspector.since("t", range(3), 0)
    assert admin.asked == 1


def test_who_knows_no_controller_asks_the_cluster_again() -> None:
    """As librdkafka's while no controller is known: only an answer about the cluster tells it."""
    inspector, admin = scripted()
    admin.described = failed(KafkaError._TIMED_OUT, "Failed while waiting for controller")
    with pytest.raises(KafkaUnavailable, match="waiting for controller"):
        inspector.identify("t")
    assert admin.learned == 1


@pytest.mark.parametrize(
    ("code", "kind", "texts"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing, ["'t' does not exist", "127.0.0.1:1", "create it"]),
        (KafkaError._UNKNOWN_TOPIC, TopicMissing, ["'t' does not exist"]),
        (KafkaError._UNKNOWN_PARTITION, TopicMissing, ["'t' does not exist"]),
        *(
            (code, KafkaForbidden, ["do not allow it", "Grant this user the rights on topic 't'", "trust.md"])
            for code in NOT_ALLOWED
        ),
        (KafkaError._TIMED_OUT, KafkaUnavailable, ["127.0.0.1:1", "Timed out", "check kafka.bootstrap_servers"]),
        (KafkaError.NOT_CONTROLLER, KafkaUnavailable, ["127.0.0.1:1 answers with an error", "try again"]),
    ],
)
def test_an_error_is_the_same_whatever_was_asked(code: int, kind: type[LancewalError], texts: list[str]) -> None:
    inspector, admin = scripted(election_s=0)
    admin.described = failed(code)
    for ask in (
        lambda: inspector.identify("t"),
        lambda: inspector.configuration("t"),
        lambda: inspector.check_right("t", AclOperation.READ),
        lambda: inspector.check_right_on_group("t", "g", AclOperation.READ),
        lambda: inspector.members("t", "g"),
        lambda: inspector.ends("t", [1]),
    ):
        admin.electing = [code]
        with pytest.raises(LancewalError) as found:
            ask()
        assert type(found.value) is kind
        assert [text for text in texts if text not in str(found.value)] == []
        assert found.value.where["topic"] == "t"
        assert "topic t topic t" not in str(found.value)


def test_an_error_without_a_text_is_told_by_its_code() -> None:
    inspector, admin = scripted(election_s=0)
    admin.described = failed(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "ConsumerGroupDescribe: ")
    with pytest.raises(
        KafkaUnavailable,
        match="ConsumerGroupDescribe: Broker: Coordinator load in progress; the error may be transient",
    ):
        inspector.members("t", "g")


@pytest.mark.parametrize(
    "heard",
    [
        "sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed during authentication due to invalid "
        "credentials with SASL mechanism SCRAM-SHA-512 (after 310ms in state AUTH_REQ)",
        "sasl_ssl://b:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
        "certificate could not be verified",
        "ssl://b:1/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
        "ssl://b:1/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert 116",
        "ssl://b:1/bootstrap: SSL handshake failed: error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert number 48",
    ],
)
def test_who_is_refused_is_told_so_though_the_question_times_out(heard: str) -> None:
    inspector, admin = scripted()
    admin.hears = heard
    with pytest.raises(KafkaRefused, match="do not trust each other") as raised:
        inspector.identify("t")
    assert heard in str(raised.value)
    assert (raised.value.kind, raised.value.exit_code) == ("kafka_refused", ASKS_FOR_A_PERSON)


@pytest.mark.parametrize("heard", ["", "b:1/bootstrap: Connect to ipv4#b:1 failed: Connection refused"])
def test_who_is_silent_has_refused_nobody(heard: str) -> None:
    inspector, admin = scripted()
    admin.hears = heard
    with pytest.raises(KafkaUnavailable, match="does not answer") as raised:
        inspector.identify("t")
    assert not isinstance(raised.value, KafkaRefused)


def test_who_gets_no_answer_says_what_the_client_heard_meanwhile() -> None:
    inspector, admin = scripted(election_s=0)
    admin.hears = "an older fault"
    inspector.ends("t", [0])
    admin.hears = ""
    with pytest.raises(KafkaUnavailable) as silent:
        inspector.identify("t")
    assert "older" not in str(silent.value)
    admin.hears = "127.0.0.1:1/1: Connection refused"
    with pytest.raises(KafkaUnavailable, match="Connection refused"):
        inspector.identify("t")


def test_nobody_is_in_a_group_that_does_not_exist() -> None:
    inspector, admin = scripted()
    admin.described = failed(KafkaError.GROUP_ID_NOT_FOUND)
    assert inspector.members("t", "g") == ()


def test_a_property_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(InvalidSettings, match=r"kafka\.options.*no\.such\.thing"):
        TopicInspector({"bootstrap.servers": "127.0.0.1:1", "no.such.thing": "1"})
