-- Which of many names are in use, as far as their state tells: a string of 0 (no), 1 (yes) and 2 (ask further).
-- KEYS: states
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kinds = {}
for i, key in ipairs(KEYS) do
    local state = redis.pcall('GET', key)
    kinds[i] = '0'
    local kind = type(state) == 'string' and string.sub(state, 1, 7)
    if kind == 'hf:many' then
        kinds[i] = '2'
    elseif kind == 'hf:sole' and #state > 39 and struct.unpack('>d', state, 32) > now then
        kinds[i] = '1'
    end
end
return table.concat(kinds)
