-- What one node of a Redlock knows of a name: one string, the last token accepted and everybody inside.
-- A script that includes this has set `retention` (µs).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local HOLDER, TOKEN, ENDS, TTL, SINCE, UNITS, CAPACITY, SLOTS, OWNER, NOTE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- The last token accepted and those whose time is not over; nil: the value is not ours.
local function read(state)
    if not state then return 0, {} end
    if string.sub(state, 1, 7) ~= 'hf:node' then return nil end
    local mark = struct.unpack('>d', state, 8)
    local entries = {}
    if #state > 15 then
        for _, e in ipairs({cmsgpack.unpack(string.sub(state, 16))}) do
            if e[ENDS] - now > e[TTL] then e[ENDS] = now + e[TTL] end -- the clock was set back: only a ttl is owed
            if e[ENDS] > now then entries[#entries + 1] = e end
        end
    end
    return mark, entries
end

local function write(mark, entries)
    local last = now
    for _, e in ipairs(entries) do last = math.max(last, e[ENDS]) end
    local state = 'hf:node' .. struct.pack('>d', mark)
    if #entries > 0 then state = state .. cmsgpack.pack(unpack(entries)) end
    redis.call('SET', KEYS[1], state, 'PX', math.ceil((last - now + retention) / 1000))
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
