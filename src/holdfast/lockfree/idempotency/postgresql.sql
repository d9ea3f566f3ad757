-- Times are µs since 1970, by this server's clock alone. `expires` is when a run may be taken over, or a result forgotten.
-- `done` is 0 while it runs, 1 with a result, 2 if there is none to keep: then `result` says why.
-- name: create
CREATE TABLE IF NOT EXISTS holdfast_idempotency (
    name text COLLATE "C" PRIMARY KEY,
    payload text,
    runner text NOT NULL,
    token bigint NOT NULL,
    expires bigint NOT NULL,
    done smallint NOT NULL,
    result bytea
);

-- name: create_index
CREATE INDEX IF NOT EXISTS holdfast_idempotency_expires ON holdfast_idempotency (expires);

-- name: drop
DROP TABLE IF EXISTS holdfast_idempotency;

-- name: look
SELECT token, runner, payload, done, expires - CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000.0 AS bigint), result
FROM holdfast_idempotency WHERE name = :name;

-- One statement, so that nothing comes between looking and taking. A token never comes again, even for a name whose row
-- was deleted: it is at least the time.
-- name: claim
INSERT INTO holdfast_idempotency AS held (name, payload, runner, token, expires, done)
SELECT :name, CAST(:payload AS text), CAST(:runner AS text), clock.now, clock.now + CAST(:ttl AS bigint), 0
FROM (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000.0 AS bigint) AS now) AS clock
ON CONFLICT (name) DO UPDATE SET
    payload = excluded.payload,
    runner = excluded.runner,
    token = GREATEST(held.token + 1, excluded.token),
    expires = excluded.expires,
    done = 0,
    result = NULL
WHERE held.expires <= CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000.0 AS bigint);

-- The token is one run's: if it is done already, that was said before, and not answered.
-- name: finish
UPDATE holdfast_idempotency SET
    done = :done,
    result = :result,
    expires = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000.0 AS bigint) + CAST(:keep AS bigint)
WHERE name = :name AND token = :token;

-- name: release
DELETE FROM holdfast_idempotency WHERE name = :name AND runner = :runner AND done = 0;

-- A run that nobody took over is remembered as long as a result, so that its key is not used for another payload.
-- name: purge
DELETE FROM holdfast_idempotency
WHERE expires <= CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000.0 AS bigint) - CASE done WHEN 0 THEN CAST(:keep AS bigint) ELSE 0 END;
