-- Another ttl for many grants, each judged for itself: a string of 1 (kept) and 0 (lost), in their order.
-- KEYS: state, entries, ends of each    ARGV: retention µs, then holder, token, ttl µs, ttl + retention in ms of each
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local retention = tonumber(ARGV[1])
local call, pack, unpack, ceil, sub = redis.call, cmsgpack.pack, cmsgpack.unpack, math.ceil, string.sub
local verdicts = {}

local function in_crowd(state, entries, ends, holder, granted, ttl, book)
    local packed = call('HGET', entries, holder)
    if not packed then return '0' end
    local token, units, since, _, ended, fair, owner, note, channel, place, far = unpack(packed)
    if token ~= granted or ended <= now then return '0' end
    call('HSET', entries, holder, pack(token, units, since, ttl, now + ttl, fair, owner, note, channel, place, far))
    call('ZADD', ends, now + ttl, holder)
    local mark, capacity, used, seq, horizon, watched, unfair = unpack(book)
    if now + ttl + retention > horizon then
        horizon = now + ttl + retention
        local left = ceil((ttl + retention) / 1000)
        call('SET', state, 'hf:many' .. pack(mark, capacity, used, seq, horizon, watched, unfair), 'PX', left)
        call('PEXPIRE', entries, left)
        call('PEXPIRE', ends, left)
    end
    return '1'
end

for i = 1, #KEYS / 3 do
    local key, holder, token, ttl = KEYS[3 * i - 2], ARGV[4 * i - 2], tonumber(ARGV[4 * i - 1]), ARGV[4 * i]
    local state = call('GET', key)
    local kind = state and sub(state, 1, 7)
    local verdict = '0'
    if kind == 'hf:sole' then
        local its_token, _, _, ends = struct.unpack('>dddd', state, 8)
        if its_token == token and ends > now and sub(state, 41, 40 + string.byte(state, 40)) == holder then
            call('SET', key, sub(state, 1, 23) .. struct.pack('>dd', ttl, now + ttl) .. sub(state, 40), 'PX', ARGV[4 * i + 1])
            verdict = '1'
        end
    elseif kind == 'hf:many' then
        verdict = in_crowd(key, KEYS[3 * i - 1], KEYS[3 * i], holder, token, tonumber(ttl), sub(state, 8))
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
