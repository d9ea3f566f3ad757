-- KEYS: the row, the bell. ARGV: runner, payload, ttl in µs, how long to keep in ms.
-- Takes the key if it is free, and answers with what stands there now. Times are this server's.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local row = redis.call('HMGET', KEYS[1], 'token', 'runner', 'payload', 'done', 'result', 'expires')
local token, expires = tonumber(row[1] or 0), tonumber(row[6] or 0)

local free = not row[1]
if row[1] and row[4] == '0' and expires <= now then
  free = row[3] == ARGV[2] -- what a dead runner has half done, another payload must not finish
end
if free then
  token = string.format('%.0f', math.max(token + 1, now))
  expires = now + tonumber(ARGV[3])
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'token', token, 'runner', ARGV[1], 'payload', ARGV[2], 'done', '0', 'expires',
    string.format('%.0f', expires))
  redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[3]) / 1000) + tonumber(ARGV[4]))
  row = { token, ARGV[1], ARGV[2], '0', '', '' }
end
-- A result that is kept has no end but that of its key.
row[6] = row[4] ~= '0' and '' or string.format('%.0f', expires - now)
return row
