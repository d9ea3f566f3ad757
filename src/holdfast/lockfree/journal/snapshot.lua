-- KEYS: the snapshot. ARGV: its version, its text. An older one never replaces a newer one.
local kept = redis.call('HGET', KEYS[1], 'v')
if not kept or tonumber(kept) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], 'v', ARGV[1], 's', ARGV[2])
end
return 1
