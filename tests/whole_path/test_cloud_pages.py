"""Settings, commands and programs of docs/how-to/on-azure.md and on-google-cloud.md, in their order, on real services, a
real broker and the servers azure and gcs.  The programs for Spark are run with ``--every-case``: they take half a minute."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_demo.stack import KafkaBroker
from tests.public.test_commands_as_written import written
from tests.public.test_public_names import programs
from tests.support.spark import spark_environment
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
FARES = {("Bern", 1): 7.5, ("Bern", 2): 2.5, ("Ulm", 1): 4.0, ("Ulm", 3): 1.0}
HTTP = {"allow_http": "true"}
"""The servers speak no TLS, which lancewal takes from no variable of a library."""
PATIENCE_S = 300.0


@pytest.mark.parametrize(
    "page", [pytest.param("on-azure", marks=pytest.mark.az), pytest.param("on-google-cloud", marks=pytest.mark.gs)]
)
def test_the_page_leads_to_a_query_in_spark(
    page: str, request: pytest.FixtureRequest, kafka: KafkaBroker, topic_name: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    if page == "on-azure":
        azure = request.getfixturevalue("azure")
        azure.container("lake")
        text, environment = text.replace("acmelake", azure.account), azure.environment
    else:
        gcs = request.getfixturevalue("gcs")
        gcs.bucket("acme-lake")
        environment = gcs.environment
    # Of commands, programs and Spark, which takes settings from the environment too.
    for name, value in {**environment, "LANCEWAL_STORAGE__OPTIONS__ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    text = text.replace("/trips", f"/{topic_name}")
    make_topics(kafka.bootstrap_servers, {topic_name: 2, f"{topic_name}.dead-letters": 1})
    settings, _ = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    tree = yaml.safe_load(settings)
    tree["table"]["topic"] = topic_name
    tree["kafka"]["bootstrap_servers"] = kafka.bootstrap_servers
    tree["storage"] = {"options": HTTP}
    tree |= {"ingest": {"seal_age_s": 0.2}, "flusher": {"merge_interval_s": 0.2}}
    tree["http"] = {"ingest_port": 0, "flusher_port": 0}
    lancewal = Lancewal(tmp_path, tree)
    check, *commands = written(text)
    assert check.startswith("store check ")
    assert "is fit for tables" in lancewal.succeed(*check.split())
    for command in commands:
        lancewal.succeed(*command.split())
    services = [lancewal.start(*command.split()[1:]) for command in re.findall(r"`(lancewal \w+ run)`", text)]
    assert len(services) == 2
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for (city, trip), fare in FARES.items():
        value = json.dumps({"city": city, "trip": trip, "fare": fare})
        producer.produce(topic_name, key=encode_region_key(city), value=value)
    assert producer.flush(60) == 0
    python, spark = programs(text)
    python = python.replace(f'{topic_name}")', f'{topic_name}", storage_options={HTTP})')
    until(lambda: run(python, tmp_path).strip() == str(len(FARES)), lambda: lancewal.tails, poll_s=0.5)
    if request.config.getoption("--every-case"):
        assert spark_sums(spark, tmp_path) == {"Bern": 10.0, "Ulm": 5.0}
    for service in services:
        service.stop()


def spark_sums(program: str, folder: Path) -> dict[str, float]:
    """What the program shows: a table of cities and sums."""
    rows = [line.split("|")[1:3] for line in run(program, folder).splitlines() if line.count("|") == 3]
    return {city.strip(): float(total) for city, total in rows[1:]}


def run(program: str, folder: Path) -> str:
    """What the program prints, in a process of its own."""
    asked = [sys.executable, "-c", program]
    done = subprocess.run(
        asked, env=spark_environment(folder), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
