-- What a client asks: each is one line "-- name (types of the parameters)" and one statement. "..._many" is the same for an
-- array of each parameter; it answers in their order.

-- claim (bytea, bytea, bytea, bytea, bigint, integer, integer, integer, bigint, bigint)
SELECT kind, value FROM "holdfast".claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- Not alone in its transaction: a place in line must not relax what others are granted (flag 8).
-- claim_many (bytea[], bytea[], bytea[], bytea[], bigint[], integer[], integer[], integer[], bigint[], bigint[])
SELECT r.kind, r.value
FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS a(n, h, o, t, l, u, c, f, e, s),
    LATERAL "holdfast".claim(n, h, o, t, l, u, c, f & ~8, e, s) AS r

-- release (bytea, bytea, integer)
SELECT "holdfast".release($1, $2, $3)

-- release_many (bytea[], bytea[], integer[])
SELECT "holdfast".release(n, h, f) FROM unnest($1, $2, $3) AS a(n, h, f)

-- renew (bytea[], bytea[], bigint[], bigint[], integer)
SELECT "holdfast".renew($1, $2, $3, $4, $5)

-- watch (bytea, bigint, bigint)
SELECT kind, value FROM "holdfast".watch($1, $2, $3)

-- wanted (bytea, bytea, bigint, bigint, integer)
SELECT kind, value FROM "holdfast".wanted($1, $2, $3, $4, $5)

-- evict (bytea, bigint, bytea)
SELECT "holdfast".evict($1, $2, $3)

-- sweep (bigint)
SELECT "holdfast".sweep($1)

-- inspect (bytea)
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, place, token, octet_length(holder), owner, note, units, fair,
    since, ends, capacity, evicted_owner, evicted_token, evicted_past, evicted_by, evicted_at, ttl
FROM "holdfast".locks WHERE name = $1 ORDER BY place

-- names (bytea)
SELECT DISTINCT name FROM "holdfast".locks
WHERE holder <> '' AND ends > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    AND name >= $1 AND name < E'\\xff' AND substr(name, 1, octet_length($1)) = $1
