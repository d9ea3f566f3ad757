-- One CALL is one conversation: one round trip, one transaction. SQL SECURITY DEFINER, so that an application needs EXECUTE
-- alone, and so that every waiter, whoever it logs in as, can be rung by every other (see holdfast_ring_1). And so no argument
-- is trusted: whoever may call these could otherwise wipe what is not theirs, or shut everybody out. The time is never one.
-- Nor is the caller's session: in SERIALIZABLE, within a transaction of their own, whatever is only looked at would stay locked for
-- as long as they stay. So what looks begins with READ COMMITTED, which is an error inside of a transaction; what decides has one
-- of its own, and commits it. Those that are parts of others have their caller's rights: called alone they may touch nothing.

-- procedure: holdfast_heir_1
-- Inside a transaction that holds row 0: mark the one in line who may enter now. One whose bell (a named lock that lives as
-- long as its connection) is nobody's is dead, or was cut off: it has a moment to come back, and then leaves the line. All of
-- those at once, and whoever is behind them is marked too, and told when that moment is over.
CREATE PROCEDURE holdfast_heir_1(IN p_name VARBINARY(512))
MODIFIES SQL DATA
SQL SECURITY INVOKER
heir: BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE v_seq, v_used, v_room BIGINT;
    DECLARE v_units, v_capacity INT;
    DECLARE v_bell VARBINARY(32);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    SELECT COALESCE(SUM(units), 0) INTO v_used FROM holdfast_claims
    WHERE name = p_name AND token > 0 AND holder <> '' AND expires > v_now;
    look: LOOP
        SET v_seq = NULL;
        SELECT seq, units, capacity, bell INTO v_seq, v_units, v_capacity, v_bell FROM holdfast_claims
        WHERE name = p_name AND seq > 0 AND token = 0 AND bell IS NOT NULL AND expires > v_now ORDER BY seq LIMIT 1;
        IF v_seq IS NULL THEN
            LEAVE heir;
        END IF;
        SET v_room = v_capacity - v_used;
        IF v_units > v_room THEN
            -- The first in line who need not wait for its head, and for whom there is room.
            SET v_seq = NULL;
            SELECT seq, bell INTO v_seq, v_bell FROM holdfast_claims
            WHERE name = p_name AND seq > 0 AND token = 0 AND bell IS NOT NULL AND fair = 0 AND units <= v_room
                AND expires > v_now
            ORDER BY seq LIMIT 1;
            IF v_seq IS NULL THEN
                LEAVE heir;
            END IF;
        END IF;
        IF IS_USED_LOCK(CONCAT('holdfast:line:', CONVERT(v_bell USING ascii))) IS NOT NULL THEN
            UPDATE holdfast_claims SET rung = 1 WHERE name = p_name AND seq = v_seq;
            LEAVE heir;
        END IF;
        UPDATE holdfast_claims SET bell = NULL, expires = LEAST(expires, v_now + 750000) WHERE name = p_name AND seq = v_seq;
    END LOOP;
END

-- procedure: holdfast_ring_1
-- After the commit: end the sleep of every process that has somebody marked here. KILL QUERY of a process that listens is the
-- one push that there is; it runs holdfast_listen_1 as the same definer as we, so we may. Its connection does nothing else.
CREATE PROCEDURE holdfast_ring_1(IN p_name VARBINARY(512))
READS SQL DATA
SQL SECURITY INVOKER
BEGIN
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_bell VARBINARY(32);
    DECLARE v_connection BIGINT;
    DECLARE rung_bells CURSOR FOR
        SELECT DISTINCT bell FROM holdfast_claims WHERE name = p_name AND rung = 1 AND bell IS NOT NULL;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
    DECLARE CONTINUE HANDLER FOR 1094, 1095, 1568 BEGIN END; -- 1568: completion_type=CHAIN, and so READ COMMITTED already
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    OPEN rung_bells;
    ring: LOOP
        FETCH rung_bells INTO v_bell;
        IF v_done THEN
            LEAVE ring;
        END IF;
        SET v_connection = IS_USED_LOCK(CONCAT('holdfast:line:', CONVERT(v_bell USING ascii)));
        IF v_connection IS NOT NULL AND v_connection <> CONNECTION_ID() THEN
            KILL QUERY v_connection;
        END IF;
    END LOOP;
    CLOSE rung_bells;
END

-- procedure: holdfast_listen_1
-- Until somebody of this bell is marked, or for so many seconds. A ring between the look and the nap ends the nap too; one
-- that came before the call is seen by the first look. The naps are short for the ring that could not be delivered. A nap is
-- waiting for a lock that another connection of the same process has, and over for good when that is free: the process is gone,
-- or cut off, and its bell shall be nobody's. In MariaDB a SLEEP will not do: who wakes from one holds a mutex of the whole
-- server, and whoever ends one at that moment, anybody's, waits for it for two seconds, as do all sleepers.
CREATE PROCEDURE holdfast_listen_1(IN p_bell VARBINARY(32), IN p_naps INT, IN p_nap DOUBLE)
READS SQL DATA
BEGIN
    DECLARE v_left INT DEFAULT LEAST(p_naps, 100);
    DECLARE v_nap DOUBLE DEFAULT LEAST(GREATEST(p_nap, 0.01), 10);
    DECLARE v_quiet VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('holdfast:quiet:', CONVERT(p_bell USING ascii));
    DECLARE v_sleep INT DEFAULT COALESCE(IS_FREE_LOCK(v_quiet), 1); -- in MySQL, where nobody has it
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    nap: WHILE v_left > 0 AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE bell = p_bell AND rung = 1) DO
        IF v_sleep THEN
            DO SLEEP(v_nap);
        ELSEIF GET_LOCK(v_quiet, v_nap) = 1 THEN
            DO RELEASE_LOCK(v_quiet);
            LEAVE nap;
        END IF;
        SET v_left = v_left - 1;
    END WHILE;
    SELECT holder FROM holdfast_claims WHERE bell = p_bell AND rung = 1;
END

-- procedure: holdfast_sweep_1
-- Inside a transaction: look at the next few rows of the table, and drop those that nobody has used for long. Never waits.
-- No lock has the empty name: its row remembers how far the sweep has come. A name whose last token is ahead of the clock (which
-- was set back) is kept: its next token would be lower.
CREATE PROCEDURE holdfast_sweep_1(IN p_retention BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
sweep: BEGIN
    DECLARE v_done INT DEFAULT 0;
    DECLARE v_found INT DEFAULT 0;
    DECLARE v_from, v_name, v_ours VARBINARY(512); -- ours: whose row 0 we have locked. Of others, somebody may be deciding
    DECLARE v_seq, v_expires, v_mark BIGINT;
    DECLARE v_holder VARBINARY(64);
    DECLARE v_retention BIGINT DEFAULT GREATEST(p_retention, 100000);
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    DECLARE next_rows CURSOR FOR
        SELECT name, seq, holder, expires, mark FROM holdfast_claims
        WHERE name > v_from ORDER BY name, seq LIMIT 8 FOR UPDATE SKIP LOCKED;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
    SELECT LEFT(note, 512) INTO v_from FROM holdfast_claims WHERE name = '' AND seq = 0 FOR UPDATE SKIP LOCKED;
    IF v_from IS NULL THEN
        LEAVE sweep;
    END IF;
    OPEN next_rows;
    SET v_done = 0;
    rows_of_it: LOOP
        FETCH next_rows INTO v_name, v_seq, v_holder, v_expires, v_mark;
        IF v_done THEN
            LEAVE rows_of_it;
        END IF;
        SET v_found = v_found + 1;
        IF v_seq = 0 THEN
            SET v_ours = v_name;
        END IF;
        IF v_seq > 0 AND v_expires <= v_now AND v_name <=> v_ours THEN
            DELETE FROM holdfast_claims WHERE name = v_name AND seq = v_seq;
        ELSEIF v_seq = 0 AND v_mark + v_retention <= v_now
            AND (v_expires <= v_now AND v_holder = '' OR v_expires + v_retention <= v_now)
            AND NOT EXISTS (SELECT 1 FROM holdfast_claims WHERE name = v_name AND seq > 0) THEN
            DELETE FROM holdfast_claims WHERE name = v_name AND seq = 0;
        END IF;
    END LOOP;
    CLOSE next_rows;
    UPDATE holdfast_claims SET note = IF(v_found < 8, '', v_name) WHERE name = '' AND seq = 0;
END

-- procedure: holdfast_claim_1
-- Answers ('granted', token), ('wait', µs until somebody's time runs out), ('capacity', the known one) or ('spent', last token).
CREATE PROCEDURE holdfast_claim_1(
    IN p_name VARBINARY(512), IN p_holder VARBINARY(64), IN p_owner VARBINARY(1024), IN p_ttl BIGINT, IN p_units INT,
    IN p_capacity INT, IN p_fair TINYINT, IN p_queue TINYINT, IN p_note VARBINARY(1024), IN p_bell VARBINARY(32),
    IN p_retention BIGINT
)
MODIFIES SQL DATA
decide: BEGIN
    DECLARE v_now, v_mark, v_token, v_token_0, v_expires_0, v_used, v_head, v_mine, v_soonest, v_stale BIGINT;
    DECLARE v_units_0, v_capacity_0, v_capacity, v_others, v_watchers, v_kept, v_had INT;
    DECLARE v_holder_0, v_head_holder VARBINARY(64);
    DECLARE v_ring INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- nothing that failed keeps the row

    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);
    SET p_ttl = LEAST(GREATEST(p_ttl, 1000), 2592000000000);
    SET p_capacity = GREATEST(p_capacity, 1);
    SET p_units = LEAST(GREATEST(p_units, 1), p_capacity);
    IF p_name = '' OR p_holder = '' THEN -- the row of the one is the sweep's; the other is nobody's, whom nobody could see or put out
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a lock has a name, and a holder';
    END IF;
    SET p_bell = IF(UNHEX(p_bell) IS NULL, '', p_bell); -- of other bells MySQL refuses to look for the lock, and nobody would be let in
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT holder, units, capacity, token, expires, mark
    INTO v_holder_0, v_units_0, v_capacity_0, v_token_0, v_expires_0, v_mark
    FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
    IF v_mark IS NULL THEN
        INSERT INTO holdfast_claims
        VALUES (p_name, 0, '', '', 0, 0, 0, 0, 0, 0, 0, 4611686018427387904, NULL, 0, '') -- the sweep below sees it too
        ON DUPLICATE KEY UPDATE seq = 0;
        SELECT holder, units, capacity, token, expires, mark
        INTO v_holder_0, v_units_0, v_capacity_0, v_token_0, v_expires_0, v_mark
        FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
        CALL holdfast_sweep_1(p_retention);
    END IF;
    -- Only now that the row is ours: waiting for it took time.
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

    SELECT COUNT(*), COALESCE(SUM(expires <= v_now OR expires > v_now + ttl + 1000000), 0)
    INTO v_others, v_stale FROM holdfast_claims WHERE name = p_name AND seq > 0;
    IF v_stale THEN
        DELETE FROM holdfast_claims WHERE name = p_name AND seq > 0 AND expires <= v_now;
        -- The clock was set back: nobody stays for longer than their ttl from now.
        UPDATE holdfast_claims SET expires = v_now + ttl WHERE name = p_name AND seq > 0 AND expires > v_now + ttl;
        SELECT COUNT(*) INTO v_others FROM holdfast_claims WHERE name = p_name AND seq > 0;
    END IF;
    IF v_holder_0 <> '' THEN
        IF v_expires_0 <= v_now THEN
            SET v_holder_0 = '';
        ELSE
            SET v_used = v_units_0, v_capacity = v_capacity_0, v_soonest = v_expires_0;
            IF v_expires_0 > v_now + 1000000 THEN
                SELECT LEAST(expires, v_now + ttl) INTO v_soonest FROM holdfast_claims WHERE name = p_name AND seq = 0;
                IF v_soonest < v_expires_0 - 1000000 THEN
                    UPDATE holdfast_claims SET expires = v_soonest WHERE name = p_name AND seq = 0;
                END IF;
            END IF;
            IF v_holder_0 = p_holder THEN
                SET v_mine = 0, v_had = v_units_0, v_token = v_token_0;
            END IF;
        END IF;
    END IF;
    SET v_used = COALESCE(v_used, 0), v_watchers = 0;
    IF v_others > 0 THEN
        SELECT
            v_used + COALESCE(SUM(IF(token > 0, units, 0)), 0),
            COALESCE(v_capacity, MAX(IF(token >= 0, capacity, NULL))),
            MIN(IF(token = 0, seq, NULL)),
            LEAST(COALESCE(v_soonest, 9223372036854775807), COALESCE(MIN(IF(token > 0, expires, NULL)), 9223372036854775807)),
            COALESCE(SUM(token < 0), 0),
            COALESCE(v_mine, MAX(IF(holder = p_holder, seq, NULL)))
        INTO v_used, v_capacity, v_head, v_soonest, v_watchers, v_mine
        FROM holdfast_claims WHERE name = p_name AND seq > 0;
        IF v_head IS NOT NULL THEN
            SELECT holder, LEAST(v_soonest, expires) INTO v_head_holder, v_soonest
            FROM holdfast_claims WHERE name = p_name AND seq = v_head;
        END IF;
        IF v_mine > 0 THEN
            SELECT units, token INTO v_had, v_token FROM holdfast_claims WHERE name = p_name AND seq = v_mine;
        END IF;
    END IF;

    IF v_token > 0 THEN -- repeated: the answer was lost, or fewer units will do
        SET v_kept = LEAST(v_had, p_units);
        UPDATE holdfast_claims SET expires = v_now + p_ttl, ttl = p_ttl, units = v_kept
        WHERE name = p_name AND seq = v_mine;
        IF v_kept < v_had AND v_head IS NOT NULL THEN
            CALL holdfast_heir_1(p_name);
            SET v_ring = 1;
        END IF;
        COMMIT;
        IF v_ring THEN
            CALL holdfast_ring_1(p_name);
        END IF;
        SELECT 'granted', v_token;
        LEAVE decide;
    END IF;

    IF v_capacity <> p_capacity THEN
        COMMIT;
        SELECT 'capacity', v_capacity;
        LEAVE decide;
    END IF;

    IF v_used + p_units <= p_capacity AND (v_head IS NULL OR v_head_holder = p_holder OR NOT p_fair) THEN
        SET v_token = GREATEST(v_mark + 1, v_now);
        IF v_token > 9007199254740991 THEN -- 2^53 - 1
            ROLLBACK;
            SELECT 'spent', v_mark;
            LEAVE decide;
        END IF;
        IF v_mine IS NULL AND v_holder_0 = '' THEN
            UPDATE holdfast_claims
            SET holder = p_holder, owner = p_owner, units = p_units, capacity = p_capacity, fair = p_fair, token = v_token,
                mark = v_token, since = v_now, ttl = p_ttl, expires = v_now + p_ttl, note = p_note
            WHERE name = p_name AND seq = 0;
        ELSE
            -- An idle row 0 may be swept only when this claim, too, is over.
            UPDATE holdfast_claims
            SET mark = v_token, expires = IF(v_holder_0 = '', v_now + p_ttl + p_retention, expires), holder = v_holder_0
            WHERE name = p_name AND seq = 0;
            IF v_mine IS NULL THEN
                INSERT INTO holdfast_claims
                SELECT p_name, 1 + COALESCE(MAX(seq), 0), p_holder, p_owner, p_units, p_capacity, p_fair, v_token, 0, v_now,
                    p_ttl, v_now + p_ttl, NULL, 0, p_note
                FROM holdfast_claims WHERE name = p_name;
            ELSE
                UPDATE holdfast_claims
                SET token = v_token, since = v_now, ttl = p_ttl, expires = v_now + p_ttl, bell = NULL, rung = 0
                WHERE name = p_name AND seq = v_mine;
            END IF;
        END IF;
        IF v_head IS NOT NULL AND v_used + p_units < p_capacity THEN
            CALL holdfast_heir_1(p_name);
            SET v_ring = 1;
        END IF;
        IF v_watchers > 0 THEN
            UPDATE holdfast_claims SET rung = 1 WHERE name = p_name AND seq > 0 AND token < 0;
            SET v_ring = 1;
        END IF;
        COMMIT;
        IF v_ring THEN
            CALL holdfast_ring_1(p_name);
        END IF;
        SELECT 'granted', v_token;
        LEAVE decide;
    END IF;

    IF p_queue AND v_mine IS NULL THEN
        INSERT INTO holdfast_claims
        SELECT p_name, 1 + COALESCE(MAX(seq), 0), p_holder, p_owner, p_units, p_capacity, p_fair, 0, 0, v_now,
            p_ttl, v_now + p_ttl, p_bell, 0, p_note
        FROM holdfast_claims WHERE name = p_name;
        SET v_soonest = LEAST(v_soonest, v_now + p_ttl);
        IF v_watchers > 0 THEN -- whoever keeps the name is wanted now
            UPDATE holdfast_claims SET rung = 1 WHERE name = p_name AND seq > 0 AND token = -2;
            SET v_ring = 1;
        END IF;
    ELSEIF v_mine IS NOT NULL THEN
        UPDATE holdfast_claims SET expires = v_now + p_ttl, ttl = p_ttl, bell = p_bell, rung = 0
        WHERE name = p_name AND seq = v_mine;
    END IF;
    IF v_head IS NOT NULL AND v_used < p_capacity THEN -- it may be dead, or have missed its bell
        CALL holdfast_heir_1(p_name);
        SELECT LEAST(v_soonest, expires) INTO v_soonest FROM holdfast_claims WHERE name = p_name AND seq = v_head;
        SET v_ring = 1;
    END IF;
    COMMIT;
    IF v_ring THEN
        CALL holdfast_ring_1(p_name);
    END IF;
    SELECT 'wait', GREATEST(v_soonest - v_now, 1000);
END

-- procedure: holdfast_release_1
-- Leave, whether inside, in line or watching. Answers 1, or 0 if it was not there.
CREATE PROCEDURE holdfast_release_1(IN p_name VARBINARY(512), IN p_holder VARBINARY(64), IN p_retention BIGINT)
MODIFIES SQL DATA
BEGIN
    DECLARE v_now, v_expires_0, v_mine, v_token BIGINT;
    DECLARE v_holder_0 VARBINARY(64);
    DECLARE v_others INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed

    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT holder, expires INTO v_holder_0, v_expires_0 FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF v_holder_0 = p_holder THEN
        SET v_mine = IF(v_expires_0 > v_now, 0, NULL), v_token = 1;
        UPDATE holdfast_claims SET holder = '', expires = v_now + p_retention WHERE name = p_name AND seq = 0;
    ELSE
        SELECT seq, token INTO v_mine, v_token FROM holdfast_claims
        WHERE name = p_name AND seq > 0 AND holder = p_holder AND expires > v_now;
        IF v_mine IS NOT NULL THEN
            DELETE FROM holdfast_claims WHERE name = p_name AND seq = v_mine;
        END IF;
    END IF;
    IF v_token >= 0 THEN
        SELECT COUNT(*) INTO v_others FROM holdfast_claims WHERE name = p_name AND seq > 0;
    END IF;
    IF v_others THEN
        CALL holdfast_heir_1(p_name);
        UPDATE holdfast_claims SET rung = 1 WHERE name = p_name AND seq > 0 AND token < 0;
    END IF;
    COMMIT;
    IF v_others THEN
        CALL holdfast_ring_1(p_name);
    END IF;
    SELECT v_mine IS NOT NULL;
END

-- procedure: holdfast_renew_1
-- All in one. Asked with a JSON array of [index, hex of the name, hex of the holder, token]; answers (index, 1) for those that
-- live on, and (index, 0) for those whose row somebody else is changing: they are passed over, unless told to wait. MySQL locks no
-- JSON_TABLE, and refuses to; MariaDB does not know OF, and passes over such a comment.
CREATE PROCEDURE holdfast_renew_1(IN p_grants LONGTEXT, IN p_wait TINYINT)
MODIFIES SQL DATA
BEGIN
    DECLARE v_now BIGINT;
    DECLARE v_ours LONGTEXT CHARACTER SET ascii;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    SET SESSION group_concat_max_len = 1073741824;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    IF p_wait THEN
        SELECT GROUP_CONCAT('["', asked.name_hex, '",', held.seq, ']') INTO v_ours FROM JSON_TABLE(p_grants, '$[*]' COLUMNS (
            name_hex VARCHAR(1024) PATH '$[1]', holder_hex VARCHAR(128) PATH '$[2]', token BIGINT PATH '$[3]'
        )) AS asked
        STRAIGHT_JOIN holdfast_claims AS held FORCE INDEX (PRIMARY)
            ON held.name = UNHEX(asked.name_hex) AND held.holder = UNHEX(asked.holder_hex) AND held.token = asked.token
        FOR UPDATE /*!80000 OF held */;
    ELSE
        SELECT GROUP_CONCAT('["', asked.name_hex, '",', held.seq, ']') INTO v_ours FROM JSON_TABLE(p_grants, '$[*]' COLUMNS (
            name_hex VARCHAR(1024) PATH '$[1]', holder_hex VARCHAR(128) PATH '$[2]', token BIGINT PATH '$[3]'
        )) AS asked
        STRAIGHT_JOIN holdfast_claims AS held FORCE INDEX (PRIMARY)
            ON held.name = UNHEX(asked.name_hex) AND held.holder = UNHEX(asked.holder_hex) AND held.token = asked.token
        FOR UPDATE /*!80000 OF held */ SKIP LOCKED;
    END IF;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    UPDATE JSON_TABLE(CONCAT('[', COALESCE(v_ours, ''), ']'), '$[*]' COLUMNS (
        name_hex VARCHAR(1024) PATH '$[0]', seq BIGINT PATH '$[1]'
    )) AS ours
    STRAIGHT_JOIN holdfast_claims AS held FORCE INDEX (PRIMARY) ON held.name = UNHEX(ours.name_hex) AND held.seq = ours.seq
    SET held.expires = v_now + held.ttl
    WHERE held.expires > v_now AND held.expires < v_now + held.ttl;
    -- Whoever has a whole ttl from now was renewed; the others live, but somebody else has their row.
    SELECT asked.number, held.expires >= v_now + held.ttl FROM JSON_TABLE(p_grants, '$[*]' COLUMNS (
        number INT PATH '$[0]', name_hex VARCHAR(1024) PATH '$[1]', holder_hex VARCHAR(128) PATH '$[2]',
        token BIGINT PATH '$[3]'
    )) AS asked
    STRAIGHT_JOIN holdfast_claims AS held FORCE INDEX (PRIMARY)
        ON held.name = UNHEX(asked.name_hex) AND held.holder = UNHEX(asked.holder_hex) AND held.token = asked.token
    WHERE held.expires > v_now;
    COMMIT;
END

-- procedure: holdfast_watch_1
-- Answers µs to listen for at most; 0 if the newest token inside is another one already.
CREATE PROCEDURE holdfast_watch_1(
    IN p_name VARBINARY(512), IN p_holder VARBINARY(64), IN p_token BIGINT, IN p_ttl BIGINT, IN p_bell VARBINARY(32),
    IN p_retention BIGINT
)
MODIFIES SQL DATA
BEGIN
    DECLARE v_now, v_mark, v_newest, v_soonest BIGINT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);
    SET p_ttl = LEAST(GREATEST(p_ttl, 1000), 2592000000000);
    IF p_name = '' THEN -- whose row is the sweep's
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a lock has a name';
    END IF;
    SET p_bell = IF(UNHEX(p_bell) IS NULL, '', p_bell); -- as above
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT mark INTO v_mark FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF v_mark IS NULL THEN
        INSERT INTO holdfast_claims
        VALUES (p_name, 0, '', '', 0, 0, 0, 0, 0, 0, 0, v_now + p_retention, NULL, 0, '')
        ON DUPLICATE KEY UPDATE seq = 0;
        CALL holdfast_sweep_1(p_retention);
    END IF;
    SELECT COALESCE(MAX(token), 0), MIN(expires) INTO v_newest, v_soonest FROM holdfast_claims
    WHERE name = p_name AND token > 0 AND holder <> '' AND expires > v_now;
    IF v_newest = p_token THEN
        INSERT INTO holdfast_claims
        SELECT p_name, 1 + COALESCE(MAX(seq), 0), p_holder, '', 0, 0, 1, -1, 0, v_now, p_ttl, v_now + p_ttl, p_bell, 0, ''
        FROM holdfast_claims WHERE name = p_name;
    END IF;
    COMMIT;
    SELECT IF(v_newest = p_token, GREATEST(COALESCE(v_soonest, v_now + p_ttl) - v_now, 1000), 0);
END

-- procedure: holdfast_wanted_1
-- Have whoever keeps a grant told when somebody joins the line. Answers µs to listen for at most; 0 if somebody is in line
-- already, or the grant is over.
CREATE PROCEDURE holdfast_wanted_1(
    IN p_name VARBINARY(512), IN p_holder VARBINARY(64), IN p_token BIGINT, IN p_listener VARBINARY(64), IN p_ttl BIGINT,
    IN p_bell VARBINARY(32)
)
MODIFIES SQL DATA
BEGIN
    DECLARE v_now, v_mark, v_mine BIGINT;
    DECLARE v_line INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    SET p_ttl = LEAST(GREATEST(p_ttl, 1000), 2592000000000);
    SET p_bell = IF(UNHEX(p_bell) IS NULL, '', p_bell); -- as above
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT mark INTO v_mark FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT seq INTO v_mine FROM holdfast_claims
    WHERE name = p_name AND holder = p_holder AND token = p_token AND token > 0 AND expires > v_now;
    SELECT COUNT(*) INTO v_line FROM holdfast_claims WHERE name = p_name AND seq > 0 AND token = 0 AND expires > v_now;
    IF v_mine IS NOT NULL AND v_line = 0 THEN
        INSERT INTO holdfast_claims
        SELECT p_name, 1 + COALESCE(MAX(seq), 0), p_listener, '', 0, 0, 1, -2, 0, v_now, p_ttl, v_now + p_ttl, p_bell, 0, ''
        FROM holdfast_claims WHERE name = p_name;
    END IF;
    COMMIT;
    SELECT IF(v_mine IS NOT NULL AND v_line = 0, p_ttl, 0);
END

-- procedure: holdfast_evict_1
-- Answers ('evicted', the token past the old one), ('none', 0) or ('spent', last token).
CREATE PROCEDURE holdfast_evict_1(
    IN p_name VARBINARY(512), IN p_token BIGINT, IN p_by VARBINARY(1024), IN p_retention BIGINT
)
MODIFIES SQL DATA
evict: BEGIN
    DECLARE v_now, v_mark, v_seq, v_past BIGINT;
    DECLARE v_owner VARBINARY(1024);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);
    IF @@SESSION.insert_id <> 0 THEN -- else there would be no number left for who is put out next
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'insert_id is set';
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT mark INTO v_mark FROM holdfast_claims WHERE name = p_name AND seq = 0 FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SELECT seq, owner INTO v_seq, v_owner FROM holdfast_claims
    WHERE name = p_name AND token = p_token AND token > 0 AND holder <> '' AND expires > v_now;
    IF v_seq IS NULL THEN
        COMMIT;
        SELECT 'none', 0;
        LEAVE evict;
    END IF;
    SET v_past = GREATEST(v_mark + 1, v_now);
    IF v_past > 9007199254740991 THEN
        ROLLBACK;
        SELECT 'spent', v_mark;
        LEAVE evict;
    END IF;
    IF v_seq = 0 THEN
        UPDATE holdfast_claims SET holder = '', mark = v_past, expires = v_now + p_retention WHERE name = p_name AND seq = 0;
    ELSE
        DELETE FROM holdfast_claims WHERE name = p_name AND seq = v_seq;
        UPDATE holdfast_claims SET mark = v_past WHERE name = p_name AND seq = 0;
    END IF;
    INSERT INTO holdfast_audit (at, name, owner, evicted_token, token, evicted_by)
    VALUES (v_now, p_name, v_owner, p_token, v_past, p_by);
    DELETE FROM holdfast_audit WHERE id + 1000 <= LAST_INSERT_ID();
    CALL holdfast_heir_1(p_name);
    UPDATE holdfast_claims SET rung = 1 WHERE name = p_name AND seq > 0 AND token < 0;
    COMMIT;
    CALL holdfast_ring_1(p_name);
    SELECT 'evicted', v_past;
END

-- procedure: holdfast_inspect_1
-- Two answers: who is inside or in line, in the order of arrival; and the last forced release.
CREATE PROCEDURE holdfast_inspect_1(IN p_name VARBINARY(512))
READS SQL DATA
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT owner, units, capacity, fair, token, v_now - since, expires - v_now, note, ttl FROM holdfast_claims
    WHERE name = p_name AND token >= 0 AND holder <> '' AND expires > v_now ORDER BY seq;
    SELECT owner, evicted_token, token, evicted_by, v_now - at FROM holdfast_audit
    WHERE name = p_name ORDER BY id DESC LIMIT 1;
END

-- procedure: holdfast_names_1
CREATE PROCEDURE holdfast_names_1(IN p_prefix VARBINARY(512))
READS SQL DATA
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT DISTINCT name FROM holdfast_claims
    WHERE name >= p_prefix AND LEFT(name, LENGTH(p_prefix)) = p_prefix AND token >= 0 AND holder <> '' AND expires > v_now
    ORDER BY name;
END

-- procedure: holdfast_session_claim_1
-- GET_LOCK and a token, higher than any before: minted while the lock is held, so in the order of the grants. Waits for at most
-- so many seconds. Answers ('granted', token, the lock's key), ('wait', 0, …) or ('spent', last token, …). GET_LOCK's names are the server's, have 64 characters and may ignore case: so a key is a hash of database and name.
CREATE PROCEDURE holdfast_session_claim_1(
    IN p_name VARBINARY(512), IN p_owner VARBINARY(1024), IN p_note VARBINARY(1024), IN p_seconds DOUBLE, IN p_silence INT,
    IN p_retention BIGINT
)
MODIFIES SQL DATA
claim: BEGIN
    DECLARE v_now, v_mark BIGINT;
    DECLARE v_old VARBINARY(512);
    DECLARE v_sweeps INT DEFAULT 0;
    DECLARE v_key VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('hf#', LEFT(SHA2(CONCAT(DATABASE(), '/', p_name), 256), 61));
    DECLARE v_again INT DEFAULT COALESCE(IS_USED_LOCK(v_key) = CONNECTION_ID(), 0);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- in a transaction of the caller's, which may be one of XA and never end, no row
    IF NOT v_again THEN
        SET @holdfast_key = NULL;
        IF COALESCE(GET_LOCK(v_key, LEAST(GREATEST(p_seconds, 0), 3600)), 0) = 0 THEN
            SELECT 'wait', 0, v_key;
            LEAVE claim;
        END IF;
    END IF;
    -- A holder that is not heard of for a ttl is cut off, and its lock is free.
    SET SESSION wait_timeout = LEAST(GREATEST(p_silence, 1), 2592001);
    IF v_again AND @holdfast_key <=> v_key THEN -- repeated: the answer was lost
        SELECT 'granted', @holdfast_token, v_key;
        LEAVE claim;
    END IF;
    -- A name that is known: one statement, which is its own transaction. What it says of us counts once its token has a lock, too.
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    UPDATE holdfast_sessions
    SET mark = LAST_INSERT_ID(GREATEST(mark + 1, v_now)), lock_key = v_key, owner = p_owner, connection = CONNECTION_ID(),
        silence = p_silence, since = v_now, note = p_note
    WHERE name = p_name AND mark < 9007199254740991 AND v_now <= 9007199254740991;
    IF ROW_COUNT() = 1 THEN
        SET v_mark = LAST_INSERT_ID();
        COMMIT; -- of who is not in autocommit: else they had the row, whatever becomes of the lock
    ELSE
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        SELECT mark INTO v_mark FROM holdfast_sessions WHERE name = p_name FOR UPDATE;
        SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        IF v_mark IS NULL THEN -- a new name: a few that nobody has used for long make room, if nobody is at them
            SET v_mark = 0;
            INSERT INTO holdfast_sessions VALUES (p_name, v_key, '', 0, 0, 0, v_now, '');
            WHILE v_sweeps < 2 DO
                SET v_old = NULL, v_sweeps = v_sweeps + 1;
                SELECT name INTO v_old FROM holdfast_sessions
                WHERE since < v_now - p_retention AND mark < v_now - p_retention AND IS_USED_LOCK(CONVERT(lock_key USING ascii)) IS NULL
                ORDER BY since LIMIT 1 FOR UPDATE SKIP LOCKED;
                DELETE FROM holdfast_sessions WHERE name = v_old;
            END WHILE;
        END IF;
        SET v_mark = GREATEST(v_mark + 1, v_now);
        IF v_mark > 9007199254740991 THEN
            ROLLBACK;
            DO RELEASE_LOCK(v_key);
            SELECT 'spent', v_mark - 1, v_key;
            LEAVE claim;
        END IF;
        UPDATE holdfast_sessions
        SET mark = v_mark, lock_key = v_key, owner = p_owner, connection = CONNECTION_ID(), silence = p_silence, since = v_now,
            note = p_note
        WHERE name = p_name;
        COMMIT;
    END IF;
    DO GET_LOCK(CONCAT('hf=', v_mark, '=', SUBSTR(v_key, 4, 44)), 0);
    SET @holdfast_key = v_key, @holdfast_token = v_mark;
    SELECT 'granted', v_mark, v_key;
END

-- procedure: holdfast_session_release_1
-- The row stays, with its token: it would be a transaction more to clear it. That it is over is told by the token's lock.
CREATE PROCEDURE holdfast_session_release_1(IN p_name VARBINARY(512))
MODIFIES SQL DATA
BEGIN
    DECLARE v_key VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('hf#', LEFT(SHA2(CONCAT(DATABASE(), '/', p_name), 256), 61));
    IF @holdfast_key <=> v_key THEN
        DO RELEASE_LOCK(CONCAT('hf=', @holdfast_token, '=', SUBSTR(v_key, 4, 44)));
    END IF;
    SET @holdfast_key = NULL;
    SELECT COALESCE(RELEASE_LOCK(v_key), 0);
END

-- procedure: holdfast_session_look_1
-- Who holds: rows whose lock and whose token's lock are taken, by the connection that wrote them. The first alone would not tell: that
-- connection may have released it since, and be taking it again. Of one name, or of all that begin so.
CREATE PROCEDURE holdfast_session_look_1(IN p_name VARBINARY(512), IN p_prefix TINYINT)
READS SQL DATA
BEGIN
    DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT name, owner, mark, v_now - since, silence, note FROM holdfast_sessions
    WHERE (name = p_name OR p_prefix AND name >= p_name AND LEFT(name, LENGTH(p_name)) = p_name)
        AND connection <> 0 AND IS_USED_LOCK(CONVERT(lock_key USING ascii)) = connection
        AND IS_USED_LOCK(CONCAT('hf=', mark, '=', SUBSTR(CONVERT(lock_key USING ascii), 4, 44))) = connection
    ORDER BY name;
    SELECT owner, evicted_token, token, evicted_by, v_now - at FROM holdfast_audit
    WHERE name = p_name AND NOT p_prefix ORDER BY id DESC LIMIT 1;
END

-- procedure: holdfast_session_evict_1
-- Ends the connection that holds `p_token`, and with it the lock. Its definer must own that connection, or have the right to kill.
CREATE PROCEDURE holdfast_session_evict_1(IN p_name VARBINARY(512), IN p_token BIGINT, IN p_by VARBINARY(1024))
MODIFIES SQL DATA
evict: BEGIN
    DECLARE v_now, v_connection, v_past BIGINT;
    DECLARE v_owner VARBINARY(1024);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END; -- a row that is not there is no warning
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; -- no row stays locked by what failed
    IF @@SESSION.insert_id <> 0 THEN -- else there would be no number left for who is put out next
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'insert_id is set';
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT connection, owner INTO v_connection, v_owner FROM holdfast_sessions
    WHERE name = p_name AND mark = p_token AND connection <> 0
        AND IS_USED_LOCK(CONVERT(lock_key USING ascii)) = connection
        AND IS_USED_LOCK(CONCAT('hf=', mark, '=', SUBSTR(CONVERT(lock_key USING ascii), 4, 44))) = connection FOR UPDATE;
    IF v_connection IS NULL THEN
        COMMIT;
        SELECT 'none', 0;
        LEAVE evict;
    END IF;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    SET v_past = GREATEST(p_token + 1, v_now);
    UPDATE holdfast_sessions SET mark = v_past, connection = 0 WHERE name = p_name;
    INSERT INTO holdfast_audit (at, name, owner, evicted_token, token, evicted_by)
    VALUES (v_now, p_name, v_owner, p_token, v_past, p_by);
    DELETE FROM holdfast_audit WHERE id + 1000 <= LAST_INSERT_ID();
    KILL CONNECTION v_connection;
    COMMIT;
    SELECT 'evicted', v_past;
END
