-- Releases locks that nobody waits for: most releases are of this kind, and this script is the cheapest. Idempotent.
--
-- KEYS  per release: lock, queue
-- ARGV  per release: token
-- Returns an answer for one release, { answer… } for several, an answer being
--   1 if the token owned the lock and nobody waits: the lock is free now
--   0 otherwise: nothing was changed, and release.lua has to run

local call = redis.call
if #ARGV == 1 then
  if call('GET', KEYS[1]) == ARGV[1] and call('EXISTS', KEYS[2]) == 0 then
    return call('DEL', KEYS[1])
  end
  return 0
end

local replies = {}
for i = 1, #ARGV do
  local lock = KEYS[2 * i - 1]
  local freed = redis.pcall('GET', lock) == ARGV[i] and call('EXISTS', KEYS[2 * i]) == 0
  replies[i] = freed and call('DEL', lock) or 0
end
return replies
