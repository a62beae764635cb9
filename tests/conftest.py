"""Fixtures of all tests: one broker, server of each store and Spark session for each run, a fresh topic name, a seed; and
the run's budget.

A test that asks for a server gets its mark, by which ``dev.py test`` divides a run among processes.  Two processes have
the tests of servers, each with servers of its own.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
import structlog
from hypothesis import settings

from dev import WITH_SERVERS
from tests.support import budget, durations, fuzzing, turns

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker, S3Server
    from lancewal_demo.stack.clouds import AzureServer, GcsServer
    from lancewal_demo.stack.processes import Restartable
    from lancewal_demo.stack.registry import RegistryServer
    from tests.support.pgbouncer import PgBouncer
    from tests.support.postgres import PostgresServer
    from tests.support.spark import LocalSpark

# No deadline: the machine is shared, and a slow example is no failure.  Failures print a blob that repeats them.
# A run has the same few examples each time, so that a change is judged by what its author saw; --every-case draws others.
settings.register_profile("lancewal", deadline=None, print_blob=True, derandomize=True, max_examples=40)
settings.register_profile("every case", deadline=None, print_blob=True, max_examples=200)
settings.load_profile("lancewal")

Server = TypeVar("Server", bound="Restartable")

_SERVERS = {
    "kafka": "kafka",
    "mortal_kafka": "kafka",
    "registry": "kafka",
    "s3": "s3",
    "azure": "az",
    "gcs": "gs",
    "spark": "spark",
}
"""Fixtures, and their marks, which tests that start a server of their own carry too."""
_WORDS = {"kafka": "kafka", "s3": "s3", "az": "azure", "gs": "gcs"}
"""Marks of servers, and the word that each file with such tests contains."""


def pytest_addoption(parser: pytest.Parser) -> None:
    budget.add_options(parser)
    durations.add_option(parser)
    fuzzing.add_option(parser)
    parser.addoption(
        "--every-case", action="store_true", help="all cases of tests whose cases take turns, many examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    plugin = budget.Budget(config.getoption("--budget-minutes"), quick=config.getoption("--quick"))
    config.pluginmanager.register(plugin, "lancewal-budget")
    durations.configure(config)
    fuzzing.configure(config)
    if config.getoption("--every-case"):
        settings.load_profile("every case")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where tests of servers are asked for, import no file that names none: all imports take 20 s of a processor."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.getoption("markexpr") != WITH_SERVERS or not is_test:
        return None
    return None if any(_names(collection_path, word) for word in _WORDS.values()) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark, word in _WORDS.items():
            if item.get_closest_marker(mark) and not _names(item.path, word):
                raise pytest.UsageError(f"{item.path} has a test with {mark}: name {word} in it, or no run has it")
    if not config.getoption("--every-case"):
        waiting = {item for item in turns.not_now(items) if item.nodeid not in config.args}
        config.hook.pytest_deselected(items=[*waiting])
        items[:] = [item for item in items if item not in waiting]


def pytest_collection_finish() -> None:
    """Python's collector looks no more at what stays to the end: modules and all tests (a sixth of the processor time)."""
    gc.collect()
    gc.freeze()
    gc.collect()  # it then counts what is left: else it would leave garbage, such as Kafka's clients, for a long time


@cache
def _names(file: Path, word: str) -> bool:
    return word in file.read_text()


def pytest_itemcollected(item: pytest.Item) -> None:
    for name in _SERVERS.keys() & getattr(item, "fixturenames", ()):
        item.add_marker(_SERVERS[name])


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands run inside a test configure logging to that test's stderr, which is closed after it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for the whole run; a test that kills or stops its broker takes ``mortal_kafka``."""
    from lancewal_demo.stack import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def _mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    from lancewal_demo.stack import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("mortal")) as broker:
        yield broker


@pytest.fixture
def mortal_kafka(_mortal: KafkaBroker) -> KafkaBroker:
    """One more for those that kill, stop and start theirs; it runs when a test begins, however the last one left it."""
    if not _mortal.running:
        _mortal.start()
    return _mortal


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for the whole run; tests keep apart by bucket: ``s3.bucket(name)``."""
    from lancewal_demo.stack import S3Server

    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """One Azure server for the whole run; tests keep apart by container: ``azure.container(name)``."""
    from lancewal_demo.stack.clouds import AzureServer

    with _if_it_can_be_had(AzureServer(tmp_path_factory.mktemp("azure"))) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """One server of Google Cloud Storage for the whole run; tests keep apart by bucket: ``gcs.bucket(name)``."""
    from lancewal_demo.stack.clouds import GcsServer

    with _if_it_can_be_had(GcsServer(tmp_path_factory.mktemp("gcs"))) as server:
        yield server


@contextmanager
def _if_it_can_be_had(server: Server) -> Iterator[Server]:
    """Run the server, or skip the test on a machine that cannot fetch or build it."""
    from lancewal_demo.stack import StackFailed

    try:
        server.start()
    except StackFailed as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def _registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    from lancewal_demo.stack.registry import RegistryServer

    with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def registry(_registry: RegistryServer) -> RegistryServer:
    """One schema registry for the whole run; it runs when a test begins, however the last one left it.

    Tests keep apart by subject, and by what their schemas say."""
    if not _registry.running:
        _registry.start()
    return _registry


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the whole run; each test begins with an empty catalog: ``postgres.database()``."""
    from tests.support.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler in front of it; skips where none is installed."""
    from tests.support.pgbouncer import PgBouncer

    with PgBouncer(postgres) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    """One Spark session for the whole run; its first query takes seconds, the others about one."""
    from tests.support.spark import local_spark

    with local_spark(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; the test creates the topic itself."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', request.node.name)[:80]}-{secrets.token_hex(4)}"


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether this is the quick run, of which little is asked."""
    return bool(request.config.getoption("--quick"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of what is random in a test: printed with it, and a test's own in each run, so that what a change is judged by
    is what its author saw.  ``WHOLE_PATH_SEED=<n>`` asks for another, ``WHOLE_PATH_SEED=random`` for any."""
    given = os.environ.get("WHOLE_PATH_SEED")
    if given is None:
        chosen = zlib.crc32(request.node.nodeid.encode()) % 1_000_000
    else:
        chosen = secrets.randbelow(1_000_000) if given == "random" else int(given)
    print(f"WHOLE_PATH_SEED={chosen}")
    return chosen
