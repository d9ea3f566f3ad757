-- holdfast's lease table in PostgreSQL 14 and later, version 2. Running it again does no harm.
-- (ASCII only: it has to fit into a database of any encoding.)
-- An application role that may not create needs, besides CONNECT, only:
--   GRANT USAGE ON SCHEMA "holdfast" TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON "holdfast".locks TO app;
-- (Everybody may execute a new function; where that was revoked: GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "holdfast" TO app.)

-- Two at once would stumble over each other.
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('holdfast schema', 0));

CREATE SCHEMA IF NOT EXISTS "holdfast";

-- The row at place 0 is the name itself, and has room for one who is inside: so a mutex is one row, changed in place (HOT).
-- Whoever else is inside stands at places below 0, whoever waits above 0 in the order of arrival.
-- Names and owners are UTF-8 as bytes: they fit into a database of any encoding, and no collation has a say.
-- Functions are called by their full names and look nowhere but in pg_catalog, whatever the caller's search_path says.
-- Times are us since 1970 by the server's clock, whatever the time zone.
CREATE TABLE IF NOT EXISTS "holdfast".locks (
    name bytea NOT NULL,
    place bigint NOT NULL,
    token bigint NOT NULL DEFAULT 0, -- of who is inside
    holder bytea NOT NULL DEFAULT '', -- the secret that renews and releases; empty: nobody
    owner bytea NOT NULL DEFAULT '',
    note bytea NOT NULL DEFAULT '',
    units integer NOT NULL DEFAULT 0,
    fair boolean NOT NULL DEFAULT true,
    since bigint NOT NULL DEFAULT 0,
    ttl bigint NOT NULL DEFAULT 0,
    ends bigint NOT NULL DEFAULT 0,
    ear bigint NOT NULL DEFAULT 0, -- where to ring: the channel of a process ...
    seat bigint NOT NULL DEFAULT 0, -- ... and which of its waiters
    -- Of the name:
    last bigint NOT NULL DEFAULT 0, -- the last token
    capacity integer NOT NULL DEFAULT 0,
    used bigint NOT NULL DEFAULT 0, -- wider than the capacity: it is added to before it is compared
    crowded boolean NOT NULL DEFAULT false, -- there are other places than 0
    last_place bigint NOT NULL DEFAULT 0,
    watched bigint NOT NULL DEFAULT 0, -- until when changes are told
    evicted_owner bytea,
    evicted_token bigint,
    evicted_past bigint,
    evicted_by bytea,
    evicted_at bigint,
    PRIMARY KEY (name, place)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE OR REPLACE FUNCTION "holdfast".version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';

-- How long a conversation may wait for a row that somebody else has locked: what is not done by then is not done at all, since
-- nobody waits for its answer any more. In ms, above the flags of whoever asks; behind a pooler no SET could say it.
CREATE OR REPLACE FUNCTION "holdfast".be_patient(a_flags integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF a_flags >> 8 > 0 THEN PERFORM set_config('lock_timeout', (a_flags >> 8)::text, true); END IF;
END $$;

-- Whoever may not wait (flag 16): is the name's row free? If so, it is locked now.
CREATE OR REPLACE FUNCTION "holdfast".is_busy(a_name bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE SKIP LOCKED;
    RETURN NOT FOUND AND EXISTS (SELECT FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0);
END $$;

-- Ring for the head of the line, if it may enter; when it has, it rings for the next in turn.
-- The ear of a living process holds an advisory lock of its own number. Whose can be had is gone: dead, or cut off and about to
-- come back. It keeps its place for half a second; the next is rung all the same, so that it knows when to look.
CREATE OR REPLACE FUNCTION "holdfast".ring(book "holdfast".locks, now_us bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    waiter record;
    heads integer := 0;
BEGIN
    FOR waiter IN SELECT w.place, w.units, w.ends, w.ear, w.seat, w.fair FROM "holdfast".locks AS w
        WHERE w.name = book.name AND w.place > 0 ORDER BY w.place LIMIT 100
    LOOP
        IF waiter.ends <= now_us THEN
            DELETE FROM "holdfast".locks AS w WHERE w.name = book.name AND w.place = waiter.place;
            CONTINUE;
        END IF;
        IF waiter.ear <> 0 AND pg_try_advisory_xact_lock_shared(waiter.ear) THEN
            UPDATE "holdfast".locks AS w SET ends = least(w.ends, now_us + 500000)
                WHERE w.name = book.name AND w.place = waiter.place;
            CONTINUE;
        END IF;
        heads := heads + 1;
        -- Behind the head, only those who need not wait for it.
        IF book.used + waiter.units <= book.capacity AND (heads = 1 OR NOT waiter.fair) THEN
            IF waiter.ear <> 0 THEN PERFORM pg_notify('holdfast_' || waiter.ear, waiter.seat::text); END IF;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Those whose time is over leave. A bounded number at once; those behind a living head are in nobody's way.
CREATE OR REPLACE FUNCTION "holdfast".settle(INOUT book "holdfast".locks, now_us bigint) LANGUAGE plpgsql AS $$
DECLARE
    party record;
    moved boolean := false;
BEGIN
    IF book.holder <> '' THEN
        -- No grant ends later than its ttl from now: else the clock was set back, and only a ttl is owed.
        book.ends := least(book.ends, now_us + book.ttl);
        IF book.ends <= now_us THEN
            book.holder := '';
            moved := true;
        END IF;
    END IF;
    IF NOT book.crowded THEN
        book.used := CASE WHEN book.holder = '' THEN 0 ELSE book.units END;
        RETURN;
    END IF;
    FOR party IN SELECT p.place, p.units, p.ends, p.ttl FROM "holdfast".locks AS p
        WHERE p.name = book.name AND p.place < 0 AND (p.ends <= now_us OR p.ends > now_us + p.ttl) LIMIT 100
    LOOP
        IF party.ends <= now_us THEN
            DELETE FROM "holdfast".locks AS p WHERE p.name = book.name AND p.place = party.place;
            moved := true;
        ELSE
            UPDATE "holdfast".locks AS p SET ends = now_us + p.ttl WHERE p.name = book.name AND p.place = party.place;
        END IF;
    END LOOP;
    FOR party IN SELECT p.place, p.ends, p.ttl FROM "holdfast".locks AS p
        WHERE p.name = book.name AND p.place > 0 ORDER BY p.place LIMIT 100
    LOOP
        IF party.ends > now_us + party.ttl THEN
            UPDATE "holdfast".locks AS p SET ends = now_us + p.ttl WHERE p.name = book.name AND p.place = party.place;
        END IF;
        EXIT WHEN party.ends > now_us;
        DELETE FROM "holdfast".locks AS p WHERE p.name = book.name AND p.place = party.place;
        moved := true;
    END LOOP;
    -- Counted, and not remembered: units of a row that went in any other way, even by hand, are free again.
    SELECT coalesce(sum(p.units), 0) + CASE WHEN book.holder = '' THEN 0 ELSE book.units END INTO book.used
        FROM "holdfast".locks AS p WHERE p.name = book.name AND p.place < 0;
    IF moved THEN PERFORM "holdfast".ring(book, now_us); END IF;
END $$;

-- The name's row as it is now; `changed` is told to those who watch who is inside.
CREATE OR REPLACE FUNCTION "holdfast".save(book "holdfast".locks, now_us bigint, changed boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changed AND book.watched > now_us THEN PERFORM pg_notify('holdfast_watch_' || 'holdfast', encode(book.name, 'hex')); END IF;
    UPDATE "holdfast".locks AS l SET
        token = book.token, holder = book.holder, owner = book.owner, note = book.note, units = book.units, since = book.since,
        ttl = book.ttl, ends = book.ends, last = book.last, capacity = book.capacity, used = book.used,
        crowded = EXISTS (SELECT FROM "holdfast".locks AS p WHERE p.name = book.name AND p.place <> 0),
        last_place = book.last_place, watched = book.watched,
        evicted_owner = book.evicted_owner, evicted_token = book.evicted_token, evicted_past = book.evicted_past,
        evicted_by = book.evicted_by, evicted_at = book.evicted_at
    WHERE l.name = book.name AND l.place = 0;
END $$;

-- Enter, or join the line, which is told to those who watch the name. Repeating it is harmless.
-- a_flags: 1 fair, 2 join the line, 4 do not wait for the disk, 8 nothing else is in this transaction, 16 wait for no row; above: see
-- be_patient
-- kind 0: inside, the token | 1: not yet, us until the line may move by itself | 2: the capacity is another, which |
-- 3: no more tokens, the last | 4: its row is locked, nothing was done (flag 16)
CREATE OR REPLACE FUNCTION "holdfast".claim(
    a_name bytea, a_holder bytea, a_owner bytea, a_note bytea, a_ttl bigint, a_units integer, a_capacity integer,
    a_flags integer, a_ear bigint, a_seat bigint, OUT kind integer, OUT value bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    book "holdfast".locks;
    mine "holdfast".locks;
    head "holdfast".locks;
    changed boolean := false;
BEGIN
    PERFORM "holdfast".be_patient(a_flags);
    IF a_flags & 16 <> 0 AND "holdfast".is_busy(a_name) THEN
        kind := 4;
        value := 0;
        RETURN;
    END IF;
    IF a_flags & 4 <> 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- a claim that a crash forgets could be granted twice
    END IF;
    -- Nobody here: one row is changed, and that is all.
    UPDATE "holdfast".locks AS l SET
        token = greatest(l.last + 1, now_us), last = greatest(l.last + 1, now_us), holder = a_holder, owner = a_owner,
        note = a_note, units = a_units, capacity = a_capacity, used = a_units, since = now_us, ttl = a_ttl, ends = now_us + a_ttl
    WHERE l.name = a_name AND l.place = 0 AND l.ends <= now_us AND NOT l.crowded AND l.watched <= now_us
        AND l.last < 9007199254740991 AND now_us <= 9007199254740991
    RETURNING l.token INTO value;
    IF FOUND THEN
        kind := 0;
        RETURN;
    END IF;
    LOOP
        SELECT l.* INTO book FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO "holdfast".locks AS l
            (name, place, token, last, holder, owner, note, units, capacity, used, since, ttl, ends)
        VALUES (a_name, 0, now_us, now_us, a_holder, a_owner, a_note, a_units, a_capacity, a_units, now_us, a_ttl, now_us + a_ttl)
        ON CONFLICT DO NOTHING RETURNING l.token INTO value;
        IF FOUND THEN
            DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place <> 0; -- whose name was deleted by hand
            kind := 0;
            RETURN;
        END IF;
    END LOOP;
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    book := "holdfast".settle(book, now_us);
    IF book.holder = a_holder THEN
        value := book.token;
        changed := a_units < book.units;
        book.used := book.used - book.units + least(a_units, book.units);
        book.units := least(a_units, book.units);
        book.ttl := a_ttl;
        book.ends := now_us + a_ttl;
    ELSIF book.crowded THEN
        SELECT p.* INTO mine FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place <> 0 AND p.holder = a_holder;
        SELECT p.* INTO head FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place > 0 ORDER BY p.place LIMIT 1;
        IF mine.place < 0 THEN
            value := mine.token;
            changed := a_units < mine.units;
            book.used := book.used - mine.units + least(a_units, mine.units);
            UPDATE "holdfast".locks AS p SET units = least(a_units, p.units), ttl = a_ttl, ends = now_us + a_ttl
                WHERE p.name = a_name AND p.place = mine.place;
        END IF;
    END IF;
    IF value IS NOT NULL THEN
        IF changed THEN PERFORM "holdfast".ring(book, now_us); END IF;
        PERFORM "holdfast".save(book, now_us, false);
        kind := 0;
        RETURN;
    END IF;
    IF book.used = 0 AND head.place IS NULL THEN
        book.capacity := a_capacity;
    ELSIF book.capacity <> a_capacity THEN
        PERFORM "holdfast".save(book, now_us, false);
        kind := 2;
        value := book.capacity;
        RETURN;
    END IF;
    IF book.used + a_units <= a_capacity AND (a_flags & 1 = 0 OR head.place IS NULL OR head.place = mine.place) THEN
        value := greatest(book.last + 1, now_us);
        IF value > 9007199254740991 THEN
            kind := 3;
            value := book.last;
            PERFORM "holdfast".save(book, now_us, false);
            RETURN;
        END IF;
        IF mine.place > 0 THEN DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place = mine.place; END IF;
        book.last := value;
        book.used := book.used + a_units;
        IF book.holder = '' THEN
            book.token := value;
            book.holder := a_holder;
            book.owner := a_owner;
            book.note := a_note;
            book.units := a_units;
            book.since := now_us;
            book.ttl := a_ttl;
            book.ends := now_us + a_ttl;
        ELSE
            book.last_place := book.last_place + 1;
            INSERT INTO "holdfast".locks (name, place, token, holder, owner, note, units, since, ttl, ends)
            VALUES (a_name, -book.last_place, value, a_holder, a_owner, a_note, a_units, now_us, a_ttl, now_us + a_ttl);
        END IF;
        IF book.used < book.capacity THEN PERFORM "holdfast".ring(book, now_us); END IF; -- perhaps the next fits in, too
        PERFORM "holdfast".save(book, now_us, true);
        kind := 0;
        RETURN;
    END IF;
    IF a_flags & 8 <> 0 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF; -- a forgotten place only delays
    kind := 1;
    IF mine.place > 0 THEN
        UPDATE "holdfast".locks AS p SET ttl = a_ttl, ends = now_us + a_ttl, ear = a_ear, seat = a_seat
            WHERE p.name = a_name AND p.place = mine.place;
    ELSIF a_flags & 2 <> 0 THEN
        book.last_place := book.last_place + 1;
        INSERT INTO "holdfast".locks (name, place, holder, owner, note, units, fair, since, ttl, ends, ear, seat)
        VALUES (a_name, book.last_place, a_holder, a_owner, a_note, a_units, a_flags & 1 <> 0, now_us, a_ttl, now_us + a_ttl, a_ear, a_seat);
        changed := true; -- whoever keeps the name is wanted now
    END IF;
    value := now_us + a_ttl;
    IF book.holder <> '' THEN value := least(value, book.ends); END IF;
    IF book.crowded THEN
        IF head.place <> mine.place IS NOT FALSE THEN value := least(value, head.ends); END IF;
        value := least(value, (SELECT min(p.ends) FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place < 0));
    END IF;
    value := greatest(value - now_us, 1000);
    PERFORM "holdfast".save(book, now_us, changed);
END $$;

-- Leave, whether inside or in line, and ring for whoever may now enter. False: it was not there (any more). NULL: its row is locked,
-- nothing was done (flag 16 of a claim, which see).
DROP FUNCTION IF EXISTS "holdfast".release(bytea, bytea);
CREATE OR REPLACE FUNCTION "holdfast".release(a_name bytea, a_holder bytea, a_flags integer DEFAULT 0) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    book "holdfast".locks;
    gone "holdfast".locks;
    was_in_time boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true); -- a release that a crash forgets only delays the next
    PERFORM "holdfast".be_patient(a_flags);
    IF a_flags & 16 <> 0 AND "holdfast".is_busy(a_name) THEN RETURN NULL; END IF;
    UPDATE "holdfast".locks AS l SET holder = '', used = 0, ends = least(l.ends, now_us)
    WHERE l.name = a_name AND l.place = 0 AND l.holder = a_holder AND NOT l.crowded AND l.watched <= now_us
    RETURNING l.ends >= now_us INTO was_in_time;
    IF FOUND THEN RETURN was_in_time; END IF;
    SELECT l.* INTO book FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    book := "holdfast".settle(book, now_us);
    IF book.holder = a_holder THEN
        gone := book;
        gone.place := -1;
        book.holder := '';
        book.ends := now_us;
    ELSE
        DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place <> 0 AND p.holder = a_holder RETURNING p.* INTO gone;
    END IF;
    IF gone.place < 0 THEN book.used := book.used - gone.units; END IF;
    IF gone.place IS NOT NULL THEN PERFORM "holdfast".ring(book, now_us); END IF;
    PERFORM "holdfast".save(book, now_us, gone.place < 0);
    RETURN coalesce(gone.ends > now_us, false);
END $$;

-- Another ttl for many grants, each judged for itself: a string of 1 (kept), 0 (lost) and ? (its row is locked), in their order.
-- It waits for nobody, having locked many rows; a_flags with patience (see be_patient) is for one grant, which waits so long.
-- Whoever changes a name's rows has locked the one at place 0 before, and whoever waits for several names at once does so in the
-- order of their bytes: so no two wait for each other.
DROP FUNCTION IF EXISTS "holdfast".renew(bytea[], bytea[], bigint[], bigint[]);
CREATE OR REPLACE FUNCTION "holdfast".renew(
    names bytea[], holders bytea[], tokens bigint[], ttls bigint[], a_flags integer DEFAULT 0
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    asked record;
    verdicts text := '';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true); -- a renewal that a crash forgets only shortens the lease
    IF a_flags >> 8 > 0 THEN
        PERFORM "holdfast".be_patient(a_flags);
        PERFORM FROM "holdfast".locks AS l WHERE l.name = names[1] AND l.place = 0 FOR NO KEY UPDATE;
        now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    END IF;
    FOR asked IN SELECT * FROM unnest(names, holders, tokens, ttls) AS a(name, holder, token, ttl) LOOP
        UPDATE "holdfast".locks AS l SET ends = now_us + asked.ttl, ttl = asked.ttl WHERE l.ctid = (
            SELECT o.ctid FROM "holdfast".locks AS o WHERE o.name = asked.name AND o.place = 0 AND o.holder = asked.holder
                AND o.token = asked.token AND o.ends > now_us FOR NO KEY UPDATE SKIP LOCKED);
        IF NOT FOUND THEN
            IF "holdfast".is_busy(asked.name) THEN
                verdicts := verdicts || '?';
                CONTINUE;
            END IF;
            -- Once more, now that nobody else can change it: at place 0 it may have been locked a moment ago.
            UPDATE "holdfast".locks AS l SET ends = now_us + asked.ttl, ttl = asked.ttl
            WHERE l.name = asked.name AND l.place <= 0 AND l.holder = asked.holder AND l.token = asked.token AND l.ends > now_us;
        END IF;
        verdicts := verdicts || CASE WHEN FOUND THEN '1' ELSE '0' END;
    END LOOP;
    RETURN verdicts;
END $$;

-- Have changes of the newest token inside told for some time.
-- kind 0: it is another already | 1: us until somebody's time runs out
CREATE OR REPLACE FUNCTION "holdfast".watch(a_name bytea, a_token bigint, a_long bigint, OUT kind integer, OUT value bigint) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    book "holdfast".locks;
    newest bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO "holdfast".locks (name, place, ends) VALUES (a_name, 0, now_us) ON CONFLICT DO NOTHING;
    SELECT l.* INTO book FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE;
    book := "holdfast".settle(book, now_us);
    book.watched := greatest(book.watched, now_us + a_long);
    PERFORM "holdfast".save(book, now_us, false);
    SELECT coalesce(max(l.token), 0), coalesce(min(l.ends), now_us + a_long) INTO newest, value
        FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place <= 0 AND l.holder <> '' AND l.ends > now_us;
    kind := CASE WHEN newest = a_token THEN 1 ELSE 0 END;
    value := greatest(least(value, now_us + a_long) - now_us, 1000);
END $$;

-- Have whoever keeps a grant told, for some time, when somebody joins the line.
-- kind 0: somebody is in line already, or the grant is over | 1: us to listen for | 4: its row is locked (flag 16 of a claim)
CREATE OR REPLACE FUNCTION "holdfast".wanted(
    a_name bytea, a_holder bytea, a_token bigint, a_long bigint, a_flags integer, OUT kind integer, OUT value bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint;
    book "holdfast".locks;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM "holdfast".be_patient(a_flags);
    value := 0;
    IF a_flags & 16 <> 0 AND "holdfast".is_busy(a_name) THEN
        kind := 4;
        RETURN;
    END IF;
    kind := 0;
    SELECT l.* INTO book FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    book := "holdfast".settle(book, now_us);
    IF NOT EXISTS (SELECT FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place > 0 AND p.ends > now_us)
        AND (book.holder = a_holder AND book.token = a_token OR EXISTS (
            SELECT FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place < 0 AND p.holder = a_holder AND p.token = a_token))
    THEN
        book.watched := greatest(book.watched, now_us + a_long);
        kind := 1;
        value := a_long;
    END IF;
    PERFORM "holdfast".save(book, now_us, false);
END $$;

-- Put out whoever holds a token, mint one past it, and remember who did it. NULL: nobody holds it; negative: no more tokens.
CREATE OR REPLACE FUNCTION "holdfast".evict(a_name bytea, a_token bigint, a_by bytea) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint;
    book "holdfast".locks;
    gone "holdfast".locks;
    past bigint;
BEGIN
    SELECT l.* INTO book FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    book := "holdfast".settle(book, now_us);
    past := greatest(book.last + 1, now_us);
    IF past > 9007199254740991 THEN RETURN -book.last; END IF;
    IF book.holder <> '' AND book.token = a_token THEN
        gone := book;
        book.holder := '';
        book.ends := now_us;
    ELSE
        DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place < 0 AND p.token = a_token RETURNING p.* INTO gone;
    END IF;
    IF gone.place IS NOT NULL THEN
        book.used := book.used - gone.units;
        book.last := past;
        book.evicted_owner := gone.owner;
        book.evicted_token := gone.token;
        book.evicted_past := past;
        book.evicted_by := a_by;
        book.evicted_at := now_us;
        PERFORM "holdfast".ring(book, now_us);
    END IF;
    PERFORM "holdfast".save(book, now_us, gone.place IS NOT NULL);
    RETURN CASE WHEN gone.place IS NULL THEN NULL ELSE past END;
END $$;

-- Names that nobody has used for long go, with whoever died in them: a few pages a call, picked at random, so that no call
-- takes long and none has to remember where the last one stopped. Waits for nobody.
CREATE OR REPLACE FUNCTION "holdfast".sweep(a_retention bigint) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old bigint := extract(epoch FROM clock_timestamp()) * 1000000 - a_retention;
    pages bigint := pg_relation_size('"holdfast".locks') / current_setting('block_size')::bigint;
    first bigint := floor(random() * pages);
    swept record;
    gone integer := 0;
    more integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    -- A name goes as a whole: a row of its own may hold units, or a place, that the name's row still counts.
    FOR swept IN SELECT o.name FROM "holdfast".locks AS o
        WHERE o.ctid >= format('(%s,0)', first)::tid AND o.ctid < format('(%s,0)', first + 8)::tid
            AND o.place = 0 AND o.ends < old AND o.watched < old AND coalesce(o.evicted_at, 0) < old
            AND o.last < old -- else the clock was set back, and its next token would be lower
        FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM "holdfast".locks AS l WHERE l.name = swept.name AND NOT EXISTS (
            SELECT FROM "holdfast".locks AS p WHERE p.name = swept.name AND (p.ends >= old
                OR p.place <> 0 AND p.name >= '\xff' AND EXISTS (SELECT FROM pg_stat_activity AS s WHERE s.pid = p.ear)));
        GET DIAGNOSTICS more = ROW_COUNT;
        gone := gone + more;
    END LOOP;
    -- What has no name's row: of a session that died waiting, or whose name was deleted by hand.
    DELETE FROM "holdfast".locks AS l WHERE l.ctid = ANY (ARRAY(
        SELECT o.ctid FROM "holdfast".locks AS o
        WHERE o.ctid >= format('(%s,0)', first)::tid AND o.ctid < format('(%s,0)', first + 8)::tid
            AND o.place <> 0 AND o.ends < old AND (o.name < '\xff' AND NOT EXISTS (
                    SELECT FROM "holdfast".locks AS p WHERE p.name = o.name AND p.place = 0)
                OR o.name >= '\xff' AND NOT EXISTS (SELECT FROM pg_stat_activity AS s WHERE s.pid = o.ear))
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END $$;

-- ---- Session locks (mode=session): PostgreSQL's advisory locks exclude; the rows here mint tokens and tell who it is.
-- Their names begin with \xff, which no UTF-8 does; `ear` is the backend that holds or waits. A row counts only while its
-- backend has the advisory lock, or waits for it: what a dead one left behind is swept away in time.

-- The server ends a session that is silent for so long, and with it the lock of a holder that was stopped or cut off.
-- 0: as long as it likes.
CREATE OR REPLACE FUNCTION "holdfast".session_patience(a_ttl bigint) RETURNS text LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT set_config('idle_session_timeout', least((a_ttl + 999) / 1000, 2147483647)::text, false)
$$;

-- Inside: mint the token, and say who we are.
CREATE OR REPLACE FUNCTION "holdfast".session_enter(
    a_name bytea, a_holder bytea, a_owner bytea, a_note bytea, a_ttl bigint, a_units integer, a_capacity integer
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    book "holdfast".locks;
BEGIN
    -- A connection of durability=relaxed says so by a setting of ours.
    IF current_setting('holdfast.relaxed', true) = 'yes' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO "holdfast".locks AS l (name, place, last, last_place, ends) VALUES (a_name, 0, now_us, 1, now_us)
    ON CONFLICT (name, place) DO UPDATE SET
        last = greatest(l.last + 1, now_us), last_place = l.last_place + 1, ends = now_us
    RETURNING l.* INTO book;
    IF book.last > 9007199254740991 THEN RAISE EXCEPTION 'the tokens are used up' USING ERRCODE = 'HF003'; END IF;
    -- Alone inside, nobody else can be: what is there was left behind by the dead.
    DELETE FROM "holdfast".locks AS p
        WHERE p.name = a_name AND p.place <> 0 AND (p.holder = a_holder OR p.place < 0 AND a_units = a_capacity);
    INSERT INTO "holdfast".locks (name, place, token, holder, owner, note, units, capacity, since, ttl, ends, ear)
    VALUES (a_name, -book.last_place, book.last, a_holder, a_owner, a_note, a_units, a_capacity, now_us, a_ttl, now_us, pg_backend_pid());
    PERFORM set_config('idle_session_timeout', least((a_ttl + 999) / 1000, 2147483647)::text, false);
    RETURN book.last;
END $$;

-- Enter if that is possible at once: the token; else NULL, and if a_join a row that says who waits.
CREATE OR REPLACE FUNCTION "holdfast".session_try(
    a_name bytea, a_key bigint, a_join integer, a_holder bytea, a_owner bytea, a_note bytea, a_ttl bigint, a_units integer,
    a_capacity integer
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    IF (CASE WHEN a_units = a_capacity THEN pg_try_advisory_lock(a_key) ELSE pg_try_advisory_lock_shared(a_key) END) THEN
        RETURN "holdfast".session_enter(a_name, a_holder, a_owner, a_note, a_ttl, a_units, a_capacity);
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF a_join <> 0 THEN
        INSERT INTO "holdfast".locks (name, place, holder, owner, note, units, capacity, since, ttl, ends, ear)
        VALUES (a_name, now_us, a_holder, a_owner, a_note, a_units, a_capacity, now_us, a_ttl, now_us, pg_backend_pid())
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

-- Wait in PostgreSQL's own line, and enter.
CREATE OR REPLACE FUNCTION "holdfast".session_wait(
    a_name bytea, a_key bigint, a_holder bytea, a_owner bytea, a_note bytea, a_ttl bigint, a_units integer, a_capacity integer
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF a_units = a_capacity THEN PERFORM pg_advisory_lock(a_key); ELSE PERFORM pg_advisory_lock_shared(a_key); END IF;
    RETURN "holdfast".session_enter(a_name, a_holder, a_owner, a_note, a_ttl, a_units, a_capacity);
END $$;

-- A writer becomes a reader, without a moment in between.
CREATE OR REPLACE FUNCTION "holdfast".session_downgrade(a_name bytea, a_key bigint, a_holder bytea, a_units integer)
RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE "holdfast".locks AS p SET units = a_units WHERE p.name = a_name AND p.place < 0 AND p.holder = a_holder;
    PERFORM pg_advisory_lock_shared(a_key);
    RETURN pg_advisory_unlock(a_key);
END $$;

-- Leave, whether inside or in line. All of this session's advisory locks go: one that was granted in the very moment in which
-- its waiting was cancelled, or ran into lock_timeout (55P03), is held although it was reported as an error.
CREATE OR REPLACE FUNCTION "holdfast".session_leave(a_name bytea, a_holder bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was_inside boolean := false;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place <> 0 AND p.holder = a_holder
        RETURNING p.place < 0 INTO was_inside;
    PERFORM pg_advisory_unlock_all();
    PERFORM set_config('idle_session_timeout', '0', false);
    RETURN coalesce(was_inside, false);
END $$;

-- Is that row's backend still the one that wrote it, and does it still have, or want, the advisory lock? A pid may be anybody's by now.
CREATE OR REPLACE FUNCTION "holdfast".session_is_there(party "holdfast".locks) RETURNS boolean LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_locks AS k WHERE k.pid = party.ear AND k.locktype = 'advisory' AND k.objsubid = 1
            AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (k.classid::bigint << 32 | k.objid::bigint)
                = ('x' || encode(substr(sha256('holdfast '::bytea || substr(party.name, 2)), 1, 8), 'hex'))::bit(64)::bigint)
        AND EXISTS (SELECT FROM pg_stat_activity AS s WHERE s.pid = party.ear
            AND coalesce(s.backend_start <= to_timestamp(party.since / 1000000.0), true)) -- NULL: another role's
$$;

-- End the session that a holder lives or waits in, from another: its own connection is broken. False: it was not there (any more).
CREATE OR REPLACE FUNCTION "holdfast".session_end(a_name bytea, a_holder bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone "holdfast".locks;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT p.* INTO gone FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place <> 0 AND p.holder = a_holder;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place = gone.place AND p.holder = a_holder;
    -- Waited for: what comes next may be the same claim, and find itself in its way.
    RETURN "holdfast".session_is_there(gone) AND pg_terminate_backend(gone.ear::integer, 500);
END $$;

-- Put out whoever holds a token: its connection is ended, and a token past it is minted. NULL: nobody holds it.
CREATE OR REPLACE FUNCTION "holdfast".session_evict(a_name bytea, a_token bigint, a_by bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    gone "holdfast".locks;
    past bigint;
BEGIN
    PERFORM FROM "holdfast".locks AS l WHERE l.name = a_name AND l.place = 0 FOR UPDATE; -- first, as whoever enters does
    DELETE FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place < 0 AND p.token = a_token RETURNING p.* INTO gone;
    IF NOT FOUND OR NOT "holdfast".session_is_there(gone) OR NOT pg_terminate_backend(gone.ear::integer) THEN RETURN NULL; END IF;
    UPDATE "holdfast".locks AS l SET
        last = greatest(l.last + 1, now_us), ends = now_us, evicted_owner = gone.owner, evicted_token = gone.token,
        evicted_past = greatest(l.last + 1, now_us), evicted_by = a_by, evicted_at = now_us
    WHERE l.name = a_name AND l.place = 0 RETURNING l.last INTO past;
    RETURN past;
END $$;
