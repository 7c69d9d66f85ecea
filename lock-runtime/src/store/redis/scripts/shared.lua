-- The code about shared leases: those of readers, and of permits. See "Shared leases" in docs/protocol.md.
--
-- While a lock is shared, its key holds a mark that is not a token. Two more keys are in the same cluster slot:
--   {<lock>}:shared  zset: one "<capacity>|<token>" per shared lease, by the end of the lease in ms of the server's clock
--   {<lock>}:head    string: "<µs> <1 if it has asked since> <queue entry>", until when the first waiter counts as alive
-- The capacity of a reader is 0: there is no limit. A waiter for a shared lease is "<claim ms>s<capacity>|<token>" in the queue.
-- A shared lease exists while the lock has the mark and the lease's end has not passed (rule S1).

local shares = {}

local HEAD_LIFE = 2000000 -- in µs; the first waiter repeats its ask every 0.9 s
local NEW_HEAD_LIFE = 1750000 -- in µs; before its first ask. The second beat of another waiter notices a dead one
local HEAD_TTL = 15000 -- in ms; in ms; longer than the pause of a waiter that reads the note
local MOST_TOLD = 100 -- how many owners are notified of a waiter at once; its next asks notify more of them

local function first_of(queue)
  return call_or({}, 'ZRANGE', queue, 0, 0)[1]
end

function shares.of(lock)
  return '{' .. lock .. '}:shared'
end

function shares.head_of(lock)
  return '{' .. lock .. '}:head'
end

-- Removes the shared leases that have ended. Returns whether any is left: a value of another type has none.
function shares.clean(lock)
  local over = number(math.floor(now() / 1000))
  return call_or(nil, 'ZREMRANGEBYSCORE', shares.of(lock), '-inf', over) and redis.call('EXISTS', shares.of(lock)) == 1
end

-- Like `clean`, but writes only if it must: after a first write, a server whose memory is full allows all further writes, too.
function shares.has(lock)
  local first = call_or({}, 'ZRANGE', shares.of(lock), 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= math.floor(now() / 1000) then
    return shares.clean(lock)
  end
  return first[1] ~= nil
end

-- Makes the lock and the list of its shared leases last until the last of these leases ends.
function shares.keep(lock)
  local last = redis.call('ZRANGE', shares.of(lock), -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', shares.of(lock), last)
  redis.call('SET', lock, SHARED, 'PXAT', last)
end

function shares.end_of(claim)
  return math.ceil(now() / 1000) + claim
end

-- Grants a shared lease. On a free lock, call `start` before. Call `keep` after the last of them.
function shares.add(lock, member, claim)
  redis.call('ZADD', shares.of(lock), number(shares.end_of(claim)), member)
end

-- Deletes what is left of earlier shared leases, which must not be valid again: somebody else has had the lock since.
function shares.start(lock)
  if redis.call('EXISTS', shares.of(lock)) == 1 then
    redis.call('DEL', shares.of(lock))
  end
end

function shares.fits(lock, capacity)
  return capacity == 0 or redis.call('ZCARD', shares.of(lock)) < capacity
end

-- Claim, member, capacity and token of a waiter for a shared lease; nothing for any other queue entry.
function shares.parse(entry)
  local claim, member, capacity, token = string.match(entry or '', '^(%d+)s((%d+)|(.+))$')
  return claim, member, tonumber(capacity), token
end

-- Grants shared leases to the first waiters, as many as fit (rule S3: the queue has one order for all). Call it only when the
-- lock is shared, or after `start`. `first` is an entry that was already removed from the queue. `caller` is a token that
-- reads the outcome from this script's reply. Returns whether the lock is shared now.
-- As in `hand_off`, waiters whose channel has no listener are passed over (rule 3). A dead first waiter leaves (rule S4).
function shares.admit(lock, queue, caller, first)
  while true do
    local granted, is_passed_over = {}, false
    local entry = first or first_of(queue)
    local claim, member, capacity, token = shares.parse(entry)
    while claim and shares.fits(lock, capacity) do
      if not first then
        pop(queue)
      end
      first = nil
      if channel(token) then
        shares.add(lock, member, claim)
        granted[#granted + 1] = { claim, member, token }
      end
      entry = first_of(queue)
      claim, member, capacity, token = shares.parse(entry)
    end
    if #granted > 0 then
      shares.keep(lock)
    end
    local waiting = redis.call('EXISTS', queue)
    for _, lease in ipairs(granted) do
      if lease[3] ~= caller then
        local is_heard = publish(channel(lease[3]),
          'grant ' .. lease[1] .. ' ' .. number(now()) .. ' ' .. waiting .. ' ' .. lease[3] .. ' ' .. lock, true)
        if not is_heard then
          redis.call('ZREM', shares.of(lock), lease[2])
          is_passed_over = true
        end
      end
    end
    local is_shared = redis.call('EXISTS', shares.of(lock)) == 1
    if not is_passed_over then
      if not (is_shared and entry) or token_of(entry) == caller or shares.head_lives(lock, entry) then
        return is_shared
      end
      pop(queue)
    end
  end
end

-- The note about the first waiter: until when it counts as alive, whether it has asked since it became the first, and its entry.
local function read_head(lock)
  return string.match(read(shares.head_of(lock), ''), '^(%d+) ([01]) (.*)$')
end

local function note_head(lock, entry, life, has_asked)
  redis.call('SET', shares.head_of(lock), number(now() + life) .. ' ' .. has_asked .. ' ' .. entry, 'PX', HEAD_TTL)
end

-- Whether the first waiter is alive (rule S4): it has asked lately, or it has just become the first and received the message about it.
function shares.head_lives(lock, entry)
  local till, _, noted = read_head(lock)
  if noted == entry then
    return now() <= tonumber(till)
  end
  local lives = tell_one_near(lock, entry)
  if lives then
    note_head(lock, entry, NEW_HEAD_LIFE, 0)
  end
  return lives
end

-- Whether the first waiter asks: then the others need not check whether it is alive.
function shares.head_asks(lock)
  local till, has_asked = read_head(lock)
  return has_asked == '1' and now() <= tonumber(till)
end

-- Whether nobody waits in front of `entry`. Call `admit` before.
function shares.is_next(queue, entry)
  local head = first_of(queue)
  return not head or head == entry
end

-- Notifies the owners of shared leases that `entry` waits, except the process `but`.
function shares.tell(lock, queue, entry, but)
  if first_of(queue) == entry then
    note_head(lock, entry, HEAD_LIFE, 1)
  end
  for _, member in ipairs(redis.call('ZRANGE', shares.of(lock), 0, MOST_TOLD - 1)) do
    local owner = string.match(member, '|(.+)$') or ''
    if channel(owner) ~= but then
      tell(owner, 'wait ' .. lock)
    end
  end
end

-- The token of the shared lease at `place`, and for how many more ms it has the lock. Place 0 ends first, -1 ends last. nil when there is
-- none.
function shares.holder(lock, place)
  local lease = redis.call('ZRANGE', shares.of(lock), place, place, 'WITHSCORES')
  if lease[1] then
    return string.match(lease[1], '|(.+)$'), lease[2] - math.ceil(now() / 1000)
  end
end

return shares
