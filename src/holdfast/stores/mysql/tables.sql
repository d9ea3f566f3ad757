-- Names, owners and notes are bytes: no collation folds case, accents or trailing spaces. Times are µs since 1970 in UTC,
-- by the server's clock, whatever its time zone.

-- Everybody who is inside (token > 0), in line (token = 0), watching (token = -1), or told of those who join the line
-- (token = -2), in the order of arrival.
-- Row 0 of a name is its memory: `mark` is the last token minted for it. Whoever changes anything of a name locks its row 0
-- first, so that no two can wait for each other. The row has a holder while somebody is inside who came when it was idle,
-- which is the common case and changes one row only; without one it is idle, and swept away some time after it expires.
CREATE TABLE IF NOT EXISTS holdfast_claims (
    name VARBINARY(512) NOT NULL,
    seq BIGINT NOT NULL,
    holder VARBINARY(64) NOT NULL,
    owner VARBINARY(1024) NOT NULL,
    units INT NOT NULL,
    capacity INT NOT NULL,
    fair TINYINT NOT NULL,
    token BIGINT NOT NULL,
    mark BIGINT NOT NULL,
    since BIGINT NOT NULL,
    ttl BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    bell VARBINARY(32) NULL,
    rung TINYINT NOT NULL,
    note VARBINARY(1024) NOT NULL,
    PRIMARY KEY (name, seq),
    KEY holdfast_bells (bell)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Session locks (?mode=session): the lock itself is GET_LOCK's; here are its tokens, and who says to hold it.
CREATE TABLE IF NOT EXISTS holdfast_sessions (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    lock_key VARBINARY(64) NOT NULL,
    owner VARBINARY(1024) NOT NULL,
    connection BIGINT NOT NULL,
    silence INT NOT NULL,
    mark BIGINT NOT NULL,
    since BIGINT NOT NULL,
    note VARBINARY(1024) NOT NULL,
    KEY holdfast_sessions_since (since)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Forced releases, the latest thousand.
CREATE TABLE IF NOT EXISTS holdfast_audit (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at BIGINT NOT NULL,
    name VARBINARY(512) NOT NULL,
    owner VARBINARY(1024) NOT NULL,
    evicted_token BIGINT NOT NULL,
    token BIGINT NOT NULL,
    evicted_by VARBINARY(1024) NOT NULL,
    KEY holdfast_audit_names (name, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS holdfast_meta (
    one TINYINT NOT NULL PRIMARY KEY,
    version INT NOT NULL
) ENGINE = InnoDB;
