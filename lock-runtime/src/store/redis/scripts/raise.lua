-- Raises a lock's last fencing token to the number that another server of the quorum drew. Rules of docs/protocol.md: 8, and Q3
-- (a majority will draw no smaller number).
--
-- KEYS  lock, fence
-- ARGV  token, fencing token
-- Returns 1 (this server will draw no smaller number), or 0: not owned

-- include values.lua

if value_of(KEYS[1]) ~= ARGV[1] then
  return 0
end
if (tonumber(read(KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', FENCE_TTL)
end
return 1
