-- Which of many names are in use, as far as their state tells: a string of 0 (no), 1 (yes) and 2 (ask further).
-- KEYS: states
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kinds = {}
for i, key in ipairs(KEYS) do
    local state = redis.pcall('GET', key)
    kinds[i] = '0'
    if type(state) == 'string' then
        local ok, kind, _, _, _, _, _, ends = pcall(cmsgpack.unpack, state)
        if ok and kind == 'hf:crowd' then
            kinds[i] = '2'
        elseif ok and kind == 'hf:sole' and ends > now then
            kinds[i] = '1'
        end
    end
end
return table.concat(kinds)
