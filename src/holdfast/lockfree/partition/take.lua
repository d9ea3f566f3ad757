-- KEYS: who has which partition, the tokens, how many partitions there are. ARGV: the prefix of the partitions' streams, ttl
-- in ms, how many at most, how many partitions the client counts.
local count = redis.call('GET', KEYS[3])
if count and count ~= ARGV[4] then
    return { count }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, partition in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
    local found = redis.call('XRANGE', ARGV[1] .. partition, '-', '+', 'COUNT', ARGV[3])
    if found[1] then
        -- Past every token given before, even if the server has forgotten them.
        local token = time[1] * 1000000 + time[2]
        local last = redis.call('HGET', KEYS[2], partition)
        if last and token <= tonumber(last) then
            token = tonumber(last) + 1
        end
        token = string.format('%.0f', token)
        redis.call('HSET', KEYS[2], partition, token)
        redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), partition)
        return { partition, token, found }
    end
    redis.call('ZREM', KEYS[1], partition)
end
return nil
