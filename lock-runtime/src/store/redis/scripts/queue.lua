-- The code that the scripts share: tokens, the queue, the hand-off. See docs/protocol.md.
--
-- A lock has three keys in one cluster slot, and two more when it is shared:
--   <lock>          string: the owner's token, with a TTL (the lease)
--   {<lock>}:queue  zset: one "<claim ms>|<token>" per waiting process, by arrival time in µs of the server's clock
--                   (a waiter for a shared lease is "<claim ms>s<capacity>|<token>")
--   {<lock>}:fence  string: the last fencing token drawn
-- A script has no rollback. So steps that may fail run first, and PUBLISH is under pcall.
-- Rule 9: the last write is the grant.

local QUEUE_TTL = 15000 -- in ms; waiters repeat their asks; a queue without asks expires
local NEAR = 16 -- this many waiters at the head of the queue repeat their asks every second (rule 5)
local PAUSE = 8000 -- in ms; the others pause this long before they repeat theirs
local YOUNG = 800000 -- in µs; a younger waiter has not repeated its ask yet

-- The channel of the process that made `token`, and whether the token's lease may linger: then its sequence number starts with 0. nil
-- for a foreign value, which is never trusted as an address.
local function channel(token)
  local process, zero = string.match(token, '^(%x+)%.(0?)%d+@')
  if process and #process == 32 then
    return 'cache_lock:' .. process, zero == '0'
  end
end

-- In a cluster: the text in the braces of the sharded channels of the lock's slot. A script that passes locks on sets it from its last
-- argument. nil everywhere else.
local shard

-- The prefix of a sharded grant: this node's id. When the server refuses to name it, the waiter has to confirm the grant.
local sender

-- Sends a message to the listeners on the channel `address` of a process. Returns whether it was received. When the server refuses to
-- publish, that is unknown, and the message counts as received (rule 3). In a cluster a message goes to the sharded channel of the
-- lock's slot first: only the nodes of this shard get it. When nobody listens there, or the server refuses it, the message goes to the
-- process's own channel, and so to all nodes (rule 3: a listener on either counts).
local function publish(address, message, is_grant)
  if shard then
    if is_grant and not sender then
      local id = redis.pcall('CLUSTER', 'MYID')
      sender = type(id) == 'string' and 'from ' .. id .. ' ' or ''
    end
    local sharded = is_grant and sender .. message or message
    local listeners = redis.pcall('SPUBLISH', address .. '{' .. shard .. '}', sharded)
    if type(listeners) == 'number' and listeners > 0 then
      return true
    end
  end
  local listeners = redis.pcall('PUBLISH', address, message)
  return type(listeners) == 'table' or listeners > 0
end

-- Publishes on one channel only. When the server refuses, the message counts as not received.
local function publish_plain(address, message)
  local listeners = redis.pcall('PUBLISH', address, message)
  return type(listeners) == 'number' and listeners > 0
end

-- Notifies the process of `owner` about its lock; a foreign value has no process to notify. While a lease lingers (rule L9) all tasks of
-- the process may be asleep. So a message about a lease that may linger, or one `for_keeper`, goes first to the keeper's own channel.
-- A process has two connections. If one of them is down, the message goes to the other. Returns whether it was received.
local function tell(owner, message, for_keeper)
  local address, lingers = channel(owner)
  if not address then
    return
  end
  local keeper_first = for_keeper or lingers
  return keeper_first and publish_plain(address .. ':keeper', message)
    or publish(address, message)
    or not keeper_first and publish_plain(address .. ':keeper', message)
end

-- Puts `entry` at the end of the queue, unless it already waits there. It goes behind all others even if the clock was set back.
-- Returns how many ms the waiter may pause before it asks again, and whether to notify the owner. A far waiter that has just arrived
-- need not: those in front of it have notified the owner (rule 5).
local function join(queue, entry)
  local came = redis.call('ZSCORE', queue, entry)
  local is_new, is_alone = not came, false
  if is_new then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    is_alone = not last
    came = number(math.max(now(), (last or 0) + 1))
    redis.call('ZADD', queue, came, entry)
  end
  redis.call('PEXPIRE', queue, QUEUE_TTL)
  local last_near = not is_alone and redis.call('ZRANGE', queue, NEAR - 1, NEAR - 1, 'WITHSCORES')[2]
  local is_far = last_near and tonumber(came) > tonumber(last_near)
  return is_far and now() - came >= YOUNG and PAUSE or 0, not (is_far and is_new)
end

local gone = 0 -- how many have left the queue since the last `tell_near`

-- Removes `entry` from the queue. Returns whether it was there.
local function leave(queue, entry)
  local left = redis.call('ZREM', queue, entry)
  gone = gone + left
  return left > 0
end

-- Removes the first waiter from the queue. Returns nil when there is none, or when the key has another type.
local function pop(queue)
  local first = call_or({}, 'ZPOPMIN', queue)
  gone = gone + #first / 2
  return first[1]
end

local function token_of(entry)
  return string.match(entry, '|(.+)$') or ''
end

-- Notifies a waiter that it is among the first and must no longer pause. The message goes to its keeper, which listens whatever the
-- tasks do. Returns whether it was received.
local function tell_one_near(lock, entry)
  return tell(token_of(entry), 'near ' .. number(now()) .. ' ' .. lock, true)
end

-- Rule 5: notifies the waiters that are now among the first because others left the queue.
local function tell_near(lock, queue)
  if gone > 0 then
    local near = redis.pcall('ZRANGE', queue, math.max(NEAR - gone, 0), NEAR - 1, 'WITHSCORES')
    for i = 1, #near, 2 do
      if now() - near[i + 1] >= YOUNG then
        tell_one_near(lock, near[i])
      end
    end
  end
  gone = 0
end

-- The functions for shared leases, created when a script first needs one of them: the server creates a script's functions again on every
-- run, and most runs need none of these.
local made
local function shares()
  made = made or (function()
-- include shared.lua
  end)()
  return made
end

-- The lock's holder, and for how many more ms: `value` is what the lock's key holds. For shared leases: the lease at `place`.
local function holder_of(lock, value, place)
  if value == SHARED then
    local token, left = shares().holder(lock, place)
    if token then
      return token, left
    end
  end
  return value, redis.call('PTTL', lock)
end

-- Takes waiters from the queue until one of them receives the message that it owns the lock, and sets the lock to that token.
-- Call this only when the lock is free, or its owner releases it. Returns the token, or nil when no waiter got the lock, because
-- none waits or none can be notified. Then the lock is as before, or deleted if it was set for a waiter in between.
-- When the first waiter wants a shared lease, it gets one, and so do those behind it that fit. Then this returns SHARED.
-- `caller` is a token that reads the outcome from this script's reply.
-- A key of another type in the queue's place has no waiters: a free lock is granted anyway, and nothing is deleted.
-- A waiter whose channel has no listener is dead or disconnected, and is passed over (rule 3).
-- The lock's end and the owner's deadline are counted from one reading of the clock (rule 7: a deadline is not later than the lease).
-- If the server stalls in here, the lock does not end before its owner expects it. The lock may have ended when the message arrives:
-- then the owner asks before it uses the lock (rule 16).
local function hand_off(lock, queue, caller)
  local granted_at, tried = now(), false
  while true do
    local entry = pop(queue)
    if not entry then
      if tried then
        redis.call('DEL', lock)
      end
      return nil
    end
    local claim, token = string.match(entry, '^(%d+)|(.+)$')
    if not token and shares().parse(entry) then
      shares().start(lock)
      tried = true
      if shares().admit(lock, queue, caller, entry) then
        return SHARED
      end
    end
    local address = token and channel(token)
    if address then
      local waiting = redis.call('EXISTS', queue)
      if waiting == 0 then
        gone = 0 -- no waiter is left to notify
      end
      tried = true
      local set = redis.pcall('SET', lock, token, 'PXAT', number(math.ceil(granted_at / 1000) + claim))
      if set.err then -- out of memory, for example: the lock is free instead, and waiters ask again within a second
        redis.call('DEL', lock)
        return nil
      end
      if token == caller then
        return token
      end
      local is_heard = publish(address,
        'grant ' .. claim .. ' ' .. number(granted_at) .. ' ' .. waiting .. ' ' .. token .. ' ' .. lock, true)
      if is_heard then
        return token -- also when PUBLISH failed: the waiter finds its grant when it asks again
      end
    end
  end
end
