-- Evict whoever holds a token, mint one past it, and remember who did it.
-- KEYS: state, entries, ends, line, eviction    ARGV: token, by, retention µs, how long to remember ms
-- Answers the new token, 0 if nobody holds that one; {2, the last token} if there are no more; {3} for a foreign value.
local retention = tonumber(ARGV[3])
-- include opened.lua
for _, holder in ipairs(redis.call('ZRANGE', ENDS, 0, -1)) do
    local e = book:entry(holder)
    if e and e.token == tonumber(ARGV[1]) then
        local past = book.mark < now and now or book.mark + 1000 -- no holder's step is longer: see claim.lua
        if past > 9007199254740991 then
            book:save()
            return {2, book.mark}
        end
        if book.kept then book:tell_keepers() end -- who was lent it must not be lent it again
        book:drop(holder, e)
        book.mark = past
        book.changed = true
        redis.call('SET', KEYS[5], cmsgpack.pack(e.owner, e.token, past, ARGV[2], now), 'PX', ARGV[4])
        book:ring()
        book:save()
        return past
    end
end
book:save()
return 0
