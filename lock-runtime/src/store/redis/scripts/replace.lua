-- Asks for a lock in place of its owner: who asks is the first waiter from now on, and the owner is told to stop. Idempotent: a
-- token that owns the lock, or waits in its queue, takes nothing more.
-- Rules of docs/protocol.md: 2 (no ask after its not_after), 11 (a grant starts as a claim), 21 (the owner is told, and has a claim
-- to stop), 25 (the newest wins).
--
-- KEYS  lock, queue, fence
-- ARGV  token, claim in ms, 1 (it waits), fencing tokens wanted, server time in µs after which the asker has given up (0 = never),
--       how long the owner may take to stop, in ms
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns as ask.lua

-- include values.lua
-- include queue.lua
-- include take.lua

-- Puts `entry` in front of all others.
local function join_first(queue, entry)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', queue, number(first and first - 1 or now()), entry)
  redis.call('PEXPIRE', queue, QUEUE_TTL)
end

-- What another client has written without an end may be data of an application, which nobody would write again. It is waited for.
local function may_be_data(lock, owner)
  return not channel(owner) and not string.find(owner, SHARED, 1, true) and redis.call('PTTL', lock) == -1
end

local function replace(lock, queue, fence, token, claim, fences, not_after, stop)
  if not_after > 0 and now() > not_after then
    return { -1 }
  end
  local entry = claim .. '|' .. token
  local owner = value_of(lock, true)
  if owner == SHARED and not shares().has(lock) then
    owner = nil
  end
  if owner ~= token then
    local waits = redis.call('ZSCORE', queue, entry)
    if not waits then
      join_first(queue, entry)
    end
    if not owner then
      hand_off(lock, queue, token)
    elseif not waits and not may_be_data(lock, owner) then
      take(lock, queue, owner, stop, token)
    end
    owner = value_of(lock)
  end
  if owner == token then
    local first = fences > 0 and draw(fence, fences) or 0
    pcall(leave, queue, entry)
    return { 1, redis.call('PTTL', lock), redis.call('EXISTS', queue), first }
  end
  local holder, left = holder_of(lock, owner, -1)
  return { 0, left, holder, 0 }
end

shard = ARGV[7]
local ran, answer = pcall(replace, KEYS[1], KEYS[2], KEYS[3],
  ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
tell_near(KEYS[1], KEYS[2])
return { now(), ran and answer or { -2, message_of(answer) } }
