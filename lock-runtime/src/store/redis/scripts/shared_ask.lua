-- Asks for shared leases. Each is granted, or its token joins the queue if it wants to. Idempotent, like ask.lua.
-- Rules of docs/protocol.md: 2 (no ask after its not_after), 4 (the head of the queue first), S1 to S4 (shared leases).
--
-- KEYS  per ask: lock, queue, fence, shared, head
-- ARGV  per ask: token, claim in ms, capacity (0 = no limit), 1 to wait in the queue, 1 to draw a fencing token,
--       server time in µs after which the asker has given up (0 = never)
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns as ask.lua

-- include values.lua
-- include queue.lua

local shares = shares()

local function ask(lock, queue, fence, token, claim, capacity, wait, fences, not_after)
  if not_after > 0 and now() > not_after then
    return { -1 }
  end
  local shared, member = shares.of(lock), capacity .. '|' .. token
  local entry = claim .. 's' .. member
  local owner = value_of(lock, true)
  if owner == SHARED and not shares.has(lock) then
    owner = nil
  end
  if not owner then
    owner = redis.call('EXISTS', queue) == 1 and hand_off(lock, queue, token)
    if not owner then
      shares.start(lock)
      shares.add(lock, member, claim)
      shares.keep(lock)
      owner = SHARED
    end
  end
  if owner == SHARED and not redis.call('ZSCORE', shared, member) then
    shares.admit(lock, queue, token) -- a lease that expired may have made room
    if not redis.call('ZSCORE', shared, member) and shares.fits(lock, capacity) and shares.is_next(queue, entry) then
      if redis.call('EXISTS', queue) == 1 then
        pcall(leave, queue, entry)
      end
      shares.add(lock, member, claim)
      shares.keep(lock)
      shares.admit(lock, queue)
    end
  end
  local ends = owner == SHARED and redis.call('ZSCORE', shared, member)
  if ends then
    local first = 0
    if fences > 0 then
      first = draw(fence, 1)
    end
    if redis.call('EXISTS', queue) == 1 then
      pcall(leave, queue, entry) -- rule 9: what concerns the queue may fail
    end
    return { 1, ends - math.ceil(now() / 1000), redis.call('EXISTS', queue), first }
  end
  if owner == SHARED .. FORCED and call_or(false, 'ZSCORE', shared, member) then
    return { 0, redis.call('PTTL', lock), token .. FORCED, 0 } -- rule 21: its lease was taken before it knew of it
  end
  local pause, is_to_tell = 0, false
  if wait == 1 then
    pause, is_to_tell = join(queue, entry)
  end
  -- Rule S4: a waiter that would fit but for those in front of it checks on the first of them, unless that one asks itself.
  if pause > 0 and owner == SHARED and shares.fits(lock, capacity) and not shares.head_asks(lock) then
    pause = 0
  end
  if is_to_tell and owner == SHARED then
    -- The other permits of the same process need not end for this ask.
    shares.tell(lock, queue, entry, channel(token))
  elseif is_to_tell then
    tell(owner, 'wait ' .. lock)
  end
  local holder, left = holder_of(lock, owner, 0)
  return { 0, left, holder, pause }
end

shard = ARGV[#KEYS / 5 * 6 + 1]
local replies = { now() }
for i = 1, #KEYS / 5 do
  local k, a = 5 * i - 5, 6 * i - 6
  local ran, answer = pcall(ask, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]),
    tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6]))
  tell_near(KEYS[k + 1], KEYS[k + 2])
  replies[i + 1] = ran and answer or { -2, message_of(answer) }
end
return replies
