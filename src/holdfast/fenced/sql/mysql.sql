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

-- A locking read, here and below: it sees what is there now. A plain one in REPEATABLE READ sees what was there when this transaction
-- first read, which may be a mark from before the newer one that the seal has just met.
-- name: look
SELECT token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since) AS since FROM holdfast_fences
WHERE resource = UNHEX(:resource_hex) FOR UPDATE;

-- Nothing is read beside the row: MySQL would fix what this transaction sees from now on, before it has waited for the row. What was
-- *kept*, `look_row` tells afterwards. Text would compare as text.
-- name: seal_row
UPDATE {table} SET {column} = GREATEST(COALESCE(CAST({column} AS SIGNED), 0), :token)
WHERE {key};

-- A column that is too small for a token keeps something else, without a word where the mode is not strict. A table without transactions
-- takes no lock that lasts; what is below a view cannot be asked for.
-- name: look_row
SELECT MAX({column}) AS token, NULL AS since, COUNT(*) AS found, (
    SELECT IF(table_type = 'VIEW', 'a view', CONCAT('engine ', engine)) FROM information_schema.tables
    WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
    AND (table_type = 'VIEW' OR engine NOT IN ('InnoDB', 'ROCKSDB', 'TokuDB', 'ndbcluster', 'SPIDER'))
) AS flaw FROM {table} WHERE {key} FOR UPDATE;
