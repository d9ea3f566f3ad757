-- The book of a name, without those whose time is over. A script that includes this has its `retention`; it ends with save().
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- include book.lua
local book = open(redis.call('GET', KEYS[1]))
if not book then return {3} end
book:expire()
