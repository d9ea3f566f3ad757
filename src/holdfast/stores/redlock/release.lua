-- Leave one node. KEYS: state, waiting    ARGV: holder, retention µs, 1 if it may be listed as waiting, only with this token or a lower one (0: any)
-- Answers 1, or 0 if it was not there (any more); {3} for a foreign value.
local retention = tonumber(ARGV[2])
-- include node.lua
local state = look(KEYS[1])
local mark, entries = read(state, KEYS[1])
if not mark then return {3} end
local waited = ARGV[3] == '1' and redis.call('HDEL', KEYS[2], ARGV[1]) or 0
for i, e in ipairs(entries) do
    if e[HOLDER] == ARGV[1] and (ARGV[4] == '0' or e[TOKEN] <= tonumber(ARGV[4])) then
        table.remove(entries, i)
        redis.call('HDEL', KEYS[2], '') -- nothing: but a script that begins so is not refused when memory runs out
        write(KEYS[1], mark, entries)
        return 1
    end
end
return waited
