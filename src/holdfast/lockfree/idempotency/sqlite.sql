-- Times are µs since 1970, by the clock of the machine that has the file. `expires` is when a run may be taken over, or a
-- result forgotten.
-- `done` is 0 while it runs, 1 with a result, 2 if there is none to keep: then `result` says why.
-- name: create
CREATE TABLE IF NOT EXISTS holdfast_idempotency (
    name TEXT NOT NULL PRIMARY KEY,
    payload TEXT,
    runner TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    done INTEGER NOT NULL,
    result BLOB
) WITHOUT ROWID;

-- name: create_index
CREATE INDEX IF NOT EXISTS holdfast_idempotency_expires ON holdfast_idempotency (expires);

-- name: drop
DROP TABLE IF EXISTS holdfast_idempotency;

-- name: look
SELECT token, runner, payload, done, expires - CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER), result
FROM holdfast_idempotency WHERE name = :name;

-- name: kept
SELECT payload, result, token, expires FROM holdfast_idempotency WHERE name = :name AND done = 1;

-- name: claim
INSERT INTO holdfast_idempotency (name, payload, runner, token, expires, done)
SELECT :name, :payload, :runner, clock.now, clock.now + :ttl, 0
FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS now) AS clock
WHERE 1
ON CONFLICT (name) DO UPDATE SET
    payload = excluded.payload,
    runner = excluded.runner,
    token = max(holdfast_idempotency.token + 1, excluded.token),
    expires = excluded.expires,
    done = 0,
    result = NULL
WHERE holdfast_idempotency.expires <= CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER);

-- The token is one run's: if it is done already, that was said before, and not answered.
-- name: finish
UPDATE holdfast_idempotency SET
    done = :done,
    result = :result,
    expires = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + :keep
WHERE name = :name AND token = :token;

-- name: release
DELETE FROM holdfast_idempotency WHERE name = :name AND runner = :runner AND done = 0;

-- A run that nobody took over is remembered as long as a result, so that its key is not used for another payload.
-- name: purge
DELETE FROM holdfast_idempotency
WHERE expires <= CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - CASE done WHEN 0 THEN :keep ELSE 0 END;
