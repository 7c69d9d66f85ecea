if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return nil
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '1')
return 1
