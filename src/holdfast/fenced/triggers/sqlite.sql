-- name: add_column
ALTER TABLE {table} ADD COLUMN {column} INTEGER;

-- name: drop_trigger
DROP TRIGGER IF EXISTS {trigger};

-- Text would compare as higher than every number. (A message must be a constant here.)
-- name: trigger
CREATE TRIGGER {trigger} BEFORE UPDATE ON {table_in_schema} FOR EACH ROW
WHEN OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} < OLD.{column} OR typeof(NEW.{column}) <> 'integer')
BEGIN
    SELECT RAISE(ABORT, {told});
END;
