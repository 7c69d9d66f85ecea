-- The code that the scripts share: tokens, the queue, the hand-off. See docs/protocol.md.
--
-- Per lock there are three keys in one cluster slot, and two more when the lock is shared:
--   <lock>          string: the owner's token, with a TTL (the lease)
--   {<lock>}:queue  zset: one "<claim ms>|<token>" per waiting process, by the time when it came, in µs of the server's clock
--                   (who wants to share the lock waits as "<claim ms>s<capacity>|<token>")
--   {<lock>}:fence  string: the last fencing token drawn
-- A script has no rollback. So steps that may fail come first, and PUBLISH is under pcall.
-- Rule 9: the last write is the grant.

local QUEUE_TTL = 15000 -- in ms; waiters repeat their asks, and a queue without asks goes away
local NEAR = 16 -- so many waiters at the head of the queue repeat their asks every second (rule 5)
local PAUSE = 8000 -- for so many ms the others pause before they repeat theirs
local YOUNG = 800000 -- in µs; who came later than this has not repeated its ask yet

-- The channel of the process that made `token`, and whether the token's lease may linger: then its sequence begins with 0. nil for a
-- foreign value, which is never trusted as an address.
local function channel(token)
  local process, zero = string.match(token, '^(%x+)%.(0?)%d+@')
  if process and #process == 32 then
    return 'cache_lock:' .. process, zero == '0'
  end
end

-- In a cluster: what stands in the braces of the sharded channels of the lock's slot. A script that passes locks on sets it, from
-- its last argument. nil everywhere else.
local shard

-- What a sharded grant begins with: the id of this node. A server that refuses to tell it sends a grant that has to be confirmed.
local sender

-- Sends a message to whoever listens on the channel `address` of a process. Returns whether it was heard. Where the server refuses to
-- publish, nobody knows, and it counts as heard (rule 3). In a cluster a message goes to the sharded channel of the lock's slot first:
-- only the nodes of this shard get it. When nobody listens there, or the server refuses it, the message goes to the process's own
-- channel, and so to all nodes (rule 3: a listener of either counts).
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

-- The same on one channel only. Where the server refuses to publish, it was not heard.
local function publish_plain(address, message)
  local listeners = redis.pcall('PUBLISH', address, message)
  return type(listeners) == 'number' and listeners > 0
end

-- Tells the process of `owner` something about its lock; a foreign value has nobody to tell. Of a lease that may linger (rule L9) no
-- task of the process need be awake, so its keeper is told first, on a channel of its own. The same when the message is `for_keeper`.
-- Of its two connections one may be away just now: then the message goes to the other. Returns whether it was heard.
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

-- Puts `entry` at the end of the queue, unless it waits there already. It comes behind all others, also when the clock was
-- set back. Returns for how many ms the waiter may pause before it asks again, and whether to tell the owner that it waits:
-- those in front of a waiter that has just come have told the owner (rule 5).
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

local gone = 0 -- how many have left the queue since `tell_near` was called last

-- Takes `entry` out of the queue. Returns whether it was there.
local function leave(queue, entry)
  local left = redis.call('ZREM', queue, entry)
  gone = gone + left
  return left > 0
end

-- Takes the first waiter from the queue; nil when there is none, or when the key is of another type.
local function pop(queue)
  local first = call_or({}, 'ZPOPMIN', queue)
  gone = gone + #first / 2
  return first[1]
end

local function token_of(entry)
  return string.match(entry, '|(.+)$') or ''
end

-- Tells a waiter that it is among the first: it may pause. Its keeper is told, which hears it whatever the tasks do. Returns
-- whether it was heard.
local function tell_one_near(lock, entry)
  return tell(token_of(entry), 'near ' .. number(now()) .. ' ' .. lock, true)
end

-- Rule 5: who has come to be among the first waiters, because others left the queue, is told.
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

-- The functions for shared leases. They are made when a script first needs one of them: a server makes a script's functions anew
-- whenever the script runs, and most runs need none of these.
local made
local function shares()
  made = made or (function()
-- include shared.lua
  end)()
  return made
end

-- Who has the lock, and for how many ms: `value` is what the lock's key holds. Of several shared leases it is the one at `place`.
local function holder_of(lock, value, place)
  if value == SHARED then
    local token, left = shares().holder(lock, place)
    if token then
      return token, left
    end
  end
  return value, redis.call('PTTL', lock)
end

-- Takes waiters from the queue until one of them gets the message that the lock is its own. The lock is then set to that token.
-- Call this only when the lock is free, or its owner releases it. Returns the token, or nil when no waiter got the lock: none
-- waits, or none can be told. Then the lock is as before, or deleted if it was set for a waiter meanwhile.
-- When the first waiter wants a shared lease, it gets one, and so do those behind it that fit beside it. Then this returns SHARED.
-- `caller` is a token that reads the outcome from this script's reply.
-- A key of another type in the queue's place has no waiters: a free lock is granted all the same, and nothing is deleted.
-- A waiter whose channel has no listener is dead or not connected, and is passed over (rule 3).
-- The end of the lock and the message to its owner are counted from one reading of the clock (rule 7: a deadline is not later
-- than the lease). If the server stands still in here, the lock does not end before its owner expects it. The lock may have
-- ended when the message arrives: then the owner asks before it uses the lock (rule 16).
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
        gone = 0 -- nobody is left to come near
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
