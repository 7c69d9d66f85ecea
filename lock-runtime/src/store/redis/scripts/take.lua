-- The code that force.lua and replace.lua share: taking a lock from its owner (rule 21).

-- The marks behind a token under which no body runs: its lock waits for its adopter (rule 24), or rests (rule 23).
local TICKET, RESTS = '|ticket', '|rests'

local function ends_with(text, mark)
  return string.sub(text, -#mark) == mark
end

local function is_unused(token)
  return ends_with(token, TICKET) or ends_with(token, RESTS)
end

-- No body has to stop: the lock is passed on, or free.
local function take_at_once(lock, queue, caller)
  if not hand_off(lock, queue, caller) then
    redis.call('DEL', lock)
  end
  return 1
end

-- Marks the lock, whose owner has `claim` ms to stop. PEXPIRE comes first: a script that has already written may also write while memory
-- is full. SET repeats the end with the value: a server that stalled inside `PEXPIRE` until the end has deleted the key.
local function mark(lock, value, claim)
  if redis.call('PEXPIRE', lock, claim, 'LT') == 1 then
    redis.call('SET', lock, value .. FORCED, 'PX', claim)
  else
    redis.call('SET', lock, value .. FORCED, 'KEEPTTL')
  end
end

local function take_shared(lock, queue, value, claim, caller)
  local shared, owners, unused = shares().of(lock), {}, 0
  for _, member in ipairs(call_or({}, 'ZRANGE', shares().of(lock), 0, -1)) do
    if is_unused(member) then
      unused = unused + redis.call('ZREM', shared, member)
    else
      owners[#owners + 1] = token_of(member)
    end
  end
  if unused > 0 and #owners == 0 then
    return take_at_once(lock, queue, caller)
  end
  mark(lock, SHARED, claim)
  for _, token in ipairs(owners) do
    tell(token, 'forced ' .. token .. ' ' .. lock)
  end
  return SHARED .. FORCED
end

-- Takes the lock from its owner: `value` is what the lock's key holds. The owner has `claim` ms to stop. `caller` is a token that reads
-- the outcome from this script's reply. Returns as force.lua.
local function take(lock, queue, value, claim, caller)
  if value == SHARED or value == SHARED .. FORCED then
    return take_shared(lock, queue, value, claim, caller)
  end
  local token = ends_with(value, FORCED) and string.sub(value, 1, -#FORCED - 1) or value
  if not channel(token) or is_unused(token) then
    return take_at_once(lock, queue, caller)
  end
  mark(lock, token, claim) -- also a lock that is forced already: somebody may have removed its end
  tell(token, 'forced ' .. token .. ' ' .. lock)
  return token .. FORCED
end
