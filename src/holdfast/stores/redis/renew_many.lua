-- Another ttl for one grant of a name with more than one party to it: 1 (kept) or 0 (lost).
-- KEYS: state, entries, ends, line    ARGV: holder, token, ttl µs, retention µs
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl, retention = tonumber(ARGV[3]), tonumber(ARGV[4])

-- include book.lua
redis.call('ZREM', LINE, '') -- nothing: but a script that begins so is not refused when memory runs out
local book = open(redis.call('GET', KEYS[1]))
local me = book and book:entry(ARGV[1])
if not me or me.token ~= tonumber(ARGV[2]) or me.ends <= now then return 0 end
book:put(ARGV[1], me, ttl)
book:save()
return 1
