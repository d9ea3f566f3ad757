-- name: add_column
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} bigint;

-- name: function
CREATE OR REPLACE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
    RAISE EXCEPTION 'holdfast: stale token % for % which has seen %', coalesce(NEW.{column}::text, 'NULL'), {label}, OLD.{column}
        USING ERRCODE = 'HF001', HINT = 'Somebody else was given the lock since. Begin anew, with a new lease.';
END
$holdfast$;

-- name: drop_trigger
DROP TRIGGER IF EXISTS {trigger} ON {table};

-- name: trigger
CREATE TRIGGER {trigger} BEFORE UPDATE ON {table} FOR EACH ROW
WHEN (OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} < OLD.{column}))
EXECUTE FUNCTION {trigger}();

-- name: drop_function
DROP FUNCTION IF EXISTS {trigger}();
