-- KEYS: the row, the bell. ARGV: the runner, who may not know its token. Nothing came of the run: the next may begin.
local row = redis.call('HMGET', KEYS[1], 'runner', 'done', 'token')
if row[1] == ARGV[1] and row[2] == '0' then
  redis.call('DEL', KEYS[1])
  redis.pcall('XADD', KEYS[2], 'MAXLEN', '1', row[3] .. '-0', 'done', '0')
  redis.call('PEXPIRE', KEYS[2], 60000)
end
return 1
