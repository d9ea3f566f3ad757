-- Leave, whether inside or in line, and ring for whoever may now enter.
-- KEYS: state, entries, ends, line    ARGV: holder, retention µs
-- Answers 1, or 0 if it was not there (any more); {3} for a foreign value.
local state = redis.call('GET', KEYS[1])
if not state then return 0 end
local kind, mark, _, _, _, ttl, ends, _, who = cmsgpack.unpack(state)
if kind == 'hf:idle' or (kind == 'hf:sole' and who ~= ARGV[1]) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local retention = tonumber(ARGV[2])
if kind == 'hf:sole' then
    redis.call('SET', KEYS[1], cmsgpack.pack('hf:idle', mark), 'PX', math.ceil(retention / 1000))
    return ends > now and 1 or 0
end

-- include book.lua
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
return me and me.ends > now and 1 or 0
