-- Enter, or join the line. One round trip; repeating it is harmless.
-- KEYS: state, entries, ends, line
-- ARGV: holder, ttl µs, ttl + retention in ms, retention µs, terms; to join the line: channel, place, far
--       Terms are units, capacity, fair, owner, note in MessagePack: made by the client, kept as they are.
-- Answers the token; or {0, µs until the line may move by itself}, {1, the capacity in use}, {2, the last token}, {3}.
--
-- A name that nobody uses is one string, "hf:idle" and its last token (and what is left of its last use). With one party inside and nobody else it is one
-- string too: "hf:sole", token, since, ttl, end (doubles), the holder with its length, the terms. So the common cases are one
-- read and one write, and next to no Lua; everything else is in book.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.call('GET', KEYS[1])
local kind = state and string.sub(state, 1, 7) or 'hf:idle'
local mark = 0
local px = ARGV[3]

-- How far beyond the last token this holder's own is, if the clock is behind: from 1 to 1000. A failover may take back the last
-- grant and its token. The next one to enter must not be given the very same: storage lets equals pass.
local function step(holder)
    local a, b, c = string.byte(holder, -3, -1)
    return 1 + ((a or 0) * 961 + (b or 0) * 31 + (c or 0)) % 1000
end

if kind == 'hf:sole' then
    local token, since, its_ttl, ends = struct.unpack('>dddd', state, 8)
    -- No grant ends later than its ttl from now: else the clock was set back, and only a ttl is owed.
    if ends - now > its_ttl then
        ends = now + its_ttl
        state = string.sub(state, 1, 31) .. struct.pack('>d', ends) .. string.sub(state, 40)
        -- In a cluster, the slot may have moved to a node whose clock is behind, with what is left of its time, not its end.
        redis.call('SET', KEYS[1], state, 'PX', math.ceil((math.max(token - now, its_ttl) + ARGV[4]) / 1000))
    end
    if ends <= now then
        kind, mark = 'hf:idle', token
    else
        local from = 41 + string.byte(state, 40)
        local terms = string.sub(state, from)
        if string.sub(state, 41, from - 1) == ARGV[1] then
            if token > now + ARGV[2] then px = math.ceil((token - now + ARGV[4]) / 1000) end
            if terms ~= ARGV[5] and cmsgpack.unpack(ARGV[5]) < cmsgpack.unpack(terms) then terms = ARGV[5] end
            redis.call('SET', KEYS[1], string.sub(state, 1, 23) .. struct.pack('>dd', ARGV[2], now + ARGV[2])
                .. string.sub(state, 40, from - 1) .. terms, 'PX', px)
            return token
        end
        local used, of = cmsgpack.unpack(terms)
        local units, capacity = cmsgpack.unpack(ARGV[5])
        if of ~= capacity then return {1, of} end
        if used + units > of and not ARGV[6] then return {0, ends - now} end
    end
elseif state and kind == 'hf:idle' then
    mark = struct.unpack('>d', state, 8)
end
if kind == 'hf:idle' then
    local token = now
    if mark >= now then
        -- It outlives the clock, which was set back: kept until the wall clock has passed it, and `retention` longer.
        token = mark + step(ARGV[1])
        if token > now + ARGV[2] then px = math.ceil((token - now + ARGV[4]) / 1000) end
    end
    if token > 9007199254740991 then return {2, mark} end
    redis.call('SET', KEYS[1], 'hf:sole' .. struct.pack('>ddddB', token, now, ARGV[2], now + ARGV[2], #ARGV[1])
        .. ARGV[1] .. ARGV[5], 'PX', px)
    return token
end

local holder, ttl, retention, queue = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), ARGV[6]
local units, capacity, fair, owner, note = cmsgpack.unpack(ARGV[5])
-- include book.lua
local book = open(state)
if not book then return {3} end
book:expire()
local me = book:entry(holder)
if me and me.token > 0 then
    if units < me.units then
        book.used = book.used - me.units + units
        me.units = units
    end
    book:put(holder, me, ttl)
    book:ring()
    book:save()
    return me.token
end
local head = book:head()
if not head and book:inside() == 0 then
    book.capacity = capacity
elseif book.capacity ~= capacity then
    book:save()
    return {1, book.capacity}
end
local ahead = head and head ~= holder
if book.used + units <= capacity and not (ahead and fair) then
    local token = book.mark < now and now or book.mark + step(holder)
    if token > 9007199254740991 then
        book:save()
        return {2, book.mark}
    end
    if me then redis.call('ZREM', LINE, holder) end
    book.mark = token
    book.used = book.used + units
    book:put(holder, {token = token, units = units, since = now, fair = fair, owner = owner, note = note,
        channel = '', place = '', far = false}, ttl)
    book:ring()
    book:tell(token)
    book:save()
    return token
end
if queue then
    me = me or {token = 0, units = units, since = now, fair = fair, owner = owner, note = note}
    book.seq = book.seq + 1
    book.unfair = book.unfair or not fair
    -- It keeps its place, if it has one: the server may have evicted the line, and not who stood in it.
    redis.call('ZADD', LINE, 'NX', book.seq, holder)
    me.channel, me.place, me.far = ARGV[6], ARGV[7], ARGV[8] == '1'
    book:put(holder, me, ttl)
    if book.kept then book:tell_keepers() end
end
if book.moved then book:ring() end
local wake = book:soonest(now + ttl)
if ahead then
    local first = book:entry(head)
    if first then wake = math.min(wake, first.ends) end
end
book:save()
return {0, math.max(wake - now, 1000)}
