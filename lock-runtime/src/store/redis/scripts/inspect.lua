-- Reads a lock without changing anything.
--
-- KEYS  lock, queue, shared
-- ARGV  how many waiting processes and how many shared leases to list
-- Returns { }                                                        nobody has the lock
--   or { owner's token, ms to live (-1: no end), { queue entry… } }  no entries when the queue's key has another type
--   or the same and { "<capacity>|<token>"… }                        the lock is shared: the first value is its mark

-- include values.lua

local owner = value_of(KEYS[1], true)
if not owner then
  return {}
end
local waiting = redis.pcall('ZRANGE', KEYS[2], 0, ARGV[1] - 1)
local seen = { owner, redis.call('PTTL', KEYS[1]), waiting.err and {} or waiting }
if owner == SHARED or owner == SHARED .. FORCED then
  local after = '(' .. number(math.floor(now() / 1000))
  seen[4] = call_or({}, 'ZRANGE', KEYS[3], after, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1])
  if #seen[4] == 0 then
    return {}
  end
end
return seen
