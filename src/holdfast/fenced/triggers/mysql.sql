-- name: add_column
ALTER TABLE {table} ADD COLUMN {column} BIGINT;

-- name: drop_trigger
DROP TRIGGER IF EXISTS {trigger};

-- A message may have 128 characters, and must be a variable.
-- name: trigger
CREATE TRIGGER {trigger} BEFORE UPDATE ON {table} FOR EACH ROW
BEGIN
    DECLARE told VARCHAR(128);
    IF OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} < OLD.{column}) THEN
        SET told = LEFT(CONCAT('holdfast: stale token ', COALESCE(NEW.{column}, 'NULL'), ' for ', {label}, ' which has seen ', OLD.{column}), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = told;
    END IF;
END;
