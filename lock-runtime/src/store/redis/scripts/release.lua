-- Releases locks, or withdraws asks: both are the same for the token.
-- The lock is passed on to the first waiter whose channel has a listener. Idempotent.
-- Rules of docs/protocol.md: 1 (an ask without an answer is withdrawn), 3 (a waiter needs a listener), 8 (unused fencing tokens are
-- written back), 10 (only the owner's token releases), 21 (so does the marked token after a release by force).
--
-- KEYS  per release: lock, queue, fence
-- ARGV  per release: token, its claim in ms, last fencing token reserved (0 = none), last one used
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns { answer… }, an answer being
--   1 if the token owned the lock, 2 if it owned the lock until that was released by force, else 0
--   { -2, message }                                                               an error with this key only
--   { -3, message }                                                               such an error, but the lock is free anyway

-- The short path of most hand-offs: one release by the owner, for one plain waiter that receives its grant. It needs none of the
-- functions below, each of which costs the server about 1,000 instructions. Everything else takes the long path; so does a queue in
-- which others move up among the first (rule 5). See `hand_off` in queue.lua for the order of the steps.
local NEAR = 16 -- as in queue.lua
local is_short = #KEYS == 3 and #ARGV == 4 and ARGV[3] == '0'
local unheard -- the waiter that was granted the lock and did not receive the message
if is_short and redis.pcall('GETRANGE', KEYS[1], '0', '1023') == ARGV[1] then
  local head = redis.pcall('ZRANGE', KEYS[2], '0', tostring(NEAR))
  local claim, token, process = string.match(head[1] or '', '^(%d+)|((%x+)%.%d+@.*)$')
  for i = 1, #head do
    process = head[i] ~= ARGV[2] .. '|' .. ARGV[1] and process
  end
  if process and #process == 32 and #head <= NEAR then
    local time = redis.call('TIME')
    local ends = time[1] * 1000 + math.ceil(time[2] / 1000) + claim
    redis.call('ZPOPMIN', KEYS[2])
    local set = redis.pcall('SET', KEYS[1], token, 'PXAT', string.format('%d%06d', math.floor(ends / 1000000), ends % 1000000))
    if set.err then -- out of memory, for example: the lock is free instead
      redis.call('DEL', KEYS[1])
      return { 1 }
    end
    local heard = redis.pcall('PUBLISH', 'cache_lock:' .. process, 'grant ' .. claim .. ' ' .. time[1]
      .. string.format('%06d', time[2]) .. (head[2] and ' 1 ' or ' 0 ') .. token .. ' ' .. KEYS[1])
    if heard ~= 0 then
      return { 1 }
    end
    unheard = token
  end
end

local tag = ARGV[#KEYS / 3 * 4 + 1]

-- include values.lua

-- include waiting.lua

-- Everything that needs the queue: leaves the queue, passes the lock on. Any command may fail, since the queue's key may hold anything.
local function pass_on(lock, queue, owner, token, owned, claim)
  waiting()
  local waited = queueing.leave(queue, claim .. '|' .. token)
  if owner == SHARED and not queueing.shares().has(lock) then
    owner = nil
  end
  if owned or not owner then
    owner = queueing.hand_off(lock, queue)
    if owned and not owner then
      redis.call('DEL', lock)
    end
  elseif owner == SHARED then
    -- The token may have stood in front of others that fit.
    queueing.shares().admit(lock, queue)
  elseif not waited then
    -- A waiter that only leaves has already notified the owner. A plain SET between the deletion of a lock and this release (rule 26)
    -- did not see the queue.
    queueing.tell(owner, 'wait ' .. lock)
  end
end

local function release(lock, queue, fence, token, claim, reserved, used)
  local owner = value_of(lock)
  local ownership = owner == token and 1 or owner == token .. FORCED and 2 or 0
  local owned = ownership > 0
  local queued = redis.call('EXISTS', queue) == 1
  if owned and reserved ~= '0' and read(fence, '') == reserved then
    redis.pcall('SET', fence, used, 'KEEPTTL') -- otherwise the unused numbers would stay ahead of the clock
  end
  if not queued then -- nobody waits: most releases end here
    if owned then
      redis.call('DEL', lock)
    end
    return ownership
  end
  local ran, failure = pcall(pass_on, lock, queue, owner, token, owned, claim)
  if ran then
    return ownership
  end
  -- The owner's lock is released even if the queue is broken, but not when the lock was already passed on to a waiter.
  if owned and value_of(lock) == owner then
    redis.call('DEL', lock)
    return { -3, message_of(failure) }
  end
  return { -2, message_of(failure) }
end

if unheard then -- rule 3: that waiter is passed over
  waiting()
  local ran, owner = pcall(queueing.hand_off, KEYS[1], KEYS[2])
  if ran and not owner or value_of(KEYS[1]) == unheard then
    redis.call('DEL', KEYS[1])
  end
  queueing.tell_near(KEYS[1], KEYS[2])
  return { 1 }
end

local replies = {}
for i = 1, #KEYS / 3 do
  local k, a = 3 * i - 3, 4 * i - 4
  local ran, answer = pcall(release, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
  if queueing then
    queueing.tell_near(KEYS[k + 1], KEYS[k + 2])
  end
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
