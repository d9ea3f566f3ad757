-- Times are µs since 1970, by this server's clock alone. `expires` is when a run may be taken over, or a result forgotten.
-- Names and results are sent in hexadecimal and kept as bytes: no collation, character set or escaping changes them.
-- `done` is 0 while it runs, 1 with a result, 2 if there is none to keep: then `result` says why.
-- name: create
CREATE TABLE IF NOT EXISTS holdfast_idempotency (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    payload CHAR(64) CHARACTER SET ascii,
    runner CHAR(32) CHARACTER SET ascii NOT NULL,
    token BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    done SMALLINT NOT NULL,
    result LONGBLOB,
    INDEX holdfast_idempotency_expires (expires)
) ENGINE = InnoDB;

-- Asked first: to IF NOT EXISTS the server answers with a warning, which some drivers raise.
-- name: exists
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'holdfast_idempotency';

-- name: drop
DROP TABLE IF EXISTS holdfast_idempotency;

-- In two columns: to drivers written in Python, each column costs more than what is in it.
-- name: look
SELECT CONCAT_WS(
    ' ', token, runner, done, expires - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), COALESCE(payload, '')
) AS entry, result
FROM holdfast_idempotency WHERE name = UNHEX(:name_hex);

-- Assignments are made from left to right, and later ones see earlier ones: `expires`, by which all decide, comes last.
-- name: claim
INSERT INTO holdfast_idempotency (name, payload, runner, token, expires, done)
VALUES (
    UNHEX(:name_hex), :payload, :runner,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :ttl, 0
)
ON DUPLICATE KEY UPDATE
    payload = IF(expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :payload, payload),
    runner = IF(expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :runner, runner),
    token = IF(
        expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
        GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        token
    ),
    done = IF(expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 0, done),
    result = IF(expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), NULL, result),
    expires = IF(
        expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :ttl,
        expires
    );

-- The token is one run's: if it is done already, that was said before, and not answered.
-- name: finish
UPDATE holdfast_idempotency SET
    done = :done,
    result = UNHEX(:result_hex),
    expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :keep
WHERE name = UNHEX(:name_hex) AND token = :token;

-- name: release
DELETE FROM holdfast_idempotency WHERE name = UNHEX(:name_hex) AND runner = :runner AND done = 0;

-- A run that nobody took over is remembered as long as a result, so that its key is not used for another payload.
-- name: purge
DELETE FROM holdfast_idempotency
WHERE expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - IF(done = 0, :keep, 0);
