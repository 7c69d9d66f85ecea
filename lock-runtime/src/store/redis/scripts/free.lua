-- Releases locks that nobody waits for. Most releases are of this kind, and this script is the cheapest. Idempotent.
-- A single release takes a short path without tables. For several releases one EXISTS checks all queues, and one DEL releases all free
-- locks: each command costs as much as the rest. Only the beginning of a value is read, as in values.lua; when the user lacks the right
-- to that, release.lua reads it.
--
-- KEYS  the lock of each release, then the queue of each, in the same order
-- ARGV  per release: token
-- Returns the number of releases if each token owned its lock and nobody waits for any of them: all locks are now free
--   or { answer… }, an answer being
--   1 if the token owned the lock and nobody waits: the lock is now free
--   0 otherwise: nothing has changed, and release.lua has to run

local call, pcall = redis.call, redis.pcall
local count = #ARGV
if count == 1 then
  if pcall('GETRANGE', KEYS[1], '0', '1023') == ARGV[1] and call('EXISTS', KEYS[2]) == 0 then
    call('DEL', KEYS[1])
    return 1
  end
  return { 0 }
end
local nobody_waits = call('EXISTS', unpack(KEYS, count + 1)) == 0
local free, replies = {}, {}
for i = 1, count do
  local is_free = pcall('GETRANGE', KEYS[i], '0', '1023') == ARGV[i] and (nobody_waits or call('EXISTS', KEYS[count + i]) == 0)
  if is_free then
    free[#free + 1] = KEYS[i]
  end
  replies[i] = is_free and 1 or 0
end
if #free > 0 then
  call('DEL', unpack(free))
end
return #free == count and count or replies
