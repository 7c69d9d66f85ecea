-- Draws fencing tokens for an owned lock: rules 8 (each number is greater than all before) and L2 of docs/protocol.md.
--
-- KEYS  lock, fence
-- ARGV  token, count
-- Returns the first of `count` numbers in a row, or 0: not owned

-- include values.lua

if value_of(KEYS[1]) ~= ARGV[1] then
  return 0
end
return draw(KEYS[2], tonumber(ARGV[2]))
