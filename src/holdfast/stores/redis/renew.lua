-- Another ttl for many grants, each judged for itself: a string of 1 (kept) and 0 (lost), in their order.
-- KEYS: state, entries, ends of each    ARGV: retention µs, then holder, token, ttl µs of each
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local retention = tonumber(ARGV[1])
local call, pack, unpack, ceil = redis.call, cmsgpack.pack, cmsgpack.unpack, math.ceil
local verdicts = {}

local function in_crowd(state, entries, ends, holder, granted, ttl, kind, mark, capacity, used, seq, horizon, watched, unfair)
    local packed = call('HGET', entries, holder)
    if not packed then return '0' end
    local token, units, since, _, ended, fair, owner, note, channel, place, far = unpack(packed)
    if token ~= granted or ended <= now then return '0' end
    call('HSET', entries, holder, pack(token, units, since, ttl, now + ttl, fair, owner, note, channel, place, far))
    call('ZADD', ends, now + ttl, holder)
    if now + ttl + retention > horizon then
        local left = ceil((ttl + retention) / 1000)
        call('SET', state, pack(kind, mark, capacity, used, seq, now + ttl + retention, watched, unfair), 'PX', left)
        call('PEXPIRE', entries, left)
        call('PEXPIRE', ends, left)
    end
    return '1'
end

for i = 1, #KEYS / 3 do
    local key, holder, token, ttl = KEYS[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
    local state = call('GET', key)
    local verdict = '0'
    if state then
        local kind, mark, a, b, c, d, e, f, who, owner, note = unpack(state)
        if kind == 'hf:crowd' then
            verdict = in_crowd(key, KEYS[3 * i - 1], KEYS[3 * i], holder, token, ttl, kind, mark, a, b, c, d, e, f)
        elseif kind == 'hf:sole' and who == holder and mark == token and e > now then
            call('SET', key, pack(kind, mark, a, b, c, ttl, now + ttl, f, who, owner, note),
                'PX', ceil((ttl + retention) / 1000))
            verdict = '1'
        end
    end
    verdicts[i] = verdict
end
return table.concat(verdicts)
