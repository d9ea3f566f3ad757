-- KEYS: the row, the bell. ARGV: token, runner, 1 or 2, the result or why there is none, how long to
-- keep in ms. 0: somebody has taken over.
local row = redis.call('HMGET', KEYS[1], 'token', 'runner', 'done')
if row[1] ~= ARGV[1] or row[2] ~= ARGV[2] then
  return 0
end
if row[3] == '0' then -- else it was sent twice, because the first answer was lost
  redis.call('HSET', KEYS[1], 'done', ARGV[3], 'result', ARGV[4])
  redis.call('HDEL', KEYS[1], 'expires')
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.pcall('XADD', KEYS[2], 'MAXLEN', '1', ARGV[1] .. '-0', 'done', '1')
  redis.call('PEXPIRE', KEYS[2], 60000)
end
return 1
