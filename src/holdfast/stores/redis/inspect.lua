-- Who is inside and who waits. Changes nothing.
-- KEYS: state, entries, ends, line, eviction
-- Answers {capacity, {holding…}, {waiting…}, eviction}: a holding is {owner, token, units, age µs, left µs, note, ttl µs}, a waiting
-- {owner, units, age µs, left µs, fair}, an eviction {} or {owner, evicted token, token, by, age µs}; {3}: a foreign value.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local inside, line, eviction = {}, {}, {}
local state = redis.call('GET', KEYS[1])
local kind = state and string.sub(state, 1, 7) or 'hf:idle'
local capacity = 0
if kind == 'hf:sole' then
    local token, since, ttl, ends = struct.unpack('>dddd', state, 8)
    local units, of, _, owner, note = cmsgpack.unpack(string.sub(state, 41 + string.byte(state, 40)))
    if ends > now then inside[1] = {owner, token, units, now - since, ends - now, note, ttl} end
    capacity = of
elseif kind == 'hf:many' then
    local _, of = cmsgpack.unpack(string.sub(state, 8))
    capacity = of
    for _, holder in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        local packed = redis.call('HGET', KEYS[2], holder)
        if packed then
            local token, units, from, ttl, till, _, its_owner, its_note = cmsgpack.unpack(packed)
            if till > now then inside[#inside + 1] = {its_owner, token, units, now - from, till - now, its_note, ttl} end
        end
    end
    for _, holder in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
        local packed = redis.call('HGET', KEYS[2], holder)
        if packed then
            local _, units, from, _, till, fair, its_owner = cmsgpack.unpack(packed)
            if till > now then line[#line + 1] = {its_owner, units, now - from, till - now, fair and 1 or 0} end
        end
    end
elseif kind ~= 'hf:idle' then
    return {3}
end
local evicted = redis.call('GET', KEYS[5])
if evicted then
    local whom, token, past, by, at = cmsgpack.unpack(evicted)
    eviction = {whom, token, past, by, math.max(0, now - at)}
end
if #inside + #line == 0 then capacity = 0 end
return {capacity, inside, line, eviction}
