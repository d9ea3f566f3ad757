-- All rows as they are at one moment.
local found = {}
for number, key in ipairs(KEYS) do
  found[number] = redis.call('HGETALL', key)
end
return found
