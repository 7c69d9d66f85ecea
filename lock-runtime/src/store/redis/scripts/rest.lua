-- Ends holds after which others are still kept out: each lock rests for a time, and is then free. Idempotent.
-- Rules of docs/protocol.md: 10 (only the owner's token ends its hold), 23 (a lock that rests).
--
-- A marked value no longer equals the owner's token. So a late renewal or release of the token does nothing.
-- Each lease is shortened before it is marked: a script that has already written may also write while memory is full. If the server
-- stalled inside `PEXPIRE` until the end, it has deleted the lock, which must not be created again (`XX`): it would have no end.
--
-- KEYS  per release: lock, shared
-- ARGV  per release: token, its capacity ('' = it has the lock alone), for how many ms to keep others out,
--       1 (the rest is a `lock_delay`: the lease may be shorter, and an exclusive lock rests although it was taken by force)
-- Returns { answer… }, each as in release.lua: 1 if the token owned the lock, which now rests, else 2 or 0; or { -2, message }

-- include values.lua
-- include queue.lua

local RESTS = '|rests' -- stands behind a token while its lock rests
local DELAYED = '|delayed|rests' -- the mark for a `lock_delay`, which a request that replaces does not end

local function rest_alone(lock, value, token, left, is_delay)
  local marked = token .. (is_delay and DELAYED or RESTS)
  if value == token or (is_delay and value == token .. FORCED) then
    if is_delay then
      redis.call('PEXPIRE', lock, left)
    else
      redis.call('PEXPIRE', lock, left, 'LT')
    end
    redis.call('SET', lock, marked, 'XX', 'KEEPTTL')
    return 1
  end
  return value == marked and 1 or value == token .. FORCED and 2 or 0
end

local function rest_shared(lock, value, member, left, is_delay)
  local marked = member .. (is_delay and DELAYED or RESTS)
  local shared = shares().of(lock)
  local ends = value == SHARED and call_or(false, 'ZSCORE', shared, member)
  if ends and tonumber(ends) > math.floor(now() / 1000) then
    redis.call('ZREM', shared, member)
    local rests_until = shares().end_of(left)
    redis.call('ZADD', shared, number(is_delay and rests_until or math.min(ends, rests_until)), marked)
    shares().keep(lock)
    return 1
  end
  if value == SHARED .. FORCED then
    return call_or(false, 'ZSCORE', shared, member) and 2 or 0
  end
  return value == SHARED and call_or(false, 'ZSCORE', shared, marked) and 1 or 0
end

local function rest(lock, token, capacity, left, is_delay)
  if capacity == '' then
    return rest_alone(lock, value_of(lock), token, left, is_delay)
  end
  return rest_shared(lock, value_of(lock), capacity .. '|' .. token, left, is_delay)
end

local replies = {}
for i = 1, #KEYS / 2 do
  local a = 4 * i - 4
  local ran, answer = pcall(rest, KEYS[2 * i - 1], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4] == '1')
  replies[i] = ran and answer or { -2, message_of(answer) }
end
return replies
