-- What a client asks in session mode: each is one line "-- name (types of the parameters)" and one statement.

-- try (bytea, bigint, integer, bytea, bytea, bytea, bigint, integer, integer)
SELECT "holdfast".session_try($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- wait (bytea, bigint, bytea, bytea, bytea, bigint, integer, integer)
SELECT "holdfast".session_wait($1, $2, $3, $4, $5, $6, $7, $8)

-- downgrade (bytea, bigint, bytea, integer)
SELECT "holdfast".session_downgrade($1, $2, $3, $4)

-- leave (bytea, bytea)
SELECT "holdfast".session_leave($1, $2)

-- patience (bigint)
SELECT "holdfast".session_patience($1)

-- cancel (bigint)
SELECT pg_catalog.pg_cancel_backend($1::integer)

-- present (bigint, bigint)
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS k
    WHERE (k.locktype OPERATOR(pg_catalog.=) 'advisory') AND (k.objsubid OPERATOR(pg_catalog.=) 1) AND (k.pid OPERATOR(pg_catalog.=) $1)
    AND (k.database OPERATOR(pg_catalog.=) (
        SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))
    AND (((k.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) k.objid::bigint) OPERATOR(pg_catalog.=) $2))

-- end (bytea, bytea)
SELECT "holdfast".session_end($1, $2)

-- evict (bytea, bigint, bytea)
SELECT "holdfast".session_evict($1, $2, $3)

-- sweep (bigint)
SELECT "holdfast".sweep($1)

-- inspect (bytea, bigint)
SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000.0)::bigint,
    l.place, l.token, pg_catalog.octet_length(l.holder), l.owner, l.note, l.units, true, l.since,
    (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000.0)::bigint OPERATOR(pg_catalog.+) l.ttl,
    l.capacity, l.evicted_owner, l.evicted_token, l.evicted_past, l.evicted_by, l.evicted_at,
    0::bigint -- when a session was last heard of, it does not tell everybody
FROM "holdfast".locks AS l
LEFT JOIN LATERAL (SELECT k.pid, k.waitstart FROM pg_catalog.pg_locks AS k
    WHERE (k.locktype OPERATOR(pg_catalog.=) 'advisory') AND (k.objsubid OPERATOR(pg_catalog.=) 1) AND (k.pid OPERATOR(pg_catalog.=) l.ear)
    AND (k.granted OPERATOR(pg_catalog.=) (l.place OPERATOR(pg_catalog.<) 0))
    AND (k.database OPERATOR(pg_catalog.=) (
        SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))
    AND (((k.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) k.objid::bigint) OPERATOR(pg_catalog.=) $2) LIMIT 1) AS k ON true
WHERE (l.name OPERATOR(pg_catalog.=) $1) AND ((l.place OPERATOR(pg_catalog.=) 0) OR k.pid IS NOT NULL)
ORDER BY (l.place OPERATOR(pg_catalog.>) 0), k.waitstart, l.place

-- names (bytea)
SELECT DISTINCT l.name FROM "holdfast".locks AS l
WHERE (l.place OPERATOR(pg_catalog.<>) 0) AND (l.name OPERATOR(pg_catalog.>=) $1)
    AND (pg_catalog.substr(l.name, 1, pg_catalog.octet_length($1)) OPERATOR(pg_catalog.=) $1)
    AND ((l.place OPERATOR(pg_catalog.>) 0) OR EXISTS (SELECT FROM pg_catalog.pg_locks AS k
        WHERE (k.locktype OPERATOR(pg_catalog.=) 'advisory') AND (k.objsubid OPERATOR(pg_catalog.=) 1) AND (k.pid OPERATOR(pg_catalog.=) l.ear)
        AND k.granted AND (k.database OPERATOR(pg_catalog.=) (
            SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))))
    AND EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS s WHERE s.pid OPERATOR(pg_catalog.=) l.ear)
