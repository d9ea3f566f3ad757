-- One command, in the same step as the seal. Its keys are declared in KEYS as well, for Redis Cluster.
return redis.call(unpack(ARGV, 2))
