-- A lock of a transaction is an advisory lock, and ends with it. Its key is 64 bits of a hash of the name.

-- name: try
SELECT pg_try_advisory_xact_lock(CAST(:key AS bigint));

-- name: wait
SELECT pg_advisory_xact_lock(CAST(:key AS bigint));

-- name: patience
SELECT current_setting('lock_timeout');

-- name: limit
SELECT set_config('lock_timeout', CAST(:limit AS text), true);

-- name: savepoint
SAVEPOINT holdfast_lock;

-- name: undo
ROLLBACK TO SAVEPOINT holdfast_lock;

-- name: forget
RELEASE SAVEPOINT holdfast_lock;

-- name: row
SELECT * FROM {table} WHERE {key} FOR UPDATE{how};
