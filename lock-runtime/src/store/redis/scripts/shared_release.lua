-- Releases shared leases, or withdraws asks for them. What comes free goes to the first waiters. Idempotent.
-- Rules of docs/protocol.md: 1 (what was sent and not answered is withdrawn), 3 (a waiter needs a listener), 10 (only the
-- owner's token releases), S1 to S3 (shared leases), 21 (the last owner of a lock that is released by force frees it).
--
-- KEYS  per release: lock, queue, fence, shared, head
-- ARGV  per release: token, its claim in ms, its capacity,
--       token that joins the end of the queue in the same step ('' = none), its claim in ms
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns { answer… }, each as in release.lua

-- include values.lua
-- include queue.lua

local shares = shares()

-- Everything that needs the queue, as in release.lua. `owner` has the lock besides the lease that ends here; nil when nobody has.
local function pass_on(lock, queue, owner, ownership, entry, again, again_member, again_claim)
  local shared, again_entry = shares.of(lock), again_claim .. 's' .. again_member
  leave(queue, entry)
  -- Otherwise this release was executed before, and the token that asks again has its lease.
  if again ~= '' and not (owner == SHARED and redis.call('ZSCORE', shared, again_member)) then
    join(queue, again_entry)
  end
  if not owner then
    owner = hand_off(lock, queue, again)
    if not owner then
      redis.call('DEL', lock)
    end
  elseif owner == SHARED then
    shares.admit(lock, queue, again)
  end
  if again == '' or not owner then
    return ownership
  end
  local ends = owner == SHARED and redis.call('ZSCORE', shared, again_member)
  if ends then
    local left = ends - math.ceil(now() / 1000)
    return { ownership, now(), left, again, redis.call('EXISTS', queue) }
  end
  if owner == SHARED then
    shares.tell(lock, queue, again_entry, channel(again))
  else
    tell(owner, 'wait ' .. lock)
  end
  local holder, left = holder_of(lock, owner, 0)
  return { ownership, now(), left, holder, redis.call('EXISTS', queue) }
end

local function release(lock, queue, token, claim, capacity, again, again_claim)
  local member = capacity .. '|' .. token
  local value, ownership = value_of(lock), 0
  local owner = value
  if value == SHARED or value == SHARED .. FORCED then
    local is_left = shares.clean(lock)
    local removed = is_left and redis.call('ZREM', shares.of(lock), member) == 1
    ownership = removed and (value == SHARED and 1 or 2) or 0
    if not is_left or redis.call('EXISTS', shares.of(lock)) == 0 then
      owner = nil
    elseif ownership == 1 then
      shares.keep(lock)
    end
  end
  local ran, answer =
    pcall(pass_on, lock, queue, owner, ownership, claim .. 's' .. member, again, capacity .. '|' .. again, again_claim)
  if ran then
    return answer
  end
  -- The last lease frees the lock, whatever is wrong with the queue; but not when the lock was already passed on to a waiter.
  if not owner and value_of(lock) == value and not shares.has(lock) then
    redis.call('DEL', lock)
  end
  return { ownership == 1 and -3 or -2, message_of(answer) }
end

shard = ARGV[#KEYS + 1]
local replies = {}
for i = 1, #KEYS / 5 do
  local k, a = 5 * i - 5, 5 * i - 5
  local ran, answer = pcall(release, KEYS[k + 1], KEYS[k + 2], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5])
  tell_near(KEYS[k + 1], KEYS[k + 2])
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
