"""What a batch may unpack to: in zstd as much as the budget has for it, on a real broker; of other codecs what the topic's own
settings let in, which the service warns of or refuses."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from lancewal_core.errors import InvalidSettings, KafkaForbidden, TopicUnsuitable
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.commands.offset import app
from lancewal_ingest.service.batch_check import BatchCheck, UnboundedBatches
from lancewal_kafka.clients import (
    bounded_consumer_properties,
    lone_consumer_properties,
    unpacked_bytes_max,
    unpacking_bounded,
)
from lancewal_kafka.reread import read_records
from lancewal_kafka.unpacking import StoredBatches
from lancewal_tables.define.create import create_table
from tests.ingest.service.test_service import serving, settings_tree, until
from tests.support.regions import by_number
from tests.support.topics import make_topics

MIB = 1 << 20
BUDGET = 64 * MIB
ROOM = BUDGET // 4 * 3 // 4


def produce_bomb(broker: KafkaBroker, topic: str, nbytes: int, codec: str) -> None:
    """One record, of bytes that pack as well as can be."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "message.max.bytes": 2 * nbytes}
    )
    producer.produce(topic, b" " * nbytes, partition=0)
    assert producer.flush(240) == 0


@pytest.mark.parametrize(
    ("codec", "pack"),
    [("gzip", gzip.compress), *((c, lambda data, c=c: pa.compress(data, c, asbytes=True)) for c in ("lz4_raw", "snappy"))],
)  # fmt: skip
def test_no_codec_packs_better_than_its_bound(codec: str, pack: Callable[[bytes], bytes]) -> None:
    data = bytes(32 * MIB)
    packed = len(pack(data))
    most = StoredBatches(codec.removesuffix("_raw"), packed).unpacked_bytes_max(0)
    assert 0.9 * most <= len(data) <= most + 1000 * 22


def test_the_limit_follows_from_the_budget_and_takes_the_largest_record() -> None:
    def limit(memory: int, record: int = 1_000_000, **client: str) -> int:
        return unpacked_bytes_max(
            unpacking_bounded({n.replace("_", "."): v for n, v in client.items()}, memory, record)
        )

    assert limit(512 * MIB) == 96 * MIB
    assert limit(BUDGET) == ROOM
    assert limit(MIB) == limit(16 * MIB) == 3_000_000 + MIB
    assert limit(BUDGET, 8_000_000) == 24_000_000 + MIB
    assert limit(BUDGET, fetch_max_bytes="50000000") == 50_000_512
    assert limit(BUDGET, receive_message_max_bytes="7000000") == 7_000_000
    assert limit(1 << 40, 1 << 30) == 2**31 - 1
    with pytest.raises(InvalidSettings, match="not an integer"):
        limit(BUDGET, receive_message_max_bytes="many")


@pytest.mark.parametrize("memory", [MIB, BUDGET, 512 * MIB])
@pytest.mark.parametrize("client", [{}, {"fetch.max.bytes": "60000000"}, {"receive.message.max.bytes": "5000000"}])
def test_kafka_s_client_takes_the_limit_whatever_else_is_set(memory: int, client: dict[str, str]) -> None:
    client = unpacking_bounded(client, memory, 1_000_000)
    for properties in (
        bounded_consumer_properties(client, "g", memory // 4),
        *(lone_consumer_properties(client, "g", queue) for queue in (MIB, 32 * MIB)),
    ):
        Consumer(properties).close()


CONSUME = """
import json, sys
from confluent_kafka import Consumer, TopicPartition
from lancewal_demo.stack.resident_memory import resident_bytes
properties, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer, before = Consumer(properties), resident_bytes("VmHWM")
consumer.assign([TopicPartition(topic, 0, 0)])
while not (messages := consumer.consume(1, 1.0)):
    pass
error = messages[0].error()
print(json.dumps([error is not None and error.str(), resident_bytes("VmHWM") - before]))
"""


def test_a_bomb_stops_its_partition_at_the_budget_s_part_and_is_led_past(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    """The producer packs with gzip, of which the client knows no limit; the broker stores zstd."""
    servers = kafka.bootstrap_servers
    make_topics(servers, {topic_name: 1}, {"compression.type": "zstd"})
    make_topics(servers, {f"{topic_name}.dead-letters": 1})
    tree = settings_tree(
        kafka,
        topic_name,
        tmp_path,
        ingest={"memory_bytes_max": BUDGET, "seal_bytes": BUDGET, "unbounded_batches": "refuse"},
    )
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump(tree))
    settings = load_settings(config, {})
    create_table(settings)
    produce_bomb(kafka, topic_name, 3 * ROOM, "gzip")
    good = Producer({"bootstrap.servers": servers})
    good.produce(topic_name, b'{"customer":"a","id":1,"amount":1}', key=encode_region_key("a"))
    assert good.flush(240) == 0
    client = unpacking_bounded({"bootstrap.servers": servers}, BUDGET, 1_000_000)
    properties = json.dumps(bounded_consumer_properties(client, "g", BUDGET // 4))
    done = subprocess.run(
        [sys.executable, "-c", CONSUME, properties, topic_name], capture_output=True, text=True, check=True
    )
    error, grown = json.loads(done.stdout)
    assert "Decompression" in str(error)
    assert grown < 2 * ROOM  # the record alone is three times that, and twice in memory
    with serving(settings) as running:
        until(lambda: 0 in by_number(running.worker.stopped))
        assert by_number(running.worker.stopped)[0].kind == "records_unreadable"
        assert by_number(running.worker.durable) == {0: 0}
    passed = CliRunner().invoke(app, ["reject", f"{topic_name}-0-0", "--config", str(config)])
    assert passed.exit_code == 0, passed.output
    assert "unreadable" in passed.output
    with serving(settings) as running:
        until(lambda: by_number(running.worker.durable) == {0: 2})
        assert by_number(running.worker.stopped) == {}


@pytest.mark.parametrize("codec", ["lz4", "snappy", "gzip"])
def test_of_other_codecs_the_client_unpacks_what_comes(kafka: KafkaBroker, topic_name: str, codec: str) -> None:
    """What ``batch_check`` is for.  Should the client learn a limit, this says so."""
    make_topics(kafka.bootstrap_servers, {topic_name: 1})
    produce_bomb(kafka, topic_name, ROOM + MIB, codec)
    client = unpacking_bounded({"bootstrap.servers": kafka.bootstrap_servers}, BUDGET, 1_000_000)
    found, behind = read_records(client, "g", Region(topic_name, TopicId("id"), 0), Position(0), Position(1))
    assert (len(found.values[0] or b""), behind) == (ROOM + MIB, 1)


def test_a_topic_that_lets_in_what_the_client_has_no_room_for_is_refused_by_the_service(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 1, f"{topic_name}.dead-letters": 1})
    tree = settings_tree(kafka, topic_name, tmp_path, ingest={"unbounded_batches": "refuse"})
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump(tree))
    settings = load_settings(config, {})
    create_table(settings)
    with pytest.raises(TopicUnsuitable, match=r"compression\.type=producer .* 1082142816 bytes"), serving(settings):
        pass


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def check(
    policy: UnboundedBatches, answers: list[StoredBatches | KafkaForbidden], said: list[str], time: Time
) -> BatchCheck:
    def ask() -> StoredBatches:
        answer = answers.pop(0)
        if isinstance(answer, KafkaForbidden):
            raise answer
        return answer

    return BatchCheck("t", ask, 96 * MIB, policy, time, said.append)


LOOSE, TIGHT = StoredBatches("producer", 1_048_588), StoredBatches("uncompressed", 1_048_588)


def test_it_is_said_once_for_each_state_of_the_topic() -> None:
    said, time = list[str](), Time()
    answers: list[StoredBatches | KafkaForbidden] = [LOOSE, LOOSE, TIGHT, LOOSE, KafkaForbidden("no right")]
    made = check("warn", answers, said, time)
    for expected in (1, 1, 1, 2, 3):
        made.look()
        made.look()  # not asked again so soon
        assert len(said) == expected
        time.now += 60
    assert answers == []
    assert "compression.type=producer" in said[0]
    assert said[2] == "no right"


@pytest.mark.parametrize(
    ("stored", "refused"),
    [
        (TIGHT, False),
        (StoredBatches("zstd", 1_048_588), False),
        (StoredBatches("snappy", 1_048_588), False),
        (StoredBatches("lz4", 1_048_588), True),
        (StoredBatches("lz4", 300_000), False),
        (StoredBatches("gzip", 300_000), True),
        (StoredBatches("producer", 90_000), False),
        (StoredBatches("a codec of later", 1_048_588), True),
        (LOOSE, True),
    ],
)
def test_what_is_refused(stored: StoredBatches, refused: bool) -> None:
    time = Time()
    made = check("refuse", [TIGHT, stored], [], time)
    made.look()
    time.now += 60
    if refused:
        with pytest.raises(TopicUnsuitable):
            made.look()
    else:
        made.look()


def test_who_may_not_know_the_topic_s_settings_refuses_it_too() -> None:
    with pytest.raises(KafkaForbidden, match="no right"):
        check("refuse", [KafkaForbidden("no right")], [], Time()).look()
