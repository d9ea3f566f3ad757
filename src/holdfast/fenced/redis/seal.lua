-- KEYS[1] is the mark: "token since-in-µs". ARGV[1] is the token presented.
-- Tokens are compared as digits, the longer one being higher: a Lua number keeps only 53 bits whole.
local function seal()
    local mark, token = redis.call('GET', KEYS[1]), ARGV[1]
    if mark then
        local seen = string.match(mark, '^([1-9]%d*) %d+$')
        if not seen then
            return redis.error_reply('HOLDFAST_DAMAGED the mark is not a mark')
        end
        if #token < #seen or (#token == #seen and token < seen) then
            return redis.error_reply('HOLDFAST_STALE ' .. mark)
        end
        if token == seen then
            return nil
        end
    end
    local now = redis.call('TIME')
    redis.call('SET', KEYS[1], token .. ' ' .. now[1] .. string.format('%06d', now[2]))
    return nil
end
local refused = seal()
if refused then
    return refused
end
