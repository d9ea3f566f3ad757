-- KEYS: the partition's stream, who has which partition (a sorted set: until when, in ms), the bell.
-- ARGV: partition, key, text.
redis.call('XADD', KEYS[1], '*', 'k', ARGV[2], 'd', ARGV[3])
redis.call('ZADD', KEYS[2], 'NX', 0, ARGV[1])
redis.call('LPUSH', KEYS[3], 1)
redis.call('LTRIM', KEYS[3], 0, 31)
return 1
