-- Who is inside, as one node sees it. Changes nothing.
-- KEYS: state, waiting, eviction    ARGV: "", retention µs
-- Answers {the last token accepted, {{owner, token, units, age µs, left µs, note, capacity, slots, ttl µs}…}, {{id, owner, units,
-- age µs, left µs, fair}…}, eviction}; {3} for a foreign value.
local retention = tonumber(ARGV[2])
-- include node.lua
local state = look(KEYS[1])
local mark, entries = read(state)
if not mark then return {3} end
local inside, eviction = {}, {}
for i, e in ipairs(entries) do
    inside[i] = {e[OWNER], e[TOKEN], e[UNITS], now - e[SINCE], e[ENDS] - now, e[NOTE], e[CAPACITY], e[SLOTS], e[TTL]}
end
local waiting = {}
local listed = redis.call('HGETALL', KEYS[2])
for i = 1, #listed, 2 do
    local since, ends, units, fair, owner = cmsgpack.unpack(listed[i + 1])
    if ends > now then
        -- The holder is a secret; its digest tells the waiters apart.
        waiting[#waiting + 1] = {redis.sha1hex(listed[i]), owner, units, now - since, ends - now, fair and 1 or 0}
    end
end
local evicted = redis.call('GET', KEYS[3])
if evicted then
    local whom, token, past, by, at = cmsgpack.unpack(evicted)
    eviction = {whom, token, past, by, math.max(0, now - at)}
end
return {mark, inside, waiting, eviction}
