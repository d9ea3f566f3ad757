-- name: take
-- An idle name, in one statement: nobody is there to be fair to, and the clock is past its last token.
UPDATE holdfast_claims
SET holder = ?2, owner = ?3, units = ?4, capacity = ?5, fair = ?6, token = ?7, mark = ?7, since = ?8, expires = ?9, note = ?10, bell = ?11
WHERE name = ?1 AND seq = 0 AND holder = '' AND mark < ?7
    AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = ?1 AND seq > 0);

-- name: give_back
-- And left again in one, if meanwhile nobody came who would have to be rung.
UPDATE holdfast_claims SET holder = '', expires = ?4
WHERE name = ?1 AND seq = 0 AND holder = ?2 AND expires > ?3
    AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = ?1 AND seq > 0);

-- name: near
-- Who matters to a decision: the name's memory, those inside, those watching, the head of the line, the one who asks.
SELECT seq, holder, units, capacity, token, expires, bell, mark, owner FROM holdfast_claims
WHERE name = ?1 AND (
    token <> 0 OR holder = ?2
    OR seq = (SELECT min(seq) FROM holdfast_claims WHERE name = ?1 AND token = 0 AND seq > 0)
)
ORDER BY seq;

-- name: expire_row_0
UPDATE holdfast_claims SET holder = '', expires = ?3 WHERE name = ?1 AND seq = 0 AND holder <> '' AND expires <= ?2;

-- name: expire
DELETE FROM holdfast_claims WHERE name = ? AND seq > 0 AND expires <= ?;

-- name: add
INSERT INTO holdfast_claims VALUES (
    ?1, 1 + coalesce((SELECT max(seq) FROM holdfast_claims WHERE name = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10, ?11
);

-- name: found
INSERT INTO holdfast_claims VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9, ?10, ?11);

-- name: remember
UPDATE holdfast_claims SET mark = ? WHERE name = ? AND seq = 0;

-- name: enter
UPDATE holdfast_claims SET token = ?3, since = ?4, expires = ?5, bell = ?6 WHERE name = ?1 AND seq = ?2;

-- name: refresh
UPDATE holdfast_claims SET expires = ?3, units = ?4 WHERE name = ?1 AND seq = ?2;

-- name: renew
UPDATE holdfast_claims SET expires = ?3, bell = ?6 WHERE name = ?1 AND holder = ?2 AND token = ?5 AND expires > ?4;

-- name: leave
DELETE FROM holdfast_claims WHERE name = ? AND seq = ?;

-- name: leave_row_0
UPDATE holdfast_claims SET holder = '', expires = ? WHERE name = ? AND seq = 0;

-- name: unwatch
DELETE FROM holdfast_claims WHERE name = ? AND holder = ?;

-- name: audit
INSERT INTO holdfast_audit (at, name, owner, evicted_token, token, by) VALUES (?, ?, ?, ?, ?, ?);

-- name: trim_audit
DELETE FROM holdfast_audit WHERE id <= (SELECT max(id) - 1000 FROM holdfast_audit);

-- name: last_eviction
SELECT owner, evicted_token, token, by, at FROM holdfast_audit WHERE name = ? ORDER BY id DESC LIMIT 1;

-- name: all
SELECT owner, units, capacity, fair, token, since, expires, note, bell FROM holdfast_claims
WHERE name = ? AND token >= 0 AND holder <> '' AND expires > ? ORDER BY seq;

-- name: names
SELECT DISTINCT name FROM holdfast_claims
WHERE token >= 0 AND holder <> '' AND expires > ?1 AND substr(name, 1, length(?2)) = ?2 ORDER BY name;

-- name: pushy
-- The first in line who need not wait for its head, and for whom there is room.
SELECT holder, bell FROM holdfast_claims
WHERE name = ? AND token = 0 AND seq > 0 AND fair = 0 AND units <= ? ORDER BY seq LIMIT 1;

-- name: swept_to
-- No lock has the empty name: its row remembers how far the sweep has come, for processes that live for one lock only.
SELECT note, units FROM holdfast_claims WHERE name = '' AND seq = 0;

-- name: sweep_on_from
INSERT INTO holdfast_claims VALUES ('', 0, '', '', ?2, 0, 0, 0, 0, 0, 0, NULL, ?1)
ON CONFLICT DO UPDATE SET note = ?1, units = ?2;

-- name: next_rows
SELECT name, seq, holder, expires FROM holdfast_claims WHERE (name, seq) > (?, ?) ORDER BY name, seq LIMIT ?;

-- name: sweep
-- A name's memory only when the wall clock has passed its last token: else the next one could be lower.
DELETE FROM holdfast_claims WHERE name = ?1 AND seq = ?2 AND (
    seq > 0 OR mark < ?3 AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = ?1 AND seq > 0)
);

-- name: times
-- The newest that was taken, and the last at which somebody is over.
SELECT coalesce(max(since), 0), coalesce(max(expires) FILTER (WHERE holder <> ''), 0) FROM holdfast_claims;

-- name: new_boot
UPDATE holdfast_meta SET boot = ?;

-- name: forget_claims
DELETE FROM holdfast_claims WHERE seq > 0;

-- name: forget_holders
UPDATE holdfast_claims SET holder = '', since = ?, expires = ?;
