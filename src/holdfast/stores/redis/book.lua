-- A name with more than one party to it. Its state says "hf:many" and holds the numbers; everybody's entry is in the hash
-- ENTRIES, those inside are in the sorted set ENDS by the time they end, those in line in LINE by their arrival.
-- A script that includes this has `now`, `retention` and the keys in this order; it ends with save().
local STATE, ENTRIES, ENDS, LINE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local AT_ONCE = 100 -- how many are looked at, or cleared away, in one step
local GRACE = 500000 -- µs that a waiter whom nobody hears has to come back
local Book = {}
Book.__index = Book

-- nil: the value is not ours.
local function open(packed)
    local book = setmetatable({mark = 0, capacity = 0, used = 0, seq = 0, horizon = 0, watched = 0, unfair = false,
        kept = false}, Book)
    local kind = packed and string.sub(packed, 1, 7) or 'hf:idle'
    if kind == 'hf:many' then
        local seen
        book.mark, book.capacity, book.used, book.seq, book.horizon, book.watched, book.unfair, seen, book.kept =
            cmsgpack.unpack(string.sub(packed, 8))
        -- What the server has evicted does not count: else nobody could enter until the rest expires.
        if redis.call('EXISTS', ENTRIES) == 0 then redis.call('DEL', ENDS, LINE) end
        if redis.call('EXISTS', ENDS) == 0 then book.used = 0 end
        if seen and now < seen then book:mind_the_clock() end
    elseif kind == 'hf:sole' then
        redis.call('DEL', ENTRIES, ENDS, LINE)
        local token, since, ttl, ends = struct.unpack('>dddd', packed, 8)
        if ends - now > ttl then ends = now + ttl end -- the clock was set back
        local from = 41 + string.byte(packed, 40)
        local units, capacity, fair, owner, note = cmsgpack.unpack(string.sub(packed, from))
        book.mark, book.capacity, book.used = token, capacity, units
        book:put(string.sub(packed, 41, from - 1), {token = token, units = units, since = since, fair = fair,
            owner = owner, note = note, channel = '', place = '', far = false}, ttl, ends)
    elseif kind == 'hf:idle' then
        -- Nobody: if there are entries, the server has evicted the state that they belonged to, and they do not count either.
        redis.call('DEL', ENTRIES, ENDS, LINE)
        if packed then book.mark = struct.unpack('>d', packed, 8) end
    else
        return nil
    end
    return book
end

function Book:entry(holder)
    local packed = redis.call('HGET', ENTRIES, holder)
    if not packed then return nil end
    local e = {}
    e.token, e.units, e.since, e.ttl, e.ends, e.fair, e.owner, e.note, e.channel, e.place, e.far =
        cmsgpack.unpack(packed)
    return e
end

-- The first in line whose time is not over. Those before it lose their places, a hundred in one step: 1,000 of them cost the
-- server about 2 ms, once.
function Book:head()
    while true do
        local head, e
        local dead = {}
        for _, holder in ipairs(redis.call('ZRANGE', LINE, 0, AT_ONCE - 1)) do
            e = self:entry(holder)
            if e and e.ends > now then
                head = holder
                break
            end
            dead[#dead + 1] = holder
        end
        if #dead > 0 then
            redis.call('HDEL', ENTRIES, unpack(dead))
            redis.call('ZREM', LINE, unpack(dead))
            self.moved = true
        end
        if head or #dead < AT_ONCE then return head, head and e end
    end
end

function Book:put(holder, e, ttl, ends)
    e.ttl, e.ends = ttl, ends or now + ttl
    redis.call('HSET', ENTRIES, holder,
        cmsgpack.pack(e.token, e.units, e.since, ttl, e.ends, e.fair, e.owner, e.note, e.channel, e.place, e.far))
    if e.token > 0 then redis.call('ZADD', ENDS, e.ends, holder) end
    self.horizon = math.max(self.horizon, e.ends + retention)
end

function Book:drop(holder, e)
    redis.call('HDEL', ENTRIES, holder)
    redis.call('ZREM', ENDS, holder)
    redis.call('ZREM', LINE, holder)
    if e and e.token > 0 then self.used = math.max(0, self.used - e.units) end
end

function Book:inside()
    return redis.call('ZCARD', ENDS)
end

function Book:soonest(otherwise)
    return tonumber(redis.call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')[2] or otherwise)
end

-- Those inside whose time is over, and the dead at the head of the line; those behind a living head are in nobody's way.
-- All of them, a hundred in one step: who asks only once must not be told of somebody whose time is over.
function Book:expire()
    while true do
        local over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', now, 'LIMIT', 0, AT_ONCE)
        for _, holder in ipairs(over) do
            local e = self:entry(holder)
            if e then self.used = math.max(0, self.used - e.units) end
        end
        if #over > 0 then
            redis.call('HDEL', ENTRIES, unpack(over))
            redis.call('ZREM', ENDS, unpack(over))
            self.changed, self.moved = true, true
        end
        if #over < AT_ONCE then break end
    end
    self:head()
    if self:inside() == 0 then self.used = 0 end
end

-- The clock was set back since anything was last written here: nobody, inside or in line, is owed more than a ttl from now.
-- Written later than the clock says, everybody's end is at most a ttl after that, and nothing is to be done.
function Book:mind_the_clock()
    for _, key in ipairs({ENDS, LINE}) do
        for _, holder in ipairs(redis.call('ZRANGE', key, 0, -1)) do
            local e = self:entry(holder)
            if e and e.ends - now > e.ttl then self:put(holder, e, e.ttl) end
        end
    end
end

-- Ring for the head of the line, if it may enter; when it has, it rings for the next in turn. After the state has changed,
-- never before. Whom nobody hears has no connection: it is dead, or was cut off and is about to come back. It keeps its place
-- for a moment; the next is rung all the same, so that it knows when to look. 1,000 dead cost the server some 5 ms, once.
function Book:ring()
    local deaf, from = {}, 0
    while true do
        local some = redis.call('ZRANGE', LINE, from, from + AT_ONCE - 1)
        for _, holder in ipairs(some) do
            local e = self:entry(holder)
            if e and e.ends > now then
                if not deaf[e.channel] and self.used + e.units > self.capacity then return self:ring_unfair() end
                if not deaf[e.channel] and self:hears(e) then return end
                deaf[e.channel] = true -- a process without an ear: none of its waiters hears
                self:put(holder, e, e.ttl, math.min(e.ends, now + GRACE))
            end
        end
        if #some < AT_ONCE then return end
        from = from + AT_ONCE
    end
end

-- The head must wait on: the first of those who need not wait for it, and for whom there is room.
function Book:ring_unfair()
    if not self.unfair then return end
    for _, holder in ipairs(redis.call('ZRANGE', LINE, 1, AT_ONCE)) do
        local e = self:entry(holder)
        if e and not e.fair and e.ends > now and self.used + e.units <= self.capacity then
            if self:hears(e) then return end
            self:put(holder, e, e.ttl, math.min(e.ends, now + GRACE))
        end
    end
end

-- Of a cluster, a bell may be heard on another node: there nobody is known to be deaf. And if whoever rings may not (its rights
-- were changed), nobody is called deaf for that: `mute` says why.
function Book:hears(e)
    local heard = redis.pcall('PUBLISH', e.channel, e.place)
    if type(heard) == 'table' then self.mute = heard end
    return heard ~= 0 or e.far
end

-- Somebody has joined the line. Who is inside and asked for that (wanted.lua) is told.
function Book:tell_keepers()
    self.kept = false
    for _, holder in ipairs(redis.call('ZRANGE', ENDS, 0, AT_ONCE - 1)) do
        local e = self:entry(holder)
        if e and e.channel ~= '' then
            redis.pcall('PUBLISH', e.channel, e.place)
            self.kept = true
        end
    end
end

-- Those who watch the name are told who entered last; 0: somebody left.
function Book:tell(token)
    if self.watched > now then redis.pcall('PUBLISH', STATE, token) end
end

function Book:save()
    if self.changed then self:tell(0) end
    if self.watched <= now and redis.call('EXISTS', ENTRIES) == 0 then
        redis.call('DEL', ENDS, LINE)
        redis.call('SET', STATE, 'hf:idle' .. struct.pack('>d', self.mark), 'PX',
            math.ceil((math.max(self.mark, now) - now + retention) / 1000))
        return
    end
    -- The last token is not forgotten before the wall clock has passed it: the clock may have been set back.
    self.horizon = math.max(self.horizon, self.watched + retention, math.max(self.mark, now) + retention)
    local left = math.ceil((self.horizon - now) / 1000)
    redis.call('SET', STATE, 'hf:many' .. cmsgpack.pack(self.mark, self.capacity, self.used, self.seq,
        self.horizon, self.watched, self.unfair, now, self.kept or false), 'PX', left)
    redis.call('PEXPIRE', ENTRIES, left)
    redis.call('PEXPIRE', ENDS, left)
    redis.call('PEXPIRE', LINE, left)
end
