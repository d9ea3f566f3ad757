-- One table on the hot path, and as few pages as can be: a transaction costs what it writes, and each page is 4 KB of log.

-- Everybody who is inside (token > 0), in line (token = 0), watching (token = -1) or inside and waiting for others to
-- join (token = -2), in the order of arrival.
-- Row 0 of a name is its memory: `mark` is the last token minted for it. The row has a holder while somebody is inside
-- who came when nobody else was there, which is the common case and takes one statement; without one it is idle, and is
-- swept away some time after it expires.
CREATE TABLE IF NOT EXISTS holdfast_claims (
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    holder TEXT NOT NULL,
    owner TEXT NOT NULL,
    units INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    fair INTEGER NOT NULL,
    token INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    since REAL NOT NULL,
    expires REAL NOT NULL,
    bell TEXT, -- where to ring who waits or watches; of who is inside, the ttl that it asked for
    note TEXT NOT NULL,
    PRIMARY KEY (name, seq)
) WITHOUT ROWID;

-- The boot in which the times above were taken: nobody who held anything outlives a reboot. Containers may have an id of their own.
CREATE TABLE IF NOT EXISTS holdfast_meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    boot TEXT NOT NULL
);

-- Forced releases, the latest thousand.
CREATE TABLE IF NOT EXISTS holdfast_audit (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    evicted_token INTEGER NOT NULL,
    token INTEGER NOT NULL,
    by TEXT NOT NULL
);

INSERT INTO holdfast_meta VALUES (1, 1, '') ON CONFLICT DO NOTHING;
