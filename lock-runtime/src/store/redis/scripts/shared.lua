-- The code about shared leases: those of readers, and of permits. See "Shared leases" in docs/protocol.md.
--
-- While a lock is shared, its own key holds a mark that is no token. Two more keys are in the same cluster slot:
--   {<lock>}:shared  zset: one "<capacity>|<token>" per shared lease, by the end of the lease in ms of the server's clock
--   {<lock>}:head    string: "<µs> <queue entry>", until when the first waiter counts as alive
-- The capacity of a reader is 0: there is no limit. A waiter for a shared lease is "<claim ms>s<capacity>|<token>" in the queue.
-- A shared lease is there while the lock has the mark, and the lease's end has not come (rule S1).

local SHARED = 'shared'
local FORCED = '|forced' -- stands behind what the lock's key holds while the lock is released by force (rule 21)
local HEAD_LIFE = 2000000 -- in µs; the first waiter repeats its ask every second
local HEAD_TTL = 5000 -- in ms
local MOST_TOLD = 100 -- how many owners hear of a waiter at once; an ask that is repeated tells more of them

local function shared_of(lock)
  return '{' .. lock .. '}:shared'
end

local function head_of(lock)
  return '{' .. lock .. '}:head'
end

-- Removes the shared leases that have ended. Returns whether any is left.
local function has_shared(lock)
  redis.call('ZREMRANGEBYSCORE', shared_of(lock), '-inf', number(math.floor(now() / 1000)))
  return redis.call('EXISTS', shared_of(lock)) == 1
end

-- Makes the lock, and the list of its shared leases, last until the last of these leases ends.
local function keep_shared(lock)
  local last = redis.call('ZRANGE', shared_of(lock), -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', shared_of(lock), last)
  redis.call('SET', lock, SHARED, 'PXAT', last)
end

local function shared_end(claim)
  return math.ceil(now() / 1000) + claim
end

-- Grants a shared lease. On a lock that is free, call `start_shared` before. Call `keep_shared` after the last of them.
local function add_shared(lock, member, claim)
  redis.call('ZADD', shared_of(lock), number(shared_end(claim)), member)
end

-- What is left of earlier shared leases is not brought back: somebody else had the lock since.
local function start_shared(lock)
  redis.call('DEL', shared_of(lock))
end

local function fits(lock, capacity)
  return capacity == 0 or redis.call('ZCARD', shared_of(lock)) < capacity
end

-- Claim, member, capacity and token of a waiter for a shared lease; nothing for any other entry of the queue.
local function parse_shared(entry)
  local claim, member, capacity, token = string.match(entry or '', '^(%d+)s((%d+)|(.+))$')
  return claim, member, tonumber(capacity), token
end

-- Grants shared leases to the first waiters, as many as fit (rule S3: the queue has one order for all). Call it only when the
-- lock is shared, or after `start_shared`. `first` is an entry that was taken from the queue already. `caller` is a token that
-- reads the outcome from this script's reply. Returns whether the lock is shared now.
-- As in `hand_off`, waiters whose channel has no listener are passed over (rule 3).
local function admit(lock, queue, caller, first)
  repeat
    local granted, is_passed_over = {}, false
    local entry = first or first_of(queue)
    local claim, member, capacity, token = parse_shared(entry)
    while claim and fits(lock, capacity) do
      if not first then
        pop(queue)
      end
      first = nil
      if channel(token) then
        add_shared(lock, member, claim)
        granted[#granted + 1] = { claim, member, token }
      end
      claim, member, capacity, token = parse_shared(first_of(queue))
    end
    if #granted > 0 then
      keep_shared(lock)
    end
    local waiting = redis.call('EXISTS', queue)
    for _, lease in ipairs(granted) do
      if lease[3] ~= caller then
        local told = publish(channel(lease[3]),
          'grant ' .. lease[1] .. ' ' .. number(now()) .. ' ' .. waiting .. ' ' .. lease[3] .. ' ' .. lock, true)
        if told == 0 then
          redis.call('ZREM', shared_of(lock), lease[2])
          is_passed_over = true
        end
      end
    end
  until not is_passed_over
  return redis.call('EXISTS', shared_of(lock)) == 1
end

-- Notes that the first waiter is alive: its ask has just come, or it has just become the first.
local function note_head(lock, entry)
  redis.call('SET', head_of(lock), number(now() + HEAD_LIFE) .. ' ' .. entry, 'PX', HEAD_TTL)
end

local function head_lives(lock, entry)
  local till, noted = string.match(redis.call('GET', head_of(lock)) or '', '^(%d+) (.*)$')
  if noted ~= entry then
    note_head(lock, entry)
    return true
  end
  return now() <= tonumber(till)
end

-- Whether nobody waits in front of `entry`. A first waiter that does not repeat its ask is dead, and leaves the queue: nobody
-- may have to wait for it until all shared leases have ended (rule S4).
local function is_next(lock, queue, entry)
  while true do
    local head = first_of(queue)
    if not head or head == entry then
      return true
    end
    if head_lives(lock, head) then
      return false
    end
    pop(queue)
  end
end

-- Tells the owners of shared leases that `entry` waits. The process `but` is not told.
local function tell_shared(lock, queue, entry, but)
  if first_of(queue) == entry then
    note_head(lock, entry)
  end
  for _, member in ipairs(redis.call('ZRANGE', shared_of(lock), 0, MOST_TOLD - 1)) do
    local address = channel(string.match(member, '|(.+)$') or '')
    if address and address ~= but then
      publish(address, 'wait ' .. lock)
    end
  end
end

-- Who has the lock, and for how many ms: `value` is what the lock's key holds. Of several shared leases it is the one at `place`:
-- 0 is the one that ends first, -1 the one that ends last.
local function holder_of(lock, value, place)
  if value == SHARED then
    local lease = redis.call('ZRANGE', shared_of(lock), place, place, 'WITHSCORES')
    if lease[1] then
      return string.match(lease[1], '|(.+)$'), lease[2] - math.ceil(now() / 1000)
    end
  end
  return value, redis.call('PTTL', lock)
end
