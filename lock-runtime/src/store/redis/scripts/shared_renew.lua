-- Lengthens shared leases that are still owned. Rules of docs/protocol.md: 6 (a late or repeated renewal does no harm), 10 (only
-- the owner's token renews), S1 (when a shared lease exists).
--
-- KEYS  per lease: lock, shared
-- ARGV  per lease: token, capacity, lease in ms
-- Returns { answer… }, each as in renew.lua

-- include values.lua
-- include queue.lua

local shares = shares()

local function renew(lock, member, lease)
  local shared = shares.of(lock)
  local value = value_of(lock)
  local is_forced = value == SHARED .. FORCED
  local ends = (value == SHARED or is_forced) and call_or(false, 'ZSCORE', shared, member)
  if not ends or tonumber(ends) <= math.floor(now() / 1000) then
    -- Rule 21: only this lease may have been taken by force.
    return value == SHARED and call_or(false, 'ZSCORE', shared, member .. FORCED) and 2 or 0
  end
  if is_forced then
    return 2
  end
  local wanted, last = shares.end_of(lease), redis.call('ZRANGE', shared, -1, -1, 'WITHSCORES')[2]
  local till = number(math.max(wanted, last))
  -- PEXPIREAT comes first: a script that has already written may also write while memory is full.
  redis.call('PEXPIREAT', lock, till)
  redis.call('PEXPIREAT', shared, till)
  -- XX: if the server stalled until `till`, it has deleted the list, which must not be created again without an end.
  redis.call('ZADD', shared, 'XX', 'GT', number(wanted), member)
  return 1
end

local replies = {}
for i = 1, #KEYS / 2 do
  local a = 3 * i - 3
  local ran, answer = pcall(renew, KEYS[2 * i - 1], ARGV[a + 2] .. '|' .. ARGV[a + 1], tonumber(ARGV[a + 3]))
  replies[i] = ran and answer or message_of(answer)
end
return replies
