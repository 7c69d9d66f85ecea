-- Takes a lock from its owner by force. Idempotent.
-- Rules of docs/protocol.md: 21 (the owner is told, and has a claim to stop), 4 (the head of the queue first).
--
-- A value that is marked is not the owner's token any more. So every renewal of the token is refused, and nobody else gets
-- the lock before the mark is released, or ends.
--
-- KEYS  lock, queue, shared
-- ARGV  how long the owner may take to stop, in ms
-- Returns 0                nobody had the lock
--   or 1                   the owner was another client, which can't be told: the lock is free, or passed on
--   or the marked value    the owner is told; the lock has this value until the owner releases it. Of a lock that is shared,
--                          all owners are told, and the last of them releases it

-- include queue.lua

local lock, queue = KEYS[1], KEYS[2]
local owner = redis.call('GET', lock)
if not owner then
  return 0
end
if owner == SHARED and not shares().has(lock) then
  return 0
end
if owner == SHARED or owner == SHARED .. FORCED then
  redis.call('PEXPIRE', lock, ARGV[1], 'LT')
  if owner == SHARED then
    redis.call('SET', lock, SHARED .. FORCED, 'KEEPTTL')
  end
  for _, member in ipairs(call_or({}, 'ZRANGE', shares().of(lock), 0, -1)) do
    local token = string.match(member, '|(.+)$') or ''
    tell(token, 'forced ' .. token .. ' ' .. lock)
  end
  return SHARED .. FORCED
end
if not channel(owner) then
  if not hand_off(lock, queue) then
    redis.call('DEL', lock)
  end
  tell_near(lock, queue)
  return 1
end
-- The end comes first: a script that has written may also write while memory is full. A lock that is forced already has its end,
-- unless somebody took it away.
redis.call('PEXPIRE', lock, ARGV[1], 'LT')
local token = owner
if string.sub(owner, -#FORCED) == FORCED then
  token = string.sub(owner, 1, -#FORCED - 1)
else
  redis.call('SET', lock, token .. FORCED, 'KEEPTTL')
end
tell(token, 'forced ' .. token .. ' ' .. lock)
return token .. FORCED
