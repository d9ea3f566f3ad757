-- One text for all dialects: {…} are quoted names, and the values are bound.
-- name: read
SELECT * FROM {table} WHERE {key};

-- The version always changes, so even MySQL's count of *changed* rows is the count of matched ones.
-- name: write
UPDATE {table} SET {changes}{version} = {version} + 1 WHERE {key} AND {version} = :seen;

-- name: swap
UPDATE {table} SET {changes} WHERE {key} AND ({where});

-- MySQL counts only rows that really changed, unless the connection was opened with FOUND_ROWS. A row that was matched
-- and is already as it should be is told apart by the "last insert id" that evaluating this assignment leaves behind.
-- name: swap_mysql
UPDATE {table} SET {changes}, {column} = IF(LAST_INSERT_ID(1) = 1, {column}, {column}) WHERE {key} AND ({where});
