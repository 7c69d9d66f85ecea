-- Ends holds behind which others are still to be kept out: each lock rests for so long, and then it is free. Idempotent.
-- Rules of docs/protocol.md: 10 (only the owner's token ends its hold), 23 (a lock that rests).
--
-- A value that is marked is not the owner's token any more. So a late renewal or a late release of the token does nothing.
-- Each lease is shortened before it is marked: a script that has written may also write while memory is full. If the server stood still
-- inside of `PEXPIRE` until the end, it has deleted the lock, which must not come back (`XX`): it would have no end.
--
-- KEYS  per release: lock, shared
-- ARGV  per release: token, its capacity ('' = it has the lock alone), for how many ms others are to be kept out
-- Returns { answer… }, each as in release.lua: 1 if the token owned the lock, which rests now, 2 and 0 too; or { -2, message }

-- include values.lua
-- include queue.lua

local RESTS = '|rests' -- stands behind a token while its lock rests

local function rest_alone(lock, value, token, left)
  if value == token then
    redis.call('PEXPIRE', lock, left, 'LT')
    redis.call('SET', lock, token .. RESTS, 'XX', 'KEEPTTL')
  end
  return (value == token or value == token .. RESTS) and 1 or value == token .. FORCED and 2 or 0
end

local function rest_shared(lock, value, member, left)
  local shared = shares().of(lock)
  local ends = value == SHARED and call_or(false, 'ZSCORE', shared, member)
  if ends and tonumber(ends) > math.floor(now() / 1000) then
    redis.call('ZREM', shared, member)
    redis.call('ZADD', shared, number(math.min(ends, shares().end_of(left))), member .. RESTS)
    shares().keep(lock)
    return 1
  end
  if value == SHARED .. FORCED then
    return call_or(false, 'ZSCORE', shared, member) and 2 or 0
  end
  return value == SHARED and call_or(false, 'ZSCORE', shared, member .. RESTS) and 1 or 0
end

local function rest(lock, token, capacity, left)
  if capacity == '' then
    return rest_alone(lock, value_of(lock), token, left)
  end
  return rest_shared(lock, value_of(lock), capacity .. '|' .. token, left)
end

local replies = {}
for i = 1, #KEYS / 2 do
  local a = 3 * i - 3
  local ran, answer = pcall(rest, KEYS[2 * i - 1], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]))
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
