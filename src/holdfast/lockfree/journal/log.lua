-- KEYS: the log. ARGV: after which position, how many at most, the prefix of the keys of streams (all in one slot).
-- The log holds names and versions only; the events are fetched in the same step.
local found = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])) do
    local stream, version = entry[2][2], entry[2][4]
    local id = version .. '-0'
    local event = redis.call('XRANGE', ARGV[3] .. stream, id, id)[1]
    if event then
        found[#found + 1] = { entry[1], stream, version, event[2][2] }
    else
        found[#found + 1] = { entry[1], stream, version } -- deleted by hand
    end
end
return found
