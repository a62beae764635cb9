"""Faults of PostgreSQL: each becomes an error with advice, within the time limits, and none shows the password."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.postgres import connections, migrate
from lancewal_core.catalog.postgres import parameters as settings_of
from lancewal_core.catalog.postgres.parameters import CONNECT_S, parameters
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.catalog.report import Server, TableReport
from lancewal_core.errors import CatalogRefused, CatalogUnavailable, InvalidInput, InvalidSettings
from tests.support.catalog_entries import entry
from tests.support.certificates import make_certificates
from tests.support.pgbouncer import SESSIONS, PgBouncer
from tests.support.postgres import DATABASE, PASSWORD, OneAnswer, PostgresServer
from tests.support.tcp_fault_proxy import Damage
from tests.support.tls_front import tls_front
from tests.support.whole_path import until

LIMIT_S = CONNECT_S + connections.STATEMENT_S
"""Longest time of a call to one host."""


def refusal(catalog: PostgresCatalog, kind: type[CatalogUnavailable]) -> str:
    """Text of the error that a read and a swap raise, both within the time limits."""
    texts = []
    for call in (catalog.tables, lambda: catalog.swap_table("shop.orders", None, entry())):
        begun = time.monotonic()
        with pytest.raises(CatalogUnavailable) as caught:
            call()
        assert time.monotonic() - begun < LIMIT_S + 5
        assert type(caught.value) is kind
        assert PASSWORD not in str(caught.value)
        texts.append(str(caught.value))
    return texts[-1]


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[OneAnswer]:
    with OneAnswer(postgres.url()) as running:
        yield running


def test_an_idle_connection_that_was_lost_is_replaced(postgres: PostgresServer, proxy: OneAnswer) -> None:
    catalog = PostgresCatalog(proxy.through(postgres.database()), PASSWORD)
    first = entry()
    assert catalog.swap_table("shop.orders", None, first)
    assert proxy.reset_all() == 1
    assert catalog.table("shop.orders") == first


def test_a_reply_that_is_lost_after_the_commit_is_recognised(postgres: PostgresServer, proxy: OneAnswer) -> None:
    """The answer's bytes end at each place in turn.  The swap says what the catalog holds, or that nobody knows."""
    url = postgres.database()
    direct = PostgresCatalog(url, PASSWORD)
    answered = unknown = 0
    before: TableEntry | None = None
    for after in range(0, 900, 90):
        proxy.damage = Damage("cut", "answer", after)
        catalog, new = PostgresCatalog(proxy.through(url), PASSWORD), entry()
        try:
            assert catalog.swap_table("shop.orders", before, new)
            answered += 1
        except CatalogUnavailable:
            unknown += 1
        proxy.damage = None
        assert catalog.swap_table("shop.orders", before, new)
        assert direct.table("shop.orders") == new
        before = new
    assert answered
    assert unknown


def test_a_server_that_hangs_stops_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STATEMENT_S", 0.5)
    monkeypatch.setattr(settings_of, "CONNECT_S", 2)  # the client waits no shorter
    with PostgresServer() as server:
        catalog = PostgresCatalog(server.database(), PASSWORD)
        new = entry()
        assert catalog.swap_table("shop.orders", None, new)
        server.pause()
        text = refusal(catalog, CatalogUnavailable)
        assert "does not answer" in text
        assert "Tables are still opened by their addresses" in text
        server.resume()
        assert catalog.table("shop.orders") == new
        server.kill()
        assert "does not answer" in refusal(catalog, CatalogUnavailable)
        server.start()
        assert catalog.table("shop.orders") == new


def test_a_server_that_takes_no_writes(postgres: PostgresServer) -> None:
    url = postgres.database()
    postgres.run("DROP ROLE IF EXISTS reader")
    postgres.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
    postgres.run("ALTER ROLE reader SET default_transaction_read_only = on")
    assert "primary" in refusal(PostgresCatalog(url.replace("postgres@", "reader@"), PASSWORD), CatalogUnavailable)


def test_of_several_hosts_the_one_that_answers_is_told_of(postgres: PostgresServer) -> None:
    """The last host is gone.  The first one refuses the password, or takes no writes."""
    postgres.database()
    postgres.run("DROP ROLE IF EXISTS reader")
    postgres.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
    postgres.run("ALTER ROLE reader SET default_transaction_read_only = on")
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]
    both = f"postgresql://reader@127.0.0.1:{postgres.port},127.0.0.1:{port}/{DATABASE}"
    assert "Correct catalog.url and catalog.password" in refusal(PostgresCatalog(both, "wrong"), CatalogRefused)
    text = refusal(PostgresCatalog(both, PASSWORD), CatalogUnavailable)
    assert "Name the primary" in text
    assert "session is read-only" in text
    assert "Connection refused" in text


def test_what_a_person_must_mend_is_refused(postgres: PostgresServer) -> None:
    url = postgres.database()
    postgres.run("DROP ROLE IF EXISTS guest")
    postgres.run(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    for catalog, said in (
        (PostgresCatalog(url, "wrong"), "catalog.password"),
        (PostgresCatalog(url), "catalog.password"),
        (PostgresCatalog(postgres.url("missing"), PASSWORD), "does not exist"),
        (PostgresCatalog(postgres.url(DATABASE, "missing"), PASSWORD), "catalog.url"),
        (PostgresCatalog(postgres.url(DATABASE, "guest"), PASSWORD), "Grant"),
        (PostgresCatalog(postgres.url(), PASSWORD), "lancewal catalog init"),
    ):
        assert said in refusal(catalog, CatalogRefused)


def test_the_schema_is_of_this_release_or_the_one_before(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    assert migrate.init(url, PASSWORD) == migrate.migrate(url, PASSWORD) == connections.SCHEMA_NEWEST
    newer = connections.SCHEMA_NEWEST + 1
    postgres.run(f"UPDATE lancewal.schema_version SET version = {newer}", DATABASE)
    assert f"version {newer}" in refusal(PostgresCatalog(url, PASSWORD), CatalogRefused)
    for change in (migrate.init, migrate.migrate):
        with pytest.raises(CatalogRefused, match="upgrade lancewal"):
            change(url, PASSWORD)
    monkeypatch.setattr(connections, "SCHEMA_NEWEST", newer + 1)
    monkeypatch.setattr(connections, "SCHEMA_OLDEST", newer)
    assert PostgresCatalog(url, PASSWORD).tables() == {}
    monkeypatch.setattr(connections, "SCHEMA_OLDEST", newer + 1)
    assert "lancewal catalog migrate" in refusal(PostgresCatalog(url, PASSWORD), CatalogRefused)


def test_migrations_are_numbered_and_run_once(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(migrate.migrations()) == list(range(1, connections.SCHEMA_NEWEST + 1))
    assert connections.SCHEMA_OLDEST in (connections.SCHEMA_NEWEST - 1, connections.SCHEMA_NEWEST)
    url = postgres.database()
    newer = connections.SCHEMA_NEWEST + 1
    more = {**migrate.migrations(), newer: b"CREATE TABLE lancewal.more (n int); SELECT 1"}
    monkeypatch.setattr(migrate, "migrations", lambda: more)
    for module in (connections, migrate):
        monkeypatch.setattr(module, "SCHEMA_NEWEST", newer)
    assert migrate.migrate(url, PASSWORD) == newer - 1
    assert migrate.migrate(url, PASSWORD) == newer
    assert postgres.run("SELECT version FROM lancewal.schema_version", DATABASE) == [(newer,)]
    more[newer + 1] = b"CREATE TABLE lancewal.again (n int); SELECT 1 / 0"
    monkeypatch.setattr(migrate, "SCHEMA_NEWEST", newer + 1)
    with pytest.raises(InvalidInput, match="division by zero"):
        migrate.migrate(url, PASSWORD)
    assert postgres.run("SELECT version FROM lancewal.schema_version", DATABASE) == [(newer,)]
    assert postgres.run("SELECT to_regclass('lancewal.again')", DATABASE) == [(None,)]
    with pytest.raises(CatalogRefused, match="lancewal catalog init"):
        migrate.migrate(postgres.url(), PASSWORD)


def test_two_runs_at_once_wait_for_each_other_for_a_time(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    with psycopg.connect(url, password=PASSWORD) as other:
        other.execute(migrate._LOCK)
        monkeypatch.setattr(connections, "STATEMENT_S", 0.5)
        with pytest.raises(CatalogUnavailable, match="waits up to"):
            migrate.migrate(url, PASSWORD)
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(migrate.migrate, url, PASSWORD)
            waits_for_a_lock(postgres)
            other.rollback()
            assert waits.result() == connections.SCHEMA_NEWEST


def waits_for_a_lock(server: PostgresServer) -> None:
    until(lambda: bool(server.run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")))


@pytest.mark.parametrize("again", [False, True])
def test_of_two_deletions_at_once_both_are_done(postgres: PostgresServer, again: bool) -> None:
    """Unless the name is taken again meanwhile."""
    url = postgres.database()
    catalog, first = PostgresCatalog(url, PASSWORD), entry()
    assert catalog.swap_table("shop.orders", None, first)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(url, password=PASSWORD) as other:
        other.execute("DELETE FROM lancewal.entries")
        deleted = threads.submit(catalog.swap_table, "shop.orders", first, None)
        waits_for_a_lock(postgres)
        if again:
            other.execute(
                "INSERT INTO lancewal.entries (name, write_id, content) VALUES ('shop.orders', 'other', '{}')"
            )
        other.commit()
        assert deleted.result() is not again


def test_a_value_that_cannot_be_stored_is_named(postgres: PostgresServer) -> None:
    catalog = PostgresCatalog(postgres.database(), PASSWORD)
    with pytest.raises(InvalidInput, match="cannot store a value"):
        catalog.swap_table("shop.orders", None, entry(topic="a\0b"))
    assert catalog.tables() == {}


def test_another_machine_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    remote = parameters("postgresql://u@db.example,127.0.0.1/d", "x")
    assert (remote["sslmode"], remote["sslrootcert"]) == ("verify-full", "system")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ours.pem")
    assert parameters("postgresql://u@db.example/d", "x")["sslrootcert"] == "/etc/ours.pem"
    assert parameters("postgresql://u@10.0.0.1/d?sslrootcert=/other.pem", "x")["sslrootcert"] == "/other.pem"
    for mode in ("disable", "prefer", "require", "verify-ca"):
        with pytest.raises(InvalidSettings, match="verify-full"):
            parameters(f"postgresql://u@db.example/d?sslmode={mode}", "x")
    for host in ("localhost", "127.0.0.1", "[::1]", ""):
        assert "sslmode" not in parameters(f"postgresql://u@{host}/d", "x")
    assert "sslmode" not in parameters("postgresql:///d?host=/run/postgresql", "x")
    assert parameters("postgresql://u@localhost/d?sslmode=verify-full", "x")["sslrootcert"] == "/etc/ours.pem"


def test_one_database_has_one_address_and_two_have_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of cuts note it, and those of another catalog are not touched."""
    monkeypatch.delenv("PGPORT", raising=False)
    for said, *texts in (
        (
            "a/lake",
            "u@a/lake",
            "a:5432/lake",
            "v@A/lake?sslmode=verify-full",
            "a?dbname=lake",
            "/lake?host=a",
            "lake@a",
        ),
        ("a,b/lake", "a:5432,b/lake", "/lake?host=a,b&port=5432"),
        ("a:1,b:2/lake", "a:1,b:2/lake", "/lake?host=a,b&port=1,2"),
        ("/lake", "/lake", "?dbname=lake"),
        ("[::1]:1/other", "[::1]:1/other"),
        ("%2Frun%2Fpg/lake", "/lake?host=/run/pg"),
    ):
        for text in texts:
            for scheme in ("postgres", "postgresql"):
                assert PostgresCatalog(f"{scheme}://{text}").where == f"postgresql://{said}", text
    monkeypatch.setenv("PGPORT", "1")
    assert PostgresCatalog("postgresql://a/lake").where == "postgresql://a:1/lake"
    monkeypatch.setenv("PGDATABASE", "other")
    assert PostgresCatalog("postgresql://a").where == "postgresql://a:1/other"


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGSERVICE"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1,localhost", ""])
def test_the_address_alone_names_the_server(
    variable: str, host: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment leads to another server, without verification."""
    url = postgres.database()
    server = f"{host}:{postgres.port}".replace(",", f":{postgres.port},") if host else ""
    services = tmp_path / "services.conf"
    services.write_text("[other]\nhostaddr=127.0.0.2\nhost=other\nsslmode=disable\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv(variable, "other" if variable == "PGSERVICE" else "127.0.0.2")
    catalog = PostgresCatalog(url.replace(f"127.0.0.1:{postgres.port}", server), PASSWORD)
    if host:
        assert catalog.tables() == {}
    else:  # the server of the test has no socket where the client looks for one
        assert "socket" in refusal(catalog, CatalogUnavailable)


def test_a_certificate_that_is_not_trusted_is_refused(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificates(tmp_path)
    url = f"{postgres.database()}?sslmode=verify-full"
    with tls_front(postgres.port, made.server) as port:
        encrypted = url.replace(str(postgres.port), str(port))
        for authority, expected in (
            (made.ca, None),
            (made.other_ca, "certificate verify failed"),
            (tmp_path / "missing", "root certificate file"),
        ):
            monkeypatch.setenv("SSL_CERT_FILE", str(authority))
            catalog = PostgresCatalog(encrypted, PASSWORD)
            if expected is None:
                assert catalog.tables() == {}
            else:
                assert expected in refusal(catalog, CatalogRefused)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
        other_name = PostgresCatalog(encrypted.replace("127.0.0.1", "localhost"), PASSWORD)
        assert "does not match host name" in refusal(other_name, CatalogRefused)
    assert "does not support SSL" in refusal(PostgresCatalog(url, PASSWORD), CatalogRefused)


def test_a_promoted_replica_without_the_last_commits_confirms_them_again(postgres: PostgresServer) -> None:
    """Nothing that the protocol promises may lie here: this is why.  ``server`` tells that it happened."""
    url = postgres.database()
    catalog = PostgresCatalog(url, PASSWORD)
    kept, lost, other = entry(), entry(), entry()
    assert catalog.swap_table("shop.orders", None, kept)
    before = catalog.server()
    replica = postgres.replica()
    try:
        assert catalog.swap_table("shop.orders", kept, lost)
        replica.start()
        replica.promote()
        promoted = PostgresCatalog(url.replace(str(postgres.port), str(replica.port)), PASSWORD)
        assert promoted.table("shop.orders") == kept
        assert promoted.swap_table("shop.orders", kept, other)
        assert not promoted.swap_table("shop.orders", kept, lost)
        assert promoted.server() == Server(before.system, before.timeline + 1)
    finally:
        replica.close()


def test_sql_tools_see_what_was_reported(postgres: PostgresServer) -> None:
    url = postgres.database()
    catalog = PostgresCatalog(url, PASSWORD)
    assert catalog.swap_table("shop.orders", None, entry())
    asked = (
        "SELECT name, uri, topic, state, merged_version, extract(epoch FROM merged_at)::int, lag_seconds "
        "FROM lancewal.tables"
    )
    named = ("shop.orders", "s3://lake/t", "orders", "active")
    assert postgres.run(asked, DATABASE) == [(*named, None, None, None)]
    for report, seen in (
        (TableReport("u1", 7, 1_700_000_000_000, 1.5), (7, 1_700_000_000, 1.5)),
        (TableReport("u1", 8, None, 0.0), (8, None, 0.0)),
    ):
        catalog.report(report, catalog.server())
        assert catalog.reported_to("u1") == catalog.server()
        assert postgres.run(asked, DATABASE) == [(*named, *seen)]


def test_a_pooler_of_transactions_shares_its_sessions_among_clients(pgbouncer: PgBouncer) -> None:
    """More clients than the pooler has sessions, and each keeps its connection: every call is answered."""
    url = pgbouncer.database()
    clients = [PostgresCatalog(url, PASSWORD) for _ in range(3 * SESSIONS)]
    before: TableEntry | None = None
    for _ in range(8):  # psycopg prepares a statement at its sixth use
        for client in clients:
            new = entry()
            assert client.swap_table("shop.orders", before, new)
            client.report(TableReport("u1", 7, None, 0.0), Server(1, 1))
            assert client.server() == clients[0].server()
            before = new
    assert all(client.table("shop.orders") == before for client in clients)
    assert pgbouncer.sessions() <= SESSIONS
    assert migrate.migrate(url, PASSWORD) == connections.SCHEMA_NEWEST


def test_no_session_state_is_left(postgres: PostgresServer) -> None:
    """A transaction pooler gives each statement another session: each leaves its session as a new one is."""
    url = postgres.database()
    catalog = PostgresCatalog(url, PASSWORD)
    first = entry()
    for _ in range(20):  # psycopg prepares a statement at its sixth use
        assert catalog.swap_table("shop.orders", None, first)
    with psycopg.connect(url, password=PASSWORD) as fresh:
        wanted = fresh.execute("SELECT count(*), sum(hashtext(name || setting)::bigint) FROM pg_settings").fetchall()
        there = catalog._connections.run(
            b"SELECT count(*), sum(hashtext(name || setting)::bigint) FROM pg_settings WHERE name <> 'application_name'"
        )
        assert wanted[0][0] == there[0][0] + 1
    assert catalog._connections.run(b"SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    assert catalog._connections.run(b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert catalog._connections.run(b"SELECT pg_listening_channels()") == []


def test_a_refusal_after_a_lost_connection_does_not_say_that_nothing_was_done(postgres: PostgresServer) -> None:
    postgres.database()
    postgres.run("CREATE ROLE fades LOGIN SUPERUSER PASSWORD 'x'")
    catalog = PostgresCatalog(postgres.url(DATABASE, "fades"), "x")
    try:
        assert catalog.tables() == {}
        postgres.run("ALTER ROLE fades NOLOGIN")
        postgres.run("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'fades'")
        with pytest.raises(CatalogUnavailable, match=r"not permitted to log in.*The statement may be done") as first:
            catalog.swap_table("shop.orders", None, entry())
        assert not isinstance(first.value, CatalogRefused)
        with pytest.raises(CatalogRefused, match="not permitted to log in"):
            catalog.swap_table("shop.orders", None, entry())
    finally:
        postgres.run("DROP ROLE fades")
