-- Replaces an owner's token with a ticket: the lock waits for its adopter until the ticket expires, and is then free. Idempotent.
-- Rules of docs/protocol.md: 10 (only the owner's token does this), 24 (a lock that waits for its adopter).
--
-- PEXPIRE comes first: a script that has already written may also write while memory is full. SET repeats the end with the value: a
-- server that stalled inside `PEXPIRE` until the end has deleted the key.
--
-- KEYS  lock, shared
-- ARGV  token, its capacity ('' = it has the lock alone), ticket, for how many ms the ticket is good
-- Returns 1 if the token owned the lock, or the ticket is already there, 2 if the lock was
-- released by force (rule 21), else 0

-- include values.lua
-- include queue.lua

local lock, shared = KEYS[1], KEYS[2]
local token, capacity, ticket, kept = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local value = value_of(lock)
if capacity == '' then
  if value == token then
    redis.call('PEXPIRE', lock, kept)
    redis.call('SET', lock, ticket, 'PX', kept)
  end
  return (value == token or value == ticket) and 1 or value == token .. FORCED and 2 or 0
end
local member, marked = capacity .. '|' .. token, capacity .. '|' .. ticket
local ends = value == SHARED and call_or(false, 'ZSCORE', shared, member)
if ends and tonumber(ends) > math.floor(now() / 1000) then
  redis.call('ZREM', shared, member)
  redis.call('ZADD', shared, number(shares().end_of(kept)), marked)
  shares().keep(lock)
  return 1
end
if value == SHARED .. FORCED then
  return call_or(false, 'ZSCORE', shared, member) and 2 or 0
end
return value == SHARED and call_or(false, 'ZSCORE', shared, marked) and 1 or 0
