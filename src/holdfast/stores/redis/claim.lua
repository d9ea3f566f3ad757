-- Enter, or join the line. One round trip; repeating it is harmless.
-- KEYS: state, entries, ends, line
-- ARGV: holder, ttl µs, units, capacity, fair, queue, owner, note, channel, place, far, retention µs
-- Answers the token; or {0, µs until the line may move by itself}, {1, the capacity in use}, {2, the last token}, {3}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local holder, ttl, units, capacity = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local fair, queue, retention = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[12])
local state = redis.call('GET', KEYS[1])
local kind, mark, of, used, since, its_ttl, ends, its_fair, who, owner, note = 'hf:idle', 0
if state then
    kind, mark, of, used, since, its_ttl, ends, its_fair, who, owner, note = cmsgpack.unpack(state)
end

-- The common cases in one read and one write: nobody is there, or the one who asks is there alone.
if kind == 'hf:sole' then
    -- No grant ends later than its ttl from now: else the clock was set back, and only the rest of the ttl is owed.
    if ends - now > its_ttl then ends = now + its_ttl end
    if ends <= now then
        kind = 'hf:idle'
    elseif who == holder then
        if units < used then used = units end
        redis.call('SET', KEYS[1],
            cmsgpack.pack('hf:sole', mark, of, used, since, ttl, now + ttl, its_fair, who, owner, note),
            'PX', math.ceil((ttl + retention) / 1000))
        return mark
    elseif of ~= capacity then
        return {1, of}
    elseif used + units > capacity and not queue then
        return {0, ends - now}
    end
end
if kind == 'hf:idle' then
    local token = math.max(mark + 1, now)
    if token > 9007199254740991 then return {2, mark} end
    redis.call('SET', KEYS[1],
        cmsgpack.pack('hf:sole', token, capacity, units, now, ttl, now + ttl, fair, holder, ARGV[7], ARGV[8]),
        'PX', math.ceil((ttl + retention) / 1000))
    return token
end

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
    local token = math.max(book.mark + 1, now)
    if token > 9007199254740991 then
        book:save()
        return {2, book.mark}
    end
    if me then redis.call('ZREM', LINE, holder) end
    book.mark = token
    book.used = book.used + units
    book:put(holder, {token = token, units = units, since = now, fair = fair, owner = ARGV[7], note = ARGV[8],
        channel = '', place = '', far = false}, ttl)
    book:ring()
    book:tell(token)
    book:save()
    return token
end
if queue then
    if not me then
        book.seq = book.seq + 1
        book.unfair = book.unfair or not fair
        redis.call('ZADD', LINE, book.seq, holder)
        me = {token = 0, units = units, since = now, fair = fair, owner = ARGV[7], note = ARGV[8]}
    end
    me.channel, me.place, me.far = ARGV[9], ARGV[10], ARGV[11] == '1'
    book:put(holder, me, ttl)
end
if book.moved then book:ring() end
local wake = book:soonest(now + ttl)
if ahead then
    local first = book:entry(head)
    if first then wake = math.min(wake, first.ends) end
end
book:save()
return {0, math.max(wake - now, 1000)}
