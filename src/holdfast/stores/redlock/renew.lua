-- Another ttl on one node for many grants: a string of 1 (kept) and 0 (not here), in their order. Never brings one back.
-- KEYS: state of each    ARGV: "", retention µs, then holder, token, ttl µs of each
local retention = tonumber(ARGV[2])
-- include node.lua
local verdicts = {}
for i, key in ipairs(KEYS) do
    local holder, token, ttl = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
    local state = look(key)
    local entries = unpacked(state) or {} -- of one whose value is no longer ours, nothing is left; the others are kept
    verdicts[i] = '0'
    for _, e in ipairs(entries) do
        if e[HOLDER] == holder and e[TOKEN] == token and e[ENDS] > now then
            e[ENDS], e[TTL] = now + ttl, ttl
            verdicts[i] = '1'
        end
    end
    if verdicts[i] == '1' then
        redis.call('PEXPIRE', key, 1000) -- a script that begins so is not refused when memory runs out; this needs no more
        write(key, struct.unpack('>d', state, 8), entries)
    end
end
return table.concat(verdicts)
