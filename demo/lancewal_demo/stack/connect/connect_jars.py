"""Jars of Kafka Connect and its plugins, each pinned by a lock of its own.

``worker``: Connect with the source that reads a file.  ``debezium``: the connector for PostgreSQL.  ``apicurio``: converters
and serializers for a schema registry, newest release whose packages can all be had.
"""

from __future__ import annotations

from pathlib import Path

from lancewal_demo.stack.maven_jars import JarSet

_IVY = """<ivy-module version="2.0">
  <info organisation="lancewal" module="connect"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->{}"/>'
_EXCLUDED = '    <exclude module="{}"/>'

_PACKAGES = {
    "worker": (
        ("org.apache.kafka", "connect-runtime", "4.3.1", "default"),
        ("org.apache.kafka", "connect-json", "4.3.1", "default"),
        ("org.apache.kafka", "connect-file", "4.3.1", "default"),
        ("org.slf4j", "slf4j-simple", "1.7.36", "master"),
    ),
    "debezium": (("io.debezium", "debezium-connector-postgres", "3.5.0.Final", "default"),),
    "apicurio": (("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final", "default"),),
}
_OF_WORKER = (
    "kafka-clients", "connect-api", "connect-json", "connect-runtime", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni",
    "jakarta.ws.rs-api",
)  # fmt: skip
"""Packages that plugins take from the worker."""


def _set(name: str) -> JarSet:
    lines = [_DEPENDENCY.format(*package) for package in _PACKAGES[name]]
    lines += [_EXCLUDED.format(module) for module in _OF_WORKER if name != "worker"]
    ivy = _IVY.format(dependencies="\n".join(lines))
    return JarSet(f"connect-{name}", ivy, Path(__file__).with_name(f"{name}.lock"), "once")


SETS = {name: _set(name) for name in _PACKAGES}


def connect_jars() -> dict[str, Path]:
    """Return the folder of each set of jars.  The first call on a machine fetches them, in about two minutes."""
    return {name: jars.folder() for name, jars in SETS.items()}


if __name__ == "__main__":
    for jars in SETS.values():
        jars.write_lock()
