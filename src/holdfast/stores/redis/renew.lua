-- Another ttl for many grants, each judged for itself: a string of 1 (kept), 0 (lost) and 2 (not alone: ask renew_many).
-- KEYS: state of each    ARGV: ttl µs, ttl + retention in ms, retention µs, then for each its token (a double), its holder with its length
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local call, sub, px = redis.call, string.sub, ARGV[2]
local fresh = struct.pack('>dd', ARGV[1], now + ARGV[1])
local verdicts = {}
for i, key in ipairs(KEYS) do
    local state, grant = redis.pcall('GET', key), ARGV[i + 3]
    local foreign = type(state) == 'table' -- something else has put a list there, say: that lock is gone, and no other
    if foreign and sub(state.err, 1, 9) ~= 'WRONGTYPE' then return state end
    local kind = state and not foreign and sub(state, 1, 7)
    verdicts[i] = '0'
    if kind == 'hf:sole' then
        if sub(state, 8, 15) == sub(grant, 1, 8) and sub(state, 40, 31 + #grant) == sub(grant, 9)
            and struct.unpack('>d', state, 32) > now then
            local token, left = struct.unpack('>d', state, 8), px
            -- A token that is ahead of the clock (which was set back) is not forgotten before the clock has passed it.
            if token > now + ARGV[1] then left = math.ceil((token - now + ARGV[3]) / 1000) end
            local renewed = sub(state, 1, 23) .. fresh .. sub(state, 40)
            if redis.pcall('SET', key, renewed, 'PX', left).err then
                -- Out of memory, most likely. This needs no more than it had, and a script that has begun to write may go on.
                call('PEXPIRE', key, left)
                call('SET', key, renewed, 'PX', left)
            end
            verdicts[i] = '1'
        end
    elseif kind == 'hf:many' then
        verdicts[i] = '2'
    end
end
return table.concat(verdicts)
