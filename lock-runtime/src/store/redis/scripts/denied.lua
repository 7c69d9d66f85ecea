-- Runs when the server refused a script because of a missing right, or refused a release for any reason. Names the missing rights, and
-- releases with the commands that the user may run. `{<lock>}:…` is not a key of this script: the user may lack the right to that key.
--
-- KEYS  lock
-- ARGV  token to release ('' = none), the capacity of a shared lease ('' = an exclusive one)
-- Returns { missing right… }

local lock = KEYS[1]
local queue, fence = '{' .. lock .. '}:queue', '{' .. lock .. '}:fence'
local value = redis.pcall('GETRANGE', lock, '0', '1023')
if type(value) == 'table' then
  value = redis.pcall('GET', lock) -- not GETRANGE
end
if ARGV[1] ~= '' and value == ARGV[1] then
  local freed = redis.pcall('DEL', lock)
  if type(freed) == 'table' then
    redis.pcall('PEXPIRE', lock, 1)
  end
end
if ARGV[1] ~= '' and ARGV[2] ~= '' then
  local shared, member = '{' .. lock .. '}:shared', ARGV[2] .. '|' .. ARGV[1]
  if type(redis.pcall('ZREM', shared, member)) == 'table' then
    redis.pcall('ZADD', shared, 'XX', '0', member) -- a lease whose end has passed no longer exists
  end
  local last = redis.pcall('ZRANGE', shared, '-1', '-1', 'WITHSCORES')
  local is_none = last[2] == '0' or string.find(last.err or '', '^WRONGTYPE') or redis.pcall('EXISTS', shared) == 0
  if is_none and value == 'cache_lock|shared' then
    redis.pcall('DEL', lock)
  end
end

local function may_read(key)
  return redis.acl_check_cmd('GET', key) or redis.acl_check_cmd('GETRANGE', key, '0', '0')
end

local missing = {}
local function needs(right, ...)
  local allowed = redis.acl_check_cmd(...)
  if not allowed then
    missing[#missing + 1] = right
  end
  return allowed
end

-- All on the lock's own key: without the right to it this script would not run.
needs('+set', 'SET', lock, '')
if not may_read(lock) then
  missing[#missing + 1] = '+get'
end
needs('+del', 'DEL', lock)
needs('+pexpire', 'PEXPIRE', lock, '1')
needs('+pttl', 'PTTL', lock)
needs('+exists', 'EXISTS', lock)
needs('+zadd', 'ZADD', lock, '1', '')
needs('+zpopmin', 'ZPOPMIN', lock)
needs('+zrange', 'ZRANGE', lock, '0', '0')
needs('+zrem', 'ZREM', lock, '')
needs('+zscore', 'ZSCORE', lock, '')
if ARGV[2] ~= '' then
  needs('+pexpireat', 'PEXPIREAT', lock, '1')
  needs('+zcard', 'ZCARD', lock)
  needs('+zremrangebyscore', 'ZREMRANGEBYSCORE', lock, '0', '0')
end
needs('+time', 'TIME')
needs('+evalsha', 'EVALSHA', '', '1', lock)
if redis.acl_check_cmd('SET', lock, '') and may_read(lock) then
  for _, key in ipairs({ queue, fence }) do
    if not (redis.acl_check_cmd('SET', key, '') and may_read(key)) then
      missing[#missing + 1] = '~' .. key
    end
  end
end
return missing
