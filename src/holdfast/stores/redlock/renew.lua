-- Another ttl on one node for many grants: a string of 1 (kept) and 0 (not here), in their order. Never brings one back.
-- KEYS: state of each    ARGV: "", retention µs, then holder, token, ttl µs of each
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local verdicts = {}
for i, key in ipairs(KEYS) do
    local holder, token, ttl = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
    local state = redis.call('GET', key)
    verdicts[i] = '0'
    if state and #state > 15 and string.sub(state, 1, 7) == 'hf:node' then
        local entries = {cmsgpack.unpack(string.sub(state, 16))}
        local last = now
        for _, e in ipairs(entries) do
            if e[1] == holder and e[2] == token and e[3] > now then
                e[3], e[4] = now + ttl, ttl
                verdicts[i] = '1'
            end
            last = math.max(last, e[3])
        end
        if verdicts[i] == '1' then
            redis.call('SET', key, string.sub(state, 1, 15) .. cmsgpack.pack(unpack(entries)),
                'PX', math.ceil((last - now + ARGV[2]) / 1000))
        end
    end
end
return table.concat(verdicts)
