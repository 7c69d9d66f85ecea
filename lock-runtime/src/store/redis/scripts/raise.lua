-- Raises a lock's last fencing token to one that another server of the quorum drew: rules 8 and Q3 of docs/protocol.md.
--
-- KEYS  lock, fence
-- ARGV  token, fencing token
-- Returns 1 (no smaller one will be drawn here), or 0: not owned

-- include queue.lua

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
end
return 1
