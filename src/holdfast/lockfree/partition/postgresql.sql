-- name: create_alone
SELECT pg_advisory_xact_lock(7522531002838);

-- name: create_messages
CREATE TABLE IF NOT EXISTS holdfast_queue (
    queue text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    key text COLLATE "C" NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (queue, partition, id)
);

-- Never deleted from: a token must not be given twice.
-- name: create_partitions
CREATE TABLE IF NOT EXISTS holdfast_queue_partitions (
    queue text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (queue, partition)
) WITH (fillfactor = 50);

-- How many partitions a queue has: said once, by whoever comes first.
-- name: create_sizes
CREATE TABLE IF NOT EXISTS holdfast_queue_sizes (
    queue text COLLATE "C" PRIMARY KEY,
    partitions integer NOT NULL
);

-- name: agree
INSERT INTO holdfast_queue_sizes (queue, partitions) VALUES (:queue, :partitions)
ON CONFLICT (queue) DO NOTHING;

-- name: size
SELECT partitions FROM holdfast_queue_sizes WHERE queue = :queue;

-- name: put
WITH known AS (
    INSERT INTO holdfast_queue_partitions (queue, partition) VALUES (:queue, :partition) ON CONFLICT DO NOTHING
), added AS (
    INSERT INTO holdfast_queue (queue, partition, key, data) VALUES (:queue, :partition, :key, :data)
)
SELECT pg_notify('holdfast_queue', '');

-- Of the partitions that nobody has, the one left alone for longest; those that others are taking this moment are skipped,
-- not waited for.
-- name: take
WITH free AS (
    SELECT one.partition FROM holdfast_queue_partitions AS one
    WHERE one.queue = :queue AND one.until <= clock_timestamp()
        AND EXISTS (SELECT 1 FROM holdfast_queue AS message WHERE message.queue = :queue AND message.partition = one.partition)
    ORDER BY one.until LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast_queue_partitions AS one
SET token = one.token + 1, until = clock_timestamp() + CAST(:ttl AS double precision) * interval '1 second'
FROM free WHERE one.queue = :queue AND one.partition = free.partition
RETURNING one.partition, one.token;

-- Read after the token was taken, so that what the previous owner has acknowledged by then is not seen.
-- name: messages
SELECT id, key, data FROM holdfast_queue WHERE queue = :queue AND partition = :partition ORDER BY id LIMIT :most;

-- The token is looked at, and its row locked, in the same statement that deletes: nobody comes in between.
-- name: ack
WITH mine AS (
    UPDATE holdfast_queue_partitions
    SET until = clock_timestamp() + CAST(:ttl AS double precision) * interval '1 second'
    WHERE queue = :queue AND partition = :partition AND token = :token
    RETURNING token
), done AS (
    DELETE FROM holdfast_queue AS message USING mine
    WHERE message.queue = :queue AND message.partition = :partition AND message.id = :id
    RETURNING message.id
)
SELECT (SELECT count(*) FROM mine), (SELECT count(*) FROM done);

-- name: token
SELECT token FROM holdfast_queue_partitions WHERE queue = :queue AND partition = :partition;

-- name: release
UPDATE holdfast_queue_partitions SET until = clock_timestamp()
WHERE queue = :queue AND partition = :partition AND token = :token;

-- name: discard
WITH gone AS (DELETE FROM holdfast_queue WHERE queue = :queue), size AS (DELETE FROM holdfast_queue_sizes WHERE queue = :queue)
DELETE FROM holdfast_queue_partitions WHERE queue = :queue;

-- name: count
SELECT count(*) FROM holdfast_queue WHERE queue = :queue;
