-- Draws fencing tokens for an owned shared lease: rules 8 (each number is greater than all before) and L2.
--
-- KEYS  lock, fence, shared
-- ARGV  token, count, capacity
-- Returns the first of `count` numbers in a row, or 0: not owned

-- include values.lua

local ends = value_of(KEYS[1]) == SHARED and call_or(false, 'ZSCORE', KEYS[3], ARGV[3] .. '|' .. ARGV[1])
if not ends or tonumber(ends) <= math.floor(now() / 1000) then
  return 0
end
return draw(KEYS[2], tonumber(ARGV[2]))
