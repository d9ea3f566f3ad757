-- Leave, whether inside or in line, and ring for whoever may now enter.
-- KEYS: state, entries, ends, line    ARGV: holder, retention µs
-- Answers 1, or 0 if it was not there (any more); {3} for a foreign value. An error, if it has left but may not ring: whoever
-- leaves asks again until somebody was rung, since the next would hear of it only when it looks by itself.
local state = redis.call('GET', KEYS[1])
local kind = state and string.sub(state, 1, 7)
if not state or kind == 'hf:idle' then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if kind == 'hf:sole' then
    if string.sub(state, 41, 40 + string.byte(state, 40)) ~= ARGV[1] then return 0 end
    -- Its token stays where it is, and its expiry is far enough: but for the end of this.
    if type(redis.pcall('SETRANGE', KEYS[1], 3, 'idle')) == 'table' then
        -- Out of memory, most likely. This needs none, and a script that has begun to write may go on.
        redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]))
        redis.call('SETRANGE', KEYS[1], 3, 'idle')
    end
    local token, _, _, ends = struct.unpack('>dddd', state, 8)
    -- A slot that moves takes along what is left of a key's time, not its end. If the clock there is behind the token, that is
    -- too soon: the token is not forgotten before the clock has passed it.
    if token > now then redis.call('PEXPIRE', KEYS[1], math.ceil((token - now + ARGV[2]) / 1000)) end
    return ends > now and 1 or 0
end

local retention = tonumber(ARGV[2])
-- include book.lua
redis.call('ZREM', LINE, '') -- nothing: but a script that begins so is not refused when memory runs out, and this one frees some
local book = open(state)
if not book then return {3} end
book:expire()
local me = book:entry(ARGV[1])
if me then
    book:drop(ARGV[1], me)
    book.changed = book.changed or me.token > 0
end
book:ring()
book:save()
if book.mute then return book.mute end
return me and me.ends > now and 1 or 0
