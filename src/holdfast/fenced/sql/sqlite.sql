-- name: create
CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    since TEXT NOT NULL
) WITHOUT ROWID;

-- name: drop
DROP TABLE IF EXISTS holdfast_fences;

-- name: seal
INSERT INTO holdfast_fences (resource, token, since) VALUES (:resource, :token, strftime('%Y-%m-%d %H:%M:%f', 'now'))
ON CONFLICT (resource) DO UPDATE SET
    token = excluded.token,
    since = CASE WHEN holdfast_fences.token < excluded.token THEN excluded.since ELSE holdfast_fences.since END
WHERE holdfast_fences.token <= excluded.token;

-- name: look
SELECT token, CAST((julianday(since) - 2440587.5) * 86400000 AS INTEGER) * 1000 AS since
FROM holdfast_fences WHERE resource = :resource;

-- Text compares as text: in a column of that kind 9 would be above 10.
-- name: seal_row
UPDATE {table} SET {column} = :token WHERE {key}
AND ({column} IS NULL OR (typeof({column}) = 'integer' AND {column} <= :token))
AND (SELECT COUNT(*) FROM {table} WHERE {key}) = 1;

-- name: look_row
SELECT MAX({column}) AS token, NULL AS since, COUNT(*) AS found,
    MAX(CASE WHEN typeof({column}) NOT IN ('null', 'integer') THEN typeof({column}) END) AS flaw
FROM {table} WHERE {key};
