-- KEYS: the partition's stream, who has which partition, the tokens. ARGV: partition, token, id, ttl in ms.
-- With an empty id: release. A message that is done, and a partition that is free, in one step with the look at the token.
local seen = redis.call('HGET', KEYS[3], ARGV[1])
if seen ~= ARGV[2] then
    return { seen or '0', 0 }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[3] == '' then
    redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now), ARGV[1])
    return { seen, 1 }
end
redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + ARGV[4]), ARGV[1])
return { seen, redis.call('XDEL', KEYS[1], ARGV[3]) }
