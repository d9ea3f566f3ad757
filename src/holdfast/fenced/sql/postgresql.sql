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
SELECT token, CAST(EXTRACT(EPOCH FROM since) * 1000000 AS bigint) AS since FROM holdfast_fences WHERE resource = :resource;

-- A column of real numbers would keep another token than the one that was presented. (The sum has the type that is below a domain.)
-- name: seal_row
UPDATE {table} SET {column} = :token WHERE {key} AND ({column} IS NULL OR {column} <= :token)
AND CAST(pg_typeof({column} + 0) AS text) IN ('bigint', 'integer', 'smallint', 'numeric')
AND (SELECT COUNT(*) FROM {table} WHERE {key}) = 1;

-- name: look_row
SELECT MAX({column}) AS token, NULL AS since, COUNT(*) AS found, MAX(CAST(pg_typeof({column} + 0) AS text)) FILTER (
    WHERE CAST(pg_typeof({column} + 0) AS text) NOT IN ('bigint', 'integer', 'smallint', 'numeric')
) AS flaw FROM {table} WHERE {key};
