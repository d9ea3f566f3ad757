-- KEYS: the rows. ARGV: who writes; then, for each row, the version seen, how many fields to set, and those with their
-- values, how many to delete, and those. 1: written; 0: a row is not at the version that was seen any more.
-- Versions are compared as text: a Lua number keeps 53 bits.
for _, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'version_by') == ARGV[1] then
    return 1 -- sent twice, because the first answer was lost
  end
end

local at = 2
local rows = {}
for number, key in ipairs(KEYS) do
  local row = { seen = ARGV[at], set = {}, delete = {} }
  at = at + 1
  for _ = 1, 2 * tonumber(ARGV[at]) do
    at = at + 1
    row.set[#row.set + 1] = ARGV[at]
  end
  at = at + 1
  for _ = 1, tonumber(ARGV[at]) do
    at = at + 1
    row.delete[#row.delete + 1] = ARGV[at]
  end
  at = at + 1
  if (redis.call('HGET', key, 'version') or '0') ~= row.seen then
    return 0
  end
  rows[number] = row
end

for number, key in ipairs(KEYS) do
  local row = rows[number]
  for field = 1, #row.set, 2 do
    redis.call('HSET', key, row.set[field], row.set[field + 1])
  end
  for _, field in ipairs(row.delete) do
    redis.call('HDEL', key, field)
  end
  if row.seen == '0' then
    local now = redis.call('TIME')
    redis.call('HSET', key, 'version', now[1] .. string.format('%06d', now[2]))
  else
    redis.call('HINCRBY', key, 'version', 1)
  end
  redis.call('HSET', key, 'version_by', ARGV[1])
end
return 1
