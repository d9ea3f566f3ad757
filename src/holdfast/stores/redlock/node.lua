-- What one node of a Redlock knows of a name: one string, the last token accepted and everybody inside.
-- A script that includes this has set `retention` (µs).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local HOLDER, TOKEN, ENDS, TTL, SINCE, UNITS, CAPACITY, SLOTS, OWNER, NOTE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- Everybody inside, as they are stored; nil: the value is not ours. Packed and unpacked one by one: cmsgpack takes some 4,000
-- values at once, and no more.
local function unpacked(state)
    if type(state) ~= 'string' or string.sub(state, 1, 7) ~= 'hf:node' or #state < 15 then return nil end
    local entries, at, ok, e = {}, 15
    while at > 0 and at < #state do
        ok, at, e = pcall(cmsgpack.unpack_one, state, at)
        if not ok or type(e) ~= 'table' or #e < NOTE then return nil end
        entries[#entries + 1] = e
    end
    return entries
end

-- What is kept of a name; a table: something else has put a list there, say.
local function look(key)
    local state = redis.pcall('GET', key)
    if type(state) == 'table' and string.sub(state.err, 1, 9) ~= 'WRONGTYPE' then return redis.call('GET', key) end
    return state
end

-- How long to keep it, in ms: `retention` longer than anybody is inside, and than the wall clock takes to pass the last token.
-- A client's clock may be ahead of ours, or ours was set back.
local function kept(mark, last)
    return math.ceil((math.max(last, mark, now) - now + retention) / 1000)
end

local function write(key, mark, entries)
    local last, parts = now, {'hf:node' .. struct.pack('>d', mark)}
    for i, e in ipairs(entries) do
        last = math.max(last, e[ENDS])
        parts[i + 1] = cmsgpack.pack(e)
    end
    redis.call('SET', key, table.concat(parts), 'PX', kept(mark, last))
end

-- The last token accepted and those whose time is not over; nil: the value is not ours.
local function read(state, key)
    -- Nothing here: never used, or forgotten. What is forgotten was passed by the clock `retention` ago: see kept().
    if not state then return math.max(0, now - retention), {} end
    local stored, entries, set_back = unpacked(state), {}, false
    if not stored then return nil end
    local mark = struct.unpack('>d', state, 8)
    for _, e in ipairs(stored) do
        if e[ENDS] - now > e[TTL] then -- the clock was set back: only a ttl is owed, and from now, not from every look anew
            e[ENDS], set_back = now + e[TTL], true
        end
        if e[ENDS] > now then entries[#entries + 1] = e end
    end
    if set_back and key then
        redis.call('PEXPIRE', key, 1000) -- as in renew.lua
        write(key, mark, entries)
    end
    return mark, entries
end

-- Does anybody have one of these slots?
local function taken(entries, slots)
    if slots == '' then return false end
    local wanted = {}
    for slot in string.gmatch(slots, '%d+') do wanted[slot] = true end
    for _, e in ipairs(entries) do
        for slot in string.gmatch(e[SLOTS], '%d+') do
            if wanted[slot] then return true end
        end
    end
    return false
end

-- There is no line among nodes that do not know each other; but whoever wants to know can see who waits.
local function list(holder, ttl, units, fair, owner)
    local since = now
    local known = redis.call('HGET', KEYS[2], holder)
    if known then since = cmsgpack.unpack(known) end
    redis.call('HSET', KEYS[2], holder, cmsgpack.pack(since, now + ttl, units, fair, owner))
    local left = math.ceil(ttl / 1000)
    if redis.call('PTTL', KEYS[2]) < left then redis.call('PEXPIRE', KEYS[2], left) end
end
