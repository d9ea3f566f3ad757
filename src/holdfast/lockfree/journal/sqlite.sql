-- One writer at a time, so the order of the rows is the order of the commits.
-- name: create_events
CREATE TABLE IF NOT EXISTS holdfast_journal (
    position INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    version INTEGER NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (stream, version)
);

-- name: create_snapshots
CREATE TABLE IF NOT EXISTS holdfast_journal_snapshots (
    stream TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;

-- Without a version the row is ignored. (As INSERT … SELECT … WHERE it would go through a temporary table, and take twice as long.)
-- name: append
INSERT OR IGNORE INTO holdfast_journal (stream, version, data) VALUES (
    :stream,
    CASE WHEN :expected = (SELECT coalesce(max(version), 0) FROM holdfast_journal WHERE stream = :stream) THEN :expected + 1 END,
    :data
);

-- name: append_many
INSERT INTO holdfast_journal (stream, version, data)
SELECT :stream, :expected + 1 + item.key, item.value
FROM json_each(:all) AS item
WHERE :expected = (SELECT coalesce(max(version), 0) FROM holdfast_journal WHERE stream = :stream)
ORDER BY item.key;

-- name: version
SELECT coalesce(max(version), 0) FROM holdfast_journal WHERE stream = :stream;

-- name: read
SELECT stream, version, data, position FROM holdfast_journal
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :most;

-- name: log
SELECT stream, version, data, position FROM holdfast_journal
WHERE position > :first AND substr(stream, 1, length(:prefix)) = :prefix ORDER BY position LIMIT :most;

-- An older copy of the file gives positions again that were given already.
-- name: astray
SELECT 1 WHERE :first > (SELECT coalesce(max(position), 0) FROM holdfast_journal);

-- name: snapshot
INSERT INTO holdfast_journal_snapshots (stream, version, state) VALUES (:stream, :version, :state)
ON CONFLICT (stream) DO UPDATE SET version = excluded.version, state = excluded.state
WHERE holdfast_journal_snapshots.version < excluded.version;

-- name: last_snapshot
SELECT version, state FROM holdfast_journal_snapshots WHERE stream = :stream;
