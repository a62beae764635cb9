"""``python -m lancewal_demo.stack missing|fetch kafka|s3|azure|gcs|registry|connect...``: commands that dev.py runs first.

``missing`` prints the tool chains for the named servers that must come from wheels ("java", "go", "node"), one a line.
``fetch`` fills the cache for the named servers.  If Azure's or Google's cannot be had, it says so and goes on: tests of their
stores are then skipped.  Tests of a schema registry or of Kafka Connect fail then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lancewal_demo.stack import java, kafka_jars, versitygw
from lancewal_demo.stack.clouds import azurite, gcs_front, node
from lancewal_demo.stack.connect.connect_jars import connect_jars
from lancewal_demo.stack.go import installed_go
from lancewal_demo.stack.processes import StackFailed
from lancewal_demo.stack.registry.apicurio import apicurio

_OPTIONAL = {"azure": "are skipped", "gcs": "are skipped", "registry": "fail", "connect": "fail"}
"""Servers without which others are fetched all the same, and what becomes of their tests."""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["missing", *servers]:
            if java.installed_java() is None:
                print("java")
            built = {"s3": versitygw.is_built, "gcs": gcs_front.is_built}
            if any(not built[server]() for server in built.keys() & servers) and installed_go() is None:
                print("go")
            if "azure" in servers and node.installed_node() is None:
                print("node")
        case ["fetch", *servers]:
            try:
                java.find_java()
                # One waits for the network, the other one compiles.
                with ThreadPoolExecutor() as pool:
                    fetches: dict[str, Callable[[], object]] = {
                        "kafka": kafka_jars.kafka_jars,
                        "s3": versitygw.versitygw,
                        "azure": azurite.azurite,
                        "gcs": gcs_front.gcs_front,
                        "registry": apicurio,
                        "connect": connect_jars,
                    }
                    for server, fetched in [(server, pool.submit(fetches[server])) for server in servers]:
                        try:
                            fetched.result()
                        except StackFailed as error:
                            if server not in _OPTIONAL:
                                raise
                            print(f"{error}\nTests of {server} {_OPTIONAL[server]}.", file=sys.stderr)
            except StackFailed as error:
                print(error, file=sys.stderr)
                return 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


sys.exit(main(sys.argv[1:]))
