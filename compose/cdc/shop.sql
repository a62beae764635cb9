-- What a connector of Debezium needs in a database, with a table to try it on.  See docs/how-to/from-postgresql.md.
\if :{?password}
\else
\set password `cat /secrets/SHOP_CONNECTOR_PASSWORD`
\endif

CREATE TABLE accounts (
    id bigint PRIMARY KEY, name text NOT NULL, balance numeric(12, 2) DEFAULT 0, opened timestamptz, note text
);
INSERT INTO accounts VALUES (1, 'Ada', 12.50, '2026-01-31T12:00:00Z'), (2, 'Bo', NULL, NULL);

-- A row here asks the connector for a snapshot.
CREATE TABLE debezium_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048));

CREATE PUBLICATION lancewal FOR TABLE accounts, debezium_signal;
CREATE ROLE debezium LOGIN REPLICATION PASSWORD :'password';
GRANT SELECT ON accounts TO debezium;
GRANT SELECT, INSERT ON debezium_signal TO debezium;
