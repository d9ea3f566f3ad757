-- Put out of one node whoever holds a token, and accept no token up to the one given. Repeating is harmless.
-- KEYS: state, eviction    ARGV: token, retention µs, the token past it, by, how long to remember ms
-- Answers 1 if it was there, else 0; {2, the last token accepted} if the new token is not above that; {3}: a foreign value.
local retention = tonumber(ARGV[2])
-- include node.lua
local state = look(KEYS[1])
local mark, entries = read(state, KEYS[1])
if not mark then return {3} end
local token, past = tonumber(ARGV[1]), tonumber(ARGV[3])
for i, e in ipairs(entries) do
    if e[TOKEN] == token then
        if past <= mark then return {2, mark} end
        table.remove(entries, i)
        write(KEYS[1], past, entries)
        redis.call('SET', KEYS[2], cmsgpack.pack(e[OWNER], token, past, ARGV[4], now), 'PX', ARGV[5])
        return 1
    end
end
return 0
