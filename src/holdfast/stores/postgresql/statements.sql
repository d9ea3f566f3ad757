-- What a client asks: each is one line "-- name (types of the parameters)" and one statement. "..._many" is the same for an
-- array of each parameter; it answers in their order.
-- Behind a pooler no SET of ours lasts. So whatever is named here is named in full, operators too: else somebody who may create one
-- in a schema that is searched (public), of types that fit better, would have it carried out with our rights.

-- claim (bytea, bytea, bytea, bytea, bigint, integer, integer, integer, bigint, bigint)
SELECT kind, value FROM "holdfast".claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- Not alone in its transaction: a place in line must not relax what others are granted (flag 8).
-- claim_many (bytea[], bytea[], bytea[], bytea[], bigint[], integer[], integer[], integer[], bigint[], bigint[])
SELECT r.kind, r.value
FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS a(n, h, o, t, l, u, c, f, e, s),
    LATERAL "holdfast".claim(n, h, o, t, l, u, c, (f OPERATOR(pg_catalog.&) -9), e, s) AS r

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
SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000.0)::bigint,
    place, token, pg_catalog.octet_length(holder), owner, note, units, fair, since, ends, capacity, evicted_owner, evicted_token,
    evicted_past, evicted_by, evicted_at, ttl
FROM "holdfast".locks WHERE name OPERATOR(pg_catalog.=) $1 ORDER BY place

-- names (bytea)
SELECT DISTINCT name FROM "holdfast".locks
WHERE (holder OPERATOR(pg_catalog.<>) ''::pg_catalog.bytea)
    AND (ends OPERATOR(pg_catalog.>) (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000.0)::bigint)
    AND (name OPERATOR(pg_catalog.>=) $1) AND (name OPERATOR(pg_catalog.<) E'\\xff'::pg_catalog.bytea)
    AND (pg_catalog.substr(name, 1, pg_catalog.octet_length($1)) OPERATOR(pg_catalog.=) $1)
