-- Takes a lock from its owner by force. Idempotent.
-- Rules of docs/protocol.md: 21 (the owner is notified and has a claim to stop), 4 (the head of the queue first).
--
-- A marked value no longer equals the owner's token. So every renewal of the token is refused, and nobody else gets the lock before the
-- mark is released or expires.
--
-- KEYS  lock, queue, shared
-- ARGV  how long the owner may take to stop, in ms
--       and to take only one of the shared leases: "<capacity>|<token>"
-- Returns 0                nobody had the lock
--   or 1                   nobody has to stop: the owner was another client, which can't be notified, or the lock waited for its
--                          adopter, or rested. The lock is free, or passed on
--   or the marked value    the owner is notified; the lock has this value until the owner releases it. For a shared lock all owners
--                          are notified, and the last of them releases it. For one shared lease it is its marked token

-- include values.lua
-- include queue.lua
-- include take.lua

local lock, queue, claim, member = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

-- The lease keeps its place until its owner has stopped, or for a claim.
local function take_one()
  local shared, token = shares().of(lock), token_of(member)
  local ends = redis.call('ZSCORE', shared, member)
  if not ends then
    return 0
  end
  redis.call('ZREM', shared, member)
  if channel(token) and not is_unused(token) then
    redis.call('ZADD', shared, number(math.min(ends, shares().end_of(claim))), member .. FORCED)
    shares().keep(lock)
    tell(token, 'forced ' .. token .. ' ' .. lock)
    return token .. FORCED
  elseif redis.call('EXISTS', shared) == 0 then
    return take_at_once(lock, queue)
  end
  shares().keep(lock)
  shares().admit(lock, queue)
  return 1
end

local value = value_of(lock, true)
if not value or (value == SHARED and not shares().has(lock)) then
  return 0
end
local taken
if not member then
  taken = take(lock, queue, value, claim)
elseif value == SHARED then
  taken = take_one()
else
  taken = 0
end
tell_near(lock, queue)
return taken
