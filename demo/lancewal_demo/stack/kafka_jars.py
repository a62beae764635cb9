"""Kafka's jars, as ``kafka_jars.ivy.xml`` declares and ``kafka-jars.lock`` pins them."""

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
    """Return the folder with the jars.  The first call on a machine takes about half a minute."""
    return JARS.folder()


if __name__ == "__main__":
    JARS.write_lock()
