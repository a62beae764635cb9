-- Entries and cuts are JSON documents.  Each change of one is a compare-and-swap by write_id.
CREATE TABLE lancewal.entries (
    name text PRIMARY KEY,
    write_id text NOT NULL,
    content jsonb NOT NULL
);

CREATE TABLE lancewal.cuts (
    name text PRIMARY KEY,
    write_id text NOT NULL,
    content jsonb NOT NULL
);

-- State of each table as its flusher reported it last, and the server that took the report.  Another server, or another
-- timeline of it, may lack the last changes.
CREATE TABLE lancewal.reports (
    table_uuid text PRIMARY KEY,
    merged_version bigint NOT NULL,
    merged_at timestamptz,
    lag_seconds double precision NOT NULL,
    reported_at timestamptz NOT NULL DEFAULT now(),
    system_identifier bigint,
    timeline integer
);

CREATE VIEW lancewal.tables AS
SELECT
    e.name,
    e.content ->> 'uri' AS uri,
    e.content ->> 'table_uuid' AS table_uuid,
    e.content ->> 'topic' AS topic,
    e.content ->> 'group_id' AS group_id,
    e.content ->> 'state' AS state,
    to_timestamp((e.content ->> 'changed_ms')::bigint / 1000.0) AS changed_at,
    r.merged_version,
    r.merged_at,
    r.lag_seconds,
    r.reported_at
FROM lancewal.entries AS e
LEFT JOIN lancewal.reports AS r ON r.table_uuid = e.content ->> 'table_uuid';
