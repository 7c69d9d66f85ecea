-- Releases locks, or withdraws asks: for the token both are the same.
-- The lock is passed on to the first waiter whose channel has a listener. Idempotent.
-- Rules of docs/protocol.md: 1 (what was sent and not answered is withdrawn), 3 (a waiter needs a listener), 8 (unused fencing
-- tokens are written back), 10 (only the owner's token releases), 21 (so does what stands at its lock since a force).
--
-- KEYS  per release: lock, queue, fence
-- ARGV  per release: token, its claim in ms, last fencing token reserved (0 = none), last one used,
--       token that joins the end of the queue in the same step ('' = none), its claim in ms
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns { answer… }, an answer being
--   1 if the token owned the lock, 2 if it owned the lock until that was released by force, else 0
--   { 0 to 2, now µs, ms to live, owner's token now, 1 if another process waits } when a token was queued again
--   { -2, message }                                                               an error with this key alone
--   { -3, message }                                                               the same; the lock is free all the same

local tag = ARGV[#KEYS / 3 * 6 + 1]

-- include values.lua

-- include waiting.lua

-- Everything that needs the queue: leaves the queue, queues again, passes the lock on. May fail at any command, since the
-- queue's key may hold anything. Returns the answer.
local function pass_on(lock, queue, owner, token, ownership, claim, again, again_claim)
  local owned = ownership > 0
  waiting()
  local waited = queueing.leave(queue, claim .. '|' .. token)
  if owner == SHARED and not queueing.shares().has(lock) then
    owner = nil
  end
  if again ~= '' and owner ~= again then -- otherwise this release was executed before, and the lock was passed on since
    queueing.join(queue, again_claim .. '|' .. again)
  end
  if owned or not owner then
    owner = queueing.hand_off(lock, queue, again)
    if owned and not owner then
      redis.call('DEL', lock)
    end
  elseif owner == SHARED then
    -- The token may have stood in front of others that fit.
    queueing.shares().admit(lock, queue, again)
  elseif owner ~= again and (again ~= '' or not waited) then
    -- A waiter that only leaves told the owner when it came. A plain SET between the deletion of a lock and this release (rule 26)
    -- did not see the queue.
    queueing.tell(owner, 'wait ' .. lock)
  end
  if again == '' or not owner then
    return ownership
  end
  if owner == SHARED then
    queueing.shares().tell(lock, queue, again_claim .. '|' .. again)
  end
  local holder, left = queueing.holder_of(lock, owner, -1)
  return { ownership, now(), left, holder, redis.call('EXISTS', queue) }
end

local function release(lock, queue, fence, token, claim, reserved, used, again, again_claim)
  local owner = value_of(lock)
  local ownership = owner == token and 1 or owner == token .. FORCED and 2 or 0
  local owned = ownership > 0
  local queued = redis.call('EXISTS', queue) == 1
  if owned and reserved ~= '0' and read(fence, '') == reserved then
    redis.pcall('SET', fence, used, 'KEEPTTL') -- otherwise the unused numbers would stay ahead of the clock
  end
  if not queued and again == '' then -- nobody waits: most releases end here
    if owned then
      redis.call('DEL', lock)
    end
    return ownership
  end
  local ran, answer = pcall(pass_on, lock, queue, owner, token, ownership, claim, again, again_claim)
  if ran then
    return answer
  end
  -- The owner releases its lock, whatever is wrong with the queue; but not when the lock was already passed on to a waiter.
  if owned and value_of(lock) == owner then
    redis.call('DEL', lock)
    return { -3, message_of(answer) }
  end
  return { -2, message_of(answer) }
end

local replies = {}
for i = 1, #KEYS / 3 do
  local k, a = 3 * i - 3, 6 * i - 6
  local ran, answer = pcall(release, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3],
    ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6])
  if queueing then
    queueing.tell_near(KEYS[k + 1], KEYS[k + 2])
  end
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
