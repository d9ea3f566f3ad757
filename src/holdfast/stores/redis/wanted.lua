-- Have a holder told, on the channel and at the place that it names, when somebody joins the line.
-- KEYS: state, entries, ends, line    ARGV: holder, token, channel, place, retention µs
-- Answers 0; 1 if somebody is in line already, or the grant is over; {3} for a foreign value.
local retention = tonumber(ARGV[5])
-- include opened.lua
local me = book:entry(ARGV[1])
local alone = me and me.token == tonumber(ARGV[2]) and not book:head()
if alone then
    me.channel, me.place = ARGV[3], ARGV[4]
    book:put(ARGV[1], me, me.ttl, me.ends)
    book.kept = true
end
book:save()
return alone and 0 or 1
