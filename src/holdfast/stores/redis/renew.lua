-- Another ttl for many grants, each judged for itself: a string of 1 (kept), 0 (lost) and 2 (not alone: ask renew_many).
-- KEYS: state of each    ARGV: ttl µs, ttl + retention in ms, then for each its token (a double), its holder with its length
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local call, sub, px = redis.call, string.sub, ARGV[2]
local fresh = struct.pack('>dd', ARGV[1], now + ARGV[1])
local verdicts = {}
for i, key in ipairs(KEYS) do
    local state, grant = call('GET', key), ARGV[i + 2]
    local kind = state and sub(state, 1, 7)
    verdicts[i] = '0'
    if kind == 'hf:sole' then
        if sub(state, 8, 15) == sub(grant, 1, 8) and sub(state, 40, 31 + #grant) == sub(grant, 9)
            and struct.unpack('>d', state, 32) > now then
            call('SET', key, sub(state, 1, 23) .. fresh .. sub(state, 40), 'PX', px)
            verdicts[i] = '1'
        end
    elseif kind == 'hf:many' then
        verdicts[i] = '2'
    end
end
return table.concat(verdicts)
