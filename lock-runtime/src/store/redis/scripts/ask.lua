-- Asks for locks. Each lock is granted, or its token joins the queue if it wants to.
-- Idempotent: a token that owns its lock or waits in its queue stays there.
-- A shared lock is busy until its last shared lease has ended (rule S2).
-- Rules of docs/protocol.md: 2 (no ask after its not_after), 4 (the head of the queue first), 5 (asks are repeated), 11 (a
-- grant starts as a claim).
--
-- KEYS  per ask: lock, queue, fence
-- ARGV  per ask: token, claim in ms, 1 to wait in the queue, fencing tokens wanted,
--       server time in µs after which the asker has given up (0 = never)
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns { now µs, answer… }, an answer being
--   { 1, ms to live, 1 if another process waits, first fencing token or 0 }   granted
--   { 0, ms to live (-1: no end), owner's token, ms to pause before the ask is repeated }     busy
--   { -1 }                                                                    too late to ask
--   { -2, message }                                                           an error with this key only

local tag = ARGV[#KEYS / 3 * 5 + 1]

-- include values.lua

-- include waiting.lua

local function ask(lock, queue, fence, token, claim, wait, fences, not_after)
  if not_after > 0 and now() > not_after then
    return { -1 }
  end
  local entry = claim .. '|' .. token
  local owner = read(lock)
  -- Usually the lock is free and nobody waits: one command checks both.
  local is_new = owner == '' and redis.call('EXISTS', lock, queue) == 0
  if owner == '' and (is_new or redis.call('EXISTS', lock) == 0) then
    owner = nil
  elseif owner == SHARED and not waiting().shares().has(lock) then
    owner = nil
  end
  local first = 0
  if not owner then
    local next_owner = not is_new and redis.call('EXISTS', queue) == 1 and waiting().hand_off(lock, queue, token)
    if not next_owner then
      if fences > 0 then
        first = draw(fence, fences)
      end
      redis.call('SET', lock, token, 'PX', claim)
      return { 1, tonumber(claim), 0, first }
    end
    owner = next_owner
  end
  if owner == token then
    if fences > 0 then
      first = draw(fence, fences)
    end
    if redis.call('EXISTS', queue) == 1 then
      pcall(waiting().leave, queue, entry) -- rule 9: what concerns the queue may fail
    end
    return { 1, redis.call('PTTL', lock), redis.call('EXISTS', queue), first }
  end
  waiting()
  local pause, is_to_tell = 0, false
  if wait == 1 then
    pause, is_to_tell = queueing.join(queue, entry)
  end
  if is_to_tell and owner == SHARED then
    queueing.shares().tell(lock, queue, entry)
  elseif is_to_tell then
    queueing.tell(owner, 'wait ' .. lock)
  end
  local holder, left = queueing.holder_of(lock, owner, -1)
  return { 0, left, holder, pause }
end

local replies = { now() }
for i = 1, #KEYS / 3 do
  local k, a = 3 * i - 3, 5 * i - 5
  local ran, answer = pcall(ask, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3],
    ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]))
  if queueing then
    queueing.tell_near(KEYS[k + 1], KEYS[k + 2])
  end
  replies[i + 1] = ran and answer or { -2, message_of(answer) }
end
return replies
