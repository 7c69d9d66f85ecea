-- Lengthens leases that are still owned: confirms claims, renews, and verifies after a reconnect.
-- Only ever lengthens (PEXPIRE GT), so a late or repeated renewal does no harm: rules 6 and 10 of docs/protocol.md.
--
-- KEYS  per lease: lock
-- ARGV  per lease: token, lease in ms
-- Returns { answer… }, an answer being 1 (owned, for at least that long), 0 (not owned), or a message

local replies = {}
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if type(owner) == 'table' then
    replies[i] = owner.err
  elseif owner ~= ARGV[2 * i - 1] then
    replies[i] = 0
  else
    local done = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i], 'GT')
    replies[i] = type(done) == 'table' and done.err or 1
  end
end
return replies
