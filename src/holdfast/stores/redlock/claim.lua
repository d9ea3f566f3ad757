-- One node's answer to a proposal: enter with this token, if there is room and it is higher than any accepted before.
-- KEYS: state, waiting    ARGV: holder, token, ttl µs, retention µs, terms, slots, waits (1: be listed if refused, 2: is listed)
--       Terms are units, capacity, fair, owner, note in MessagePack. Slots, if not empty, are which of a semaphore's units.
-- Answers the token, if accepted; or {0, µs until somebody's time is over, the last token accepted} for no room, {1, the
-- capacity in use}, {2, the last token accepted} if the proposal is not above it, {3} for a foreign value.
local retention = tonumber(ARGV[4])
-- include node.lua
local state = look(KEYS[1])
local mark, entries = read(state, KEYS[1])
if not mark then return {3} end
local holder, token, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local units, capacity, fair, owner, note = cmsgpack.unpack(ARGV[5])
local others, used, mine, soonest = {}, 0, nil, now + ttl
for _, e in ipairs(entries) do
    if e[HOLDER] == holder then
        mine = e
    else
        if e[CAPACITY] ~= capacity then return {1, e[CAPACITY]} end
        others[#others + 1] = e
        used = used + e[UNITS]
        soonest = math.min(soonest, e[ENDS])
    end
end
if used + units > capacity or taken(others, ARGV[6]) then
    if ARGV[7] ~= '0' then list(holder, ttl, units, fair, owner) end
    return {0, math.max(soonest - now, 1000), mark}
end
if mine and mine[TOKEN] == token then
    mine[UNITS] = math.min(mine[UNITS], units)
    mine[ENDS], mine[TTL] = now + ttl, ttl
else
    -- Also for a claim of ours that was accepted here with a lower proposal, and elsewhere was not.
    -- What was forgotten is known only roughly, and less so as time goes on: then our clock is the number to beat.
    if token <= mark then return {2, state and mark or now} end
    mark = token
    mine = {holder, token, now + ttl, ttl, now, units, capacity, ARGV[6], owner, note}
end
others[#others + 1] = mine
write(KEYS[1], mark, others)
if ARGV[7] == '2' then redis.call('HDEL', KEYS[2], holder) end
return token
