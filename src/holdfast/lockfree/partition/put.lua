-- KEYS: the partition's stream, who has which partition (a sorted set: until when, in ms), the bell, how many partitions there
-- are, this very put. ARGV: partition, key, text, how many partitions the client counts, how long a put is remembered in ms, and how
-- long the queue is, if one alone takes from it, and may have gone.
local count = redis.call('GET', KEYS[4])
if count and count ~= ARGV[4] then
    return count
end
-- A client whose answer was lost sends again, and by then the message may be done and gone.
if not redis.call('SET', KEYS[5], 1, 'NX', 'PX', ARGV[5]) then
    return ARGV[4]
end
if not count then
    redis.call('SET', KEYS[4], ARGV[4])
end
redis.call('XADD', KEYS[1], '*', 'k', ARGV[2], 'd', ARGV[3])
redis.call('ZADD', KEYS[2], 'NX', 0, ARGV[1])
redis.call('LPUSH', KEYS[3], 1)
redis.call('LTRIM', KEYS[3], 0, 31)
if ARGV[6] then
    for i = 1, 4 do
        redis.call('PEXPIRE', KEYS[i], ARGV[6])
    end
end
return ARGV[4]
