-- Looks at a lock, and changes nothing.
--
-- KEYS  lock, queue
-- ARGV  how many waiting processes to name
-- Returns { }                                                        nobody has the lock
--   or { owner's token, ms to live (-1: no end), { queue entry… } }  the entries are missing without the right to read them

local owner = redis.call('GET', KEYS[1])
if not owner then
  return {}
end
local waiting = redis.pcall('LRANGE', KEYS[2], 0, ARGV[1] - 1)
return { owner, redis.call('PTTL', KEYS[1]), waiting.err and {} or waiting }
