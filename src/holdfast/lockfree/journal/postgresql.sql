-- A subscription must never step over an event that commits late. Numbers from a sequence are taken before the commit, so
-- they alone cannot say what is complete; hence the transaction's own number, which PostgreSQL's snapshots speak of.
-- name: create_events
CREATE TABLE IF NOT EXISTS holdfast_journal (
    stream text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    data text NOT NULL,
    xact bigint NOT NULL DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (stream, version)
);

-- name: create_order
CREATE INDEX IF NOT EXISTS holdfast_journal_order ON holdfast_journal (xact, seq);

-- name: create_snapshots
CREATE TABLE IF NOT EXISTS holdfast_journal_snapshots (
    stream text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    state text NOT NULL
);

-- Two processes that create the same table at once collide in PostgreSQL, IF NOT EXISTS or not: one after the other.
-- name: create_alone
SELECT pg_advisory_xact_lock(7522531002837);

-- Who writes the next version first has it; the other inserts nothing, and is told. One row, so no part of a batch can land.
-- A transaction that began before the one which wrote the version before has a lower number than that, and would come before
-- it in a subscription: so no event has a lower one than the version before. (None is stepped over by that: whoever may still
-- write below that number is older than it, and holds back all of them.)
-- name: append
WITH added AS (
    INSERT INTO holdfast_journal (stream, version, data, xact)
    SELECT CAST(:stream AS text), CAST(:expected AS bigint) + 1, CAST(:data AS text),
        GREATEST(CAST(CAST(pg_current_xact_id() AS text) AS bigint), before.xact)
    FROM (SELECT 1) AS one LEFT JOIN holdfast_journal AS before ON before.stream = :stream AND before.version = :expected
    WHERE CAST(:expected AS bigint) = 0 OR before.version IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING version, xact
)
SELECT pg_notify('holdfast_journal', '') FROM added;

-- The first of them decides: whoever else wants the versions after it needs that one, too.
-- name: append_many
WITH head AS (
    INSERT INTO holdfast_journal (stream, version, data, xact)
    SELECT CAST(:stream AS text), CAST(:expected AS bigint) + 1, CAST(:data AS text),
        GREATEST(CAST(CAST(pg_current_xact_id() AS text) AS bigint), before.xact)
    FROM (SELECT 1) AS one LEFT JOIN holdfast_journal AS before ON before.stream = :stream AND before.version = :expected
    WHERE CAST(:expected AS bigint) = 0 OR before.version IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING version, xact
), tail AS (
    INSERT INTO holdfast_journal (stream, version, data, xact)
    SELECT CAST(:stream AS text), head.version + item.number, item.data, head.xact
    FROM head, json_array_elements_text(CAST(:rest AS json)) WITH ORDINALITY AS item (data, number)
    ORDER BY item.number
    RETURNING version
)
SELECT pg_notify('holdfast_journal', '') FROM head;

-- name: version
SELECT coalesce(max(version), 0) FROM holdfast_journal WHERE stream = :stream;

-- name: read
SELECT stream, version, data, xact || ':' || seq FROM holdfast_journal
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :most;

-- Only what no transaction can come before any more.
-- name: log
SELECT stream, version, data, xact || ':' || seq FROM holdfast_journal
WHERE (xact, seq) > (CAST(:first AS bigint), CAST(:second AS bigint))
    AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)
    AND starts_with(stream, CAST(:prefix AS text))
ORDER BY xact, seq LIMIT :most;

-- Numbers of transactions belong to one server. What was restored into another, or from before a position was given, would be
-- stepped over without a word.
-- name: astray
SELECT 1 FROM (SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) AS next) AS here
WHERE CAST(:first AS bigint) >= here.next OR EXISTS (SELECT 1 FROM holdfast_journal WHERE xact >= here.next);

-- name: snapshot
INSERT INTO holdfast_journal_snapshots AS kept (stream, version, state) VALUES (:stream, :version, :state)
ON CONFLICT (stream) DO UPDATE SET version = excluded.version, state = excluded.state WHERE kept.version < excluded.version;

-- name: last_snapshot
SELECT version, state FROM holdfast_journal_snapshots WHERE stream = :stream;

-- name: listen
LISTEN holdfast_journal;

-- name: unlisten
UNLISTEN holdfast_journal;
