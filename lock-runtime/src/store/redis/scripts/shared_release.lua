-- Releases shared leases, or withdraws asks for them. Freed places go to the first waiters. Idempotent.
-- Rules of docs/protocol.md: 1 (an ask without an answer is withdrawn), 3 (a waiter needs a listener), 10 (only the owner's token
-- releases), S1 to S3 (shared leases), 21 (the last owner of a lock that is released by force frees it).
--
-- KEYS  per release: lock, queue, fence, shared, head
-- ARGV  per release: token, its claim in ms, its capacity
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns { answer… }, each as in release.lua

-- include values.lua
-- include queue.lua

local shares = shares()

-- Everything that needs the queue, as in release.lua. `owner` still has the lock after this release; nil when nobody has.
local function pass_on(lock, queue, owner, entry)
  leave(queue, entry)
  if not owner then
    if not hand_off(lock, queue) then
      redis.call('DEL', lock)
    end
  elseif owner == SHARED then
    shares.admit(lock, queue)
  end
end

local function release(lock, queue, token, claim, capacity)
  local member = capacity .. '|' .. token
  local value, ownership = value_of(lock), 0
  local owner = value
  if value == SHARED or value == SHARED .. FORCED then
    local is_left = shares.clean(lock)
    local removed = is_left and redis.call('ZREM', shares.of(lock), member) == 1
    -- Rule 21: only this lease may have been taken by force.
    local was_taken = is_left and not removed and redis.call('ZREM', shares.of(lock), member .. FORCED) == 1
    ownership = removed and value == SHARED and 1 or (removed or was_taken) and 2 or 0
    if not is_left or redis.call('EXISTS', shares.of(lock)) == 0 then
      owner = nil
    elseif ownership == 1 or was_taken and value == SHARED then
      shares.keep(lock)
    end
  end
  local ran, failure = pcall(pass_on, lock, queue, owner, claim .. 's' .. member)
  if ran then
    return ownership
  end
  -- The last lease frees the lock even if the queue is broken, but not when the lock was already passed on to a waiter.
  if not owner and value_of(lock) == value and not shares.has(lock) then
    redis.call('DEL', lock)
  end
  return { ownership == 1 and -3 or -2, message_of(failure) }
end

shard = ARGV[#KEYS / 5 * 3 + 1]
local replies = {}
for i = 1, #KEYS / 5 do
  local k, a = 5 * i - 5, 3 * i - 3
  local ran, answer = pcall(release, KEYS[k + 1], KEYS[k + 2], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
  tell_near(KEYS[k + 1], KEYS[k + 2])
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
