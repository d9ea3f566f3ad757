-- KEYS: the stream, the log of all streams. ARGV: the expected version, the stream's name, who writes, events.
-- An entry's id is its version, so the server itself refuses the same version twice.
local last = 0
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if newest[1] then
    last = tonumber(string.match(newest[1][1], '^%d+'))
end
if last ~= tonumber(ARGV[1]) then
    -- A client whose answer was lost sends again: what stands there may be its own.
    local id = string.format('%d', tonumber(ARGV[1]) + 1) .. '-0'
    local there = redis.call('XRANGE', KEYS[1], id, id)[1]
    if there and there[2][6] == ARGV[3] then
        return -1
    end
    return last
end
for i = 4, #ARGV do
    last = last + 1
    local version = string.format('%d', last)
    local position = redis.call('XADD', KEYS[2], '*', 's', ARGV[2], 'v', version)
    redis.call('XADD', KEYS[1], version .. '-0', 'd', ARGV[i], 'p', position, 'n', ARGV[3])
end
return -1
