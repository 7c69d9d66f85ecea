-- Replaces a ticket with the adopter's token, which owns the lock from then on. Idempotent for the token.
-- Rules of docs/protocol.md: 2 (nothing after its not_after), 11 (a grant starts as a claim), 24 (one adopter per ticket).
--
-- KEYS  lock, queue, fence, shared
-- ARGV  ticket, token, its capacity ('' = it has the lock alone), claim in ms, fencing tokens wanted,
--       server time in µs after which the adopter has given up (0 = never)
-- Returns { now µs, answer }, an answer being
--   { 1, ms to live, 1 if another process waits, first fencing token or 0 }   the token owns the lock
--   { 0 }                                                                     the ticket is over, or was adopted
--   { 2 }                                                                     the token adopted it, and the lock was later
--                                                                             released by force (rule 21)
--   { -1 }                                                                    too late to adopt

-- include values.lua
-- include queue.lua

local lock, queue, fence, shared = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticket, token, capacity, claim = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local fences, not_after = tonumber(ARGV[5]), tonumber(ARGV[6])

-- Whether the ticket is valid, whether its adopter has already replaced it, and whether the lock has been taken from the adopter.
local function look(value)
  if capacity == '' then
    return value == ticket, value == token, value == token .. FORCED
  end
  local function has(owner)
    local ends = call_or(false, 'ZSCORE', shared, capacity .. '|' .. owner)
    return ends and tonumber(ends) > math.floor(now() / 1000)
  end
  return value == SHARED and has(ticket), value == SHARED and has(token), value == SHARED .. FORCED and has(token)
end

-- PEXPIRE comes first and the value sets the end again, as in ticket.lua. Rule 9: the last write is the grant.
local function replace()
  if capacity == '' then
    redis.call('PEXPIRE', lock, claim)
    redis.call('SET', lock, token, 'PX', claim)
  else
    redis.call('ZREM', shared, capacity .. '|' .. ticket)
    shares().add(lock, capacity .. '|' .. token, claim)
    shares().keep(lock)
  end
end

local function left()
  if capacity == '' then
    return redis.call('PTTL', lock)
  end
  return redis.call('ZSCORE', shared, capacity .. '|' .. token) - math.ceil(now() / 1000)
end

if not_after > 0 and now() > not_after then
  return { now(), { -1 } }
end
local stands, adopted, forced = look(value_of(lock))
if not stands and not adopted then
  return { now(), { forced and 2 or 0 } }
end
local first = fences > 0 and draw(fence, fences) or 0
if stands then
  replace()
end
return { now(), { 1, left(), redis.call('EXISTS', queue), first } }
