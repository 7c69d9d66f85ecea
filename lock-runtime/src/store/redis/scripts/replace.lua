-- Asks for a lock in place of its owner: the asker becomes the first waiter, and the owner is told to stop. When several requests
-- replace, only the newest gets the lock; an older one that waits is told to ask, and the answer says that it has been replaced.
-- Idempotent: a request that is the newest takes nothing more.
-- Rules of docs/protocol.md: 2 (no ask after its not_after), 11 (a grant starts as a claim), 21 (the owner is notified and has a claim
-- to stop), 25 (the newest wins).
--
-- KEYS  lock, queue, fence
-- ARGV  token, claim in ms, 1 (it waits), fencing tokens wanted, server time in µs after which the asker has given up (0 = never),
--       how long the owner may take to stop, in ms, the first token of the request, 1 if an ask of the request was ever answered
--       and in a cluster, after all of them, what names the sharded channels of the slot: see queue.lua
-- Returns as ask.lua, or { now, { 2 } } when there is a newer request

-- include values.lua
-- include queue.lua
-- include take.lua

local FIRST = -1 -- the score of a request that replaces; the others have times, so it sorts first
local NEWEST_TTL = 3600000 -- in ms; a request that still waits has asked many times by then
local NEWEST_BYTES = 4000 -- an older request than these bytes hold is known only if it was answered

-- The last requests, the newest first; whether `request` is the newest; and whether it is new. Both are false when a newer one has been
-- seen since.
local function find(lock, request, is_answered)
  local newest = read('{' .. lock .. '}:newest', '', NEWEST_BYTES)
  local place = string.find(newest, request, 1, true)
  return newest, place == 1, not place and not (is_answered and newest ~= '')
end

local function note(lock, request, newest)
  local requests = string.sub(request .. ' ' .. newest, 1, NEWEST_BYTES)
  redis.call('SET', '{' .. lock .. '}:newest', requests, 'PX', NEWEST_TTL)
end

-- Puts `entry` in front of all others. An older request at the front leaves, and is told to ask.
local function join_first(lock, queue, entry)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if first[1] and first[1] ~= entry and tonumber(first[2]) == FIRST then
    leave(queue, first[1])
    local older = token_of(first[1])
    tell(older, 'forced ' .. older .. ' ' .. lock)
  end
  redis.call('ZADD', queue, FIRST, entry)
  redis.call('PEXPIRE', queue, QUEUE_TTL)
end

-- A value of another client without an end may be an application's data, which nobody would write again. So this waits for it.
local function may_be_data(lock, owner)
  return not channel(owner) and not string.find(owner, SHARED, 1, true) and redis.call('PTTL', lock) == -1
end

-- A lock that rests after a dropped body: commands of that body may still arrive (rule 23). So this waits for it, too.
local function is_delayed(owner)
  return ends_with(owner, '|delayed|rests')
end

local function replace(lock, queue, fence, token, claim, fences, not_after, stop, request, is_answered)
  if not_after > 0 and now() > not_after then
    return { -1 }
  end
  local entry = claim .. '|' .. token
  local owner = value_of(lock, true)
  if owner == SHARED and not shares().has(lock) then
    owner = nil
  end
  if owner ~= token then
    local newest, is_newest, is_new = find(lock, request, is_answered)
    if not is_newest and not is_new then
      pcall(leave, queue, entry)
      return { 2 }
    end
    join_first(lock, queue, entry)
    if is_new then
      note(lock, request, newest)
    end
    if not owner then
      hand_off(lock, queue, token)
    elseif is_new and not may_be_data(lock, owner) and not is_delayed(owner) then
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

shard = ARGV[9]
local ran, answer = pcall(replace, KEYS[1], KEYS[2], KEYS[3],
  ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8] == '1')
tell_near(KEYS[1], KEYS[2])
return { now(), ran and answer or { -2, message_of(answer) } }
