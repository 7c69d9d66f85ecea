-- Gives back locks that nobody waits for: what most releases are, and the cheapest script for it. Idempotent.
--
-- KEYS  per release: lock, queue
-- ARGV  per release: token
-- Returns an answer for one release, { answer… } for several, an answer being
--   1 if the token owned the lock and nobody waits: it is free now
--   0 otherwise, and nothing was changed: release.lua knows what to do

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
