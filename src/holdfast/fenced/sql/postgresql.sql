-- name: create
CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    since timestamptz NOT NULL
) WITH (fillfactor = 50);

-- name: drop
DROP TABLE IF EXISTS holdfast_fences;

-- One statement, so that nothing comes between looking and writing; the row stays locked until the transaction ends.
-- An equal token writes as well: it must hold that lock.
-- name: seal
INSERT INTO holdfast_fences AS fence (resource, token, since) VALUES (:resource, :token, clock_timestamp())
ON CONFLICT (resource) DO UPDATE SET
    token = excluded.token,
    since = CASE WHEN fence.token < excluded.token THEN excluded.since ELSE fence.since END
WHERE fence.token <= excluded.token;

-- name: look
SELECT token, CAST(EXTRACT(EPOCH FROM since) * 1000000.0 AS bigint) AS since FROM holdfast_fences WHERE resource = :resource;

-- A column of real numbers would keep another token than the one that was presented. (The sum has the type that is below a domain.)
-- So may numbers of a scale below zero, and a trigger: it counts what was kept. And who has waited for the row must be compared with what is
-- there then: of a view with an INSTEAD OF trigger, or with a rule, PostgreSQL takes what was there before. So nothing that is rewritten.
-- name: seal_row
WITH sealed AS (
    UPDATE {table} SET {column} = :token WHERE {key} AND ({column} IS NULL OR {column} <= :token)
    AND CAST(pg_typeof({column} + 0) AS text) IN ('bigint', 'integer', 'smallint', 'numeric')
    AND (SELECT COUNT(*) FROM {table} WHERE {key}) = 1
    AND NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_rewrite
        WHERE ev_class = CAST(CAST(:relation AS text) AS regclass) AND ev_type IN ('1', '2')
    )
    RETURNING {column} AS kept
)
SELECT 1 FROM sealed WHERE kept = :token;

-- name: look_row
SELECT MAX({column}) AS token, NULL AS since, COUNT(*) AS found, COALESCE((
    SELECT MIN(CASE ev_type WHEN '1' THEN 'a view' ELSE 'a table with a rule' END) FROM pg_catalog.pg_rewrite
    WHERE ev_class = CAST(CAST(:relation AS text) AS regclass) AND ev_type IN ('1', '2')
), MAX(CAST(pg_typeof({column} + 0) AS text)) FILTER (
    WHERE CAST(pg_typeof({column} + 0) AS text) NOT IN ('bigint', 'integer', 'smallint', 'numeric')
)) AS flaw FROM {table} WHERE {key};
