"""Kafka's jars, by ``kafka_jars.ivy.xml`` and ``kafka-jars.lock``."""

from __future__ import annotations

from pathlib import Path

from lancewal_demo.stack.maven_jars import JarSet

JARS = JarSet(
    "kafka",
    Path(__file__).with_name("kafka_jars.ivy.xml").read_text(),
    Path(__file__).with_name("kafka-jars.lock"),
    "44 MB, once, about 40 s",
)


def kafka_jars() -> Path:
    """The folder with the jars; the first call on a machine takes about half a minute."""
    return JARS.folder()


if __name__ == "__main__":
    JARS.write_lock()
