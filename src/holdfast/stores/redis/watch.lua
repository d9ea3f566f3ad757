-- Have changes of the newest token inside told on the channel that is called like the state's key, for some time.
-- KEYS: state, entries, ends, line    ARGV: the token seen (0: nobody), how long µs, retention µs
-- Answers 0 if it is another already, else the µs until somebody's time runs out.
local retention = tonumber(ARGV[3])
-- include opened.lua
local newest = 0
for _, holder in ipairs(redis.call('ZRANGE', ENDS, 0, -1)) do
    local e = book:entry(holder)
    if e then newest = math.max(newest, e.token) end
end
book.watched = math.max(book.watched, now + tonumber(ARGV[2]))
book:save()
if newest ~= tonumber(ARGV[1]) then return 0 end
return math.max(book:soonest(now + tonumber(ARGV[2])) - now, 1000)
