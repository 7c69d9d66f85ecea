-- The code shared by all scripts that read a lock or draw its fencing tokens: the clock, and the values of the keys.
-- Each function costs the server about 1,000 instructions on every run. So a script includes no more than it needs.

local FENCE_TTL = 172800000 -- two days: longer than any sane step back of the server's clock
local MOST_FENCE = 9007199254740991 -- 2^53 - 1: beyond it a double misses numbers, and two draws would be equal

-- Server time in microseconds, read at most once; exact in a double until the year 2255. It lies between the start of the script and the
-- current time: on 7.0 time passes within a script, and newer servers show the time of its start.
local micros
local function now()
  if not micros then
    local time = redis.call('TIME')
    micros = time[1] * 1000000 + time[2]
  end
  return micros
end

-- Runs a command on a key that another client may have overwritten. A value of another type is not ours: then this returns `nothing`.
-- Any other error is raised.
local function call_or(nothing, ...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  end
  if not string.find(answer.err, '^WRONGTYPE') then
    error(answer)
  end
  return nothing
end

local function message_of(problem)
  return type(problem) == 'table' and problem.err or tostring(problem)
end

-- The beginning of a key's value, '' when the key does not exist. Our values are shorter; another client's may have any size.
-- A user without the right to GETRANGE reads all of it. For a value of another type it returns `nothing`, or raises the error.
local function read(key, nothing, last)
  local value = redis.pcall('GETRANGE', key, '0', last or '1023')
  if type(value) == 'table' and not string.find(value.err, '^WRONGTYPE') then
    value = redis.call('GET', key) or '' -- not GETRANGE
  end
  if type(value) == 'table' then
    return nothing or error(value)
  end
  return value
end

-- The value of the lock's key; false when the key does not exist. A value of another type counts as the empty text, which is no token;
-- if the caller `needs` the key, it is an error.
local function value_of(lock, needs)
  local value = read(lock, not needs and '')
  return (value ~= '' or redis.call('EXISTS', lock) == 1) and value
end

-- A whole number as text; tostring would lose digits. In two parts: "%d" may have 32 bits, and "%.0f" costs a server more.
local function number(value)
  if value < 1000000 then
    return string.format('%d', value)
  end
  return string.format('%d%06d', math.floor(value / 1000000), value % 1000000)
end

-- The value of the lock's key while the lock is shared: a mark that is not a token, and that no other client would write.
local SHARED = 'cache_lock|shared'
local FORCED = '|forced' -- follows the value of the lock's key while the lock is released by force (rule 21)

-- Draws `count` fencing tokens in a row: greater than all numbers drawn before, and at least the server's time (rule 8).
-- Raises an error when another client has written a number after which none can be drawn.
local function draw(fence, count)
  local first = math.max((tonumber(read(fence)) or 0) + 1, now())
  if not (first + count <= MOST_FENCE) then
    error({ err = 'ERR another client has written the fencing token ' .. fence .. ', after which none can be drawn' })
  end
  redis.call('SET', fence, number(first + count - 1), 'PX', FENCE_TTL)
  return first
end
