-- GET_LOCK lives with the session, not with the transaction: so a lock of a transaction is the lock of a row, by its full name.

-- name: create
CREATE TABLE IF NOT EXISTS holdfast_transaction_locks (
    name VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- name: wait
-- Not a SELECT: that would fix what a REPEATABLE READ transaction sees before the lock was had.
INSERT INTO holdfast_transaction_locks VALUES (UNHEX(:name_hex)) ON DUPLICATE KEY UPDATE name = name;

-- name: patience
SELECT @@SESSION.innodb_lock_wait_timeout;

-- name: limit
SET SESSION innodb_lock_wait_timeout = :limit;

-- name: tidy
DELETE FROM holdfast_transaction_locks;

-- name: row
SELECT * FROM {table} WHERE {key} FOR UPDATE{how};
