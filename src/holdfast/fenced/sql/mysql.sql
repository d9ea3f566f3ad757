-- A name is sent in hexadecimal and kept as bytes: no collation takes two names for one, no character set loses a
-- letter, and no escaping (which depends on the server's sql_mode) is needed.
-- name: create
CREATE TABLE IF NOT EXISTS holdfast_fences (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    since DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- Asked first: to IF NOT EXISTS the server answers with a warning, which some drivers raise.
-- name: exists
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'holdfast_fences';

-- name: drop
DROP TABLE IF EXISTS holdfast_fences;

-- The row count cannot tell an equal token from a lower one, and means something else with CLIENT_FOUND_ROWS. So the
-- mark itself is handed back, as the "last insert id" of the statement, after an insert too: 0 says that somebody on the way
-- (a trigger, a proxy) has lost it.
-- name: seal
INSERT INTO holdfast_fences (resource, token, since)
VALUES (UNHEX(:resource_hex), LAST_INSERT_ID(:token), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE
    since = IF(token < :token, UTC_TIMESTAMP(6), since),
    token = LAST_INSERT_ID(GREATEST(token, :token));

-- name: look
SELECT token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since) AS since FROM holdfast_fences
WHERE resource = UNHEX(:resource_hex);

-- What was *kept* is handed back: a column that is too small for a token keeps something else, without a word where the mode is not
-- strict; and text would compare as text. Should the key name several rows, it is the highest mark. A table without transactions takes
-- no lock that lasts.
-- name: seal_row
UPDATE {table} SET
    {column} = GREATEST(COALESCE(CAST({column} AS SIGNED), 0), :token),
    {column} = LAST_INSERT_ID({column})
WHERE {key} AND NOT EXISTS ({flaw}) ORDER BY CAST({column} AS SIGNED);

-- name: look_row
SELECT MAX({column}) AS token, NULL AS since, COUNT(*) AS found, ({flaw}) AS flaw FROM {table} WHERE {key};

-- name: flaw
SELECT CONCAT('engine ', engine) FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name AND table_type = 'BASE TABLE'
AND engine NOT IN ('InnoDB', 'ROCKSDB', 'TokuDB', 'ndbcluster', 'SPIDER')
