"""The PostgreSQL server of tests changes its settings before the test goes on."""

from __future__ import annotations

import psycopg

from tests.support.postgres import PASSWORD, PostgresServer

TIMES = 50


def test_an_open_session_has_a_new_setting_at_its_next_statement() -> None:
    with PostgresServer() as server, psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as session:
        for number in range(TIMES):
            value = ("all", "none")[number % 2]
            server.configure("log_statement", value)
            assert session.execute("SHOW log_statement").fetchall() == [(value,)]
