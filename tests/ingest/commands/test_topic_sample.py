"""``lancewal config check`` on a topic's newest records: real records on a broker, settings as they are written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lancewal_core.cli import program as cli
from lancewal_demo.stack import KafkaBroker
from tests.support.debezium import samples
from tests.support.topics import make_topics

pytestmark = pytest.mark.kafka

COLUMNS = "{region: string, id: int64, n: {type: int64, json: number_text, field: number}}"
TABLE = f"columns: {COLUMNS}, primary_key: [region, id], region_key: [region]"
OPEN = "Format, columns, keys and partitioner were compared with no record."
FRAMED = b"\x00\x00\x00\x00\x07\x02hunter2"


@pytest.fixture
def config(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> Path:
    file = tmp_path / "lancewal.yaml"
    write(file, kafka.bootstrap_servers, topic_name)
    return file


def write(file: Path, servers: str, topic: str, table: str = TABLE) -> None:
    more = f", {table}" if table else ""
    file.write_text(f"kafka: {{bootstrap_servers: '{servers}'}}\ntable: {{topic: {topic}{more}}}\n")


def said(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(("config", "check", "-c", str(file))) == 0
    valid, _, rest = capsys.readouterr().out.partition("\n")
    assert valid == "The settings are valid."
    return rest


def send(kafka: KafkaBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for value in values:
        producer.produce(topic, value, b"north")
    producer.flush()


def good(id_: int) -> bytes:
    return json.dumps({"region": "north", "id": id_, "number": "7"}).encode()


def test_newest_records(kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(config, capsys) == f"Topic {topic_name} does not exist. {OPEN}\n"
    make_topics(kafka.bootstrap_servers, {topic_name: 3})
    assert said(config, capsys) == f"Topic {topic_name} has no record yet. {OPEN}\n"
    send(kafka, topic_name, *[FRAMED] * 20, *map(good, range(7)), b"{", FRAMED, FRAMED)
    first, second, third = said(config, capsys).splitlines()
    assert first == f"Topic {topic_name}: 7 of the newest 10 records would be rows."
    assert second.startswith("  2 wrong_format: expected plain JSON; the value is of a schema registry")
    assert "table.format.value" in second
    assert third.startswith("  1 not_json: ")
    assert "hunter2" not in second + third

    ignores = f"{TABLE}, on_unknown_column: ignore, metadata_columns: {{at: kafka.offset}}"
    write(config, kafka.bootstrap_servers, topic_name, table=ignores)
    assert said(config, capsys).splitlines()[0] == first

    write(config, kafka.bootstrap_servers, topic_name, table="")  # the contract has the columns
    found = said(config, capsys)
    assert found.startswith(f"Topic {topic_name}: 2 of the newest 10 records are known to be of another format.\n")
    assert "2 wrong_format" in found
    assert found.endswith(f"are not set, so no record was decoded. {OPEN}\n")


def test_keys_tell_another_partitioner(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client on librdkafka with its default.  Keys of three partitions tell it together."""
    make_topics(kafka.bootstrap_servers, {topic_name: 5})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    regions = [f"r{n}" for n in range(30)]
    for region in regions:
        producer.produce(topic_name, json.dumps({"region": region, "id": 1, "number": "7"}), region)
    producer.flush()
    lie: dict[int, list[str]] = {}
    for region in regions:
        lie.setdefault(zlib.crc32(region.encode()) % 5, []).append(region)
    expected = sum(min(len(found), 10) for found in lie.values())
    _, second = said(config, capsys).splitlines()
    assert " misrouted: " in second
    assert (
        f"All of the {expected} keys around it lie where crc32 puts them. Make the table with table.partitioner"
        in second
    )
    write(config, kafka.bootstrap_servers, topic_name, f"{TABLE}, partitioner: crc32")
    assert said(config, capsys) == f"Topic {topic_name}: 10 of the newest 10 records would be rows.\n"


def test_records_behind_one_that_would_stop_its_partition(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 1})
    columns = TABLE.replace("{type: int64, json: number_text, field: number}", "int64")
    write(config, kafka.bootstrap_servers, topic_name, f"{columns}, format: {{value: connect-json}}")
    fields = [
        {"field": name, "type": kind} for name, kind in (("region", "string"), ("id", "int64"), ("gate", "string"))
    ]
    payload = {"region": "north", "id": 1, "gate": "A"}
    send(
        kafka,
        topic_name,
        *[json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()] * 3,
    )
    first, second = said(config, capsys).splitlines()
    assert first == f"Topic {topic_name}: 0 of the newest 3 records would be rows."
    assert second.startswith("  3 unknown_column: ")


def test_events_of_a_connector(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows and deletes count as rows; a record without a key, a truncate, and a decimal of another mode, are named."""
    make_topics(kafka.bootstrap_servers, {topic_name: 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    row = b'{"before":null,"after":{"id":1},"source":{"version":"3"},"op":"c"}'
    truncate = b'{"before":null,"after":null,"source":{"version":"3"},"op":"t"}'
    precise = row.replace(b'"id":1', b'"id":1,"amount":"ASw="')
    for key, value in ((b'{"id":1}', row), (b'{"id":1}', None), (b"h", b'{"ts_ms":1}'), (None, row), (None, truncate)):
        producer.produce(topic_name, value, key)
    producer.produce(topic_name, precise, b'{"id":1}')
    producer.flush()
    columns = 'columns: {id: int64, amount: "decimal128(12, 2)"}'
    table = f"{columns}, primary_key: [id], region_key: [id], format: {{key: json-compact, envelope: debezium}}"
    write(config, kafka.bootstrap_servers, topic_name, table=table)
    first, second, *rest = said(config, capsys).splitlines()
    assert first == f"Topic {topic_name}: 2 of the newest 6 records would be rows."
    assert second == "  1 passed over: neither rows nor bad, such as heartbeats"
    assert [line.split(":")[0] for line in rest] == ["  1 key_form", "  1 truncate", "  1 type", "  connector"]
    assert "message.key.columns" in rest[0]
    assert "Set decimal.handling.mode=string in the connector" in rest[2]
    assert "the record has no key" in rest[3]


def test_a_proposal_from_the_newest_records(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``config check`` takes the proposed file, and says the same about the connector."""
    config.write_text(f"kafka: {{bootstrap_servers: '{kafka.bootstrap_servers}'}}\n")

    def proposed(code: int = 0) -> str:
        assert cli.run(("config", "init", "--from-debezium", topic_name, "-c", str(config))) == code
        out, err = capsys.readouterr()
        return err if code else out

    assert "does not exist" in proposed(2)
    make_topics(kafka.bootstrap_servers, {topic_name: 3}, {"cleanup.policy": "compact"})
    assert "no record yet" in proposed(2)
    records = samples("postgres_json", "accounts")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for record in records:
        producer.produce(topic_name, record.value, record.key)
    producer.flush()
    text = proposed()
    assert f"# Proposed from the newest {len(records)} records of topic {topic_name}." in text
    config.write_text(text)
    first, *rest = said(config, capsys).splitlines()
    assert first == f"Topic {topic_name}: 10 of the newest 10 records would be rows."
    assert rest
    assert all(line.startswith("  connector: ") for line in rest)
    above = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    assert all(line.removeprefix("  connector: ") in above for line in rest)
    config.write_text(text.replace("envelope: debezium", "envelope: debezium-unwrapped"))
    wrong = "table.format.envelope is debezium-unwrapped, and the connector's records ask for debezium"
    assert f"  connector: {wrong}" in said(config, capsys)


def test_a_file_for_each_topic_of_a_connector(
    kafka: KafkaBroker, topic_name: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pattern is anchored, and takes no dead letters.  A topic without a table has a reason.  No file is overwritten."""
    tables = ("accounts", "nopk", "keychg")
    names = {table: f"{topic_name}.public.{table}" for table in tables}
    others = [f"{topic_name}.publicity", f"x{topic_name}.public.accounts", f"__{topic_name}.public.keychg"]
    others.append(f"{names['accounts']}.dead-letters")
    make_topics(kafka.bootstrap_servers, dict.fromkeys([*names.values(), *others], 1))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for table, name in names.items():
        for record in samples("postgres_json", table):
            producer.produce(name, record.value, record.key)
    producer.flush()
    config.write_text(f"kafka: {{bootstrap_servers: '{kafka.bootstrap_servers}'}}\n")
    folder = tmp_path / "a" / "b"

    def ran(pattern: str, to: Path = folder, code: int = 0) -> str:
        asked = ("config", "init", "--from-debezium", pattern, "--to", str(to), "-c", str(config))
        assert cli.run(asked) == code
        out, err = capsys.readouterr()
        return err if code else out

    first, *lines = ran(f"{topic_name}.public.*").splitlines()
    assert first == "3 topics matched:"
    assert [line.split(":")[0].strip() for line in lines] == sorted(names.values())
    assert [line for line in lines if "message.key.columns" in line] == [lines[2]]
    assert sorted(file.name for file in folder.iterdir()) == [f"{names[t]}.yaml" for t in ("accounts", "keychg")]
    before = (folder / f"{names['keychg']}.yaml").read_bytes()
    assert said(folder / f"{names['keychg']}.yaml", capsys).startswith(f"Topic {names['keychg']}: 4 of the newest 4 ")
    first, again = ran(f"*{topic_name}.public.keychg").splitlines()
    assert first == "1 topic matched:"
    assert again.endswith("is there already")
    assert (folder / f"{names['keychg']}.yaml").read_bytes() == before
    assert "no topic matches" in ran(f"{topic_name}.publi", code=2)
    assert f"--to {config}: " in ran(names["keychg"], config, code=2)
    config.write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    assert "listing topics" in ran("*", code=3)


def test_what_cannot_be_looked_at(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 1})
    send(kafka, topic_name, *map(good, range(4)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for gone, says in ((2, "2 of the newest 2 records would be rows."), (4, "has no record yet.")):
        for done in admin.delete_records([TopicPartition(topic_name, 0, gone)]).values():
            done.result(30)
        assert says in said(config, capsys)
    write(config, "127.0.0.1:1", topic_name)
    assert f"Topic {topic_name} was not looked at: " in said(config, capsys)
    config.write_text(f"table: {{topic: {topic_name}}}\n")
    assert said(config, capsys) == f"No topic was looked at, since kafka.bootstrap_servers is not set. {OPEN}\n"
    config.write_text("registry: {url: 'http://127.0.0.1:1'}\n")
    names = "table.topic and kafka.bootstrap_servers are"
    assert said(config, capsys) == f"No topic was looked at, since {names} not set. {OPEN}\n"


def test_the_contract_of_a_table_decides_and_not_the_settings(
    kafka: KafkaBroker, topic_name: str, config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 2})
    uri = str(tmp_path / "table")
    write(config, kafka.bootstrap_servers, topic_name, f"{TABLE}, uri: {uri}")
    declared = f"Topic {topic_name}: "
    new = b'{"region": "north", "id": 1, "number": "7", "note": "x"}'
    send(kafka, topic_name, good(0), new)
    assert said(config, capsys).startswith(f"{declared}1 of the newest 2 records would be rows.\n")
    assert cli.run(("table", "create", "-c", str(config))) == 0
    assert cli.run(("table", "alter", "-c", str(config), "--add-column", "note: string")) == 0
    capsys.readouterr()
    version, found = said(config, capsys).splitlines()
    assert version == f"The table at {uri} is there: version 2 of its contract says what its records are."
    assert found == f"{declared}2 of the newest 2 records would be rows."

    config.write_text(
        f"kafka: {{bootstrap_servers: '{kafka.bootstrap_servers}'}}\ntable: {{uri: {uri}, partitioner: crc32}}\n"
    )
    _, refused, found = said(config, capsys).splitlines()
    assert refused.startswith("  Services refuse these settings: table.partitioner")
    assert found == f"{declared}2 of the newest 2 records would be rows."
