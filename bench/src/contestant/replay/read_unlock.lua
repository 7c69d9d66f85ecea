local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('publish', KEYS[2], '0')
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return nil
end
local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if counter == 0 then
  redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', KEYS[3] .. ':' .. counter + 1)
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, reader in ipairs(redis.call('hkeys', KEYS[1])) do
    local holds = tonumber(redis.call('hget', KEYS[1], reader))
    for hold = holds or 0, 1, -1 do
      longest = math.max(longest, redis.call('pttl', KEYS[1] .. ':' .. reader .. ':timeout:' .. hold))
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    return 0
  end
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1
