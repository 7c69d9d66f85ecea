-- Lengthens leases that are still owned: confirms claims, renews, and verifies after a reconnect.
-- Rules of docs/protocol.md: 6 (PEXPIRE GT never shortens a lease, so a late or repeated renewal does no harm), 10 (only the
-- owner's token renews). GT sets no end on a key that has none, because somebody removed it. NX does.
-- A value of another type matches no token.
--
-- Only the beginning of a value is read, as in values.lua; a user without the right to that reads all of it.
--
-- The last read arms the alarms if `CLIENT CACHING YES` came before the script. A write on the same connection disarms an alarm,
-- so the read comes after all writes.
--
-- KEYS  per lease: lock
-- ARGV  per lease: token, lease in ms; then `arm` to arm the alarms
-- Returns { answer… }, an answer being 1 (owned, for at least that long), 0 (not owned), 2 (released by force, rule 21), or a message

local replies = {}
for i = 1, #KEYS do
  local owner = redis.pcall('GETRANGE', KEYS[i], '0', '1023')
  if type(owner) == 'table' and not string.find(owner.err, '^WRONGTYPE') then
    owner = redis.pcall('GET', KEYS[i]) or '' -- not GETRANGE
  end
  if type(owner) == 'table' then
    replies[i] = string.find(owner.err, '^WRONGTYPE') and 0 or owner.err
  elseif owner ~= ARGV[2 * i - 1] then
    replies[i] = owner == ARGV[2 * i - 1] .. '|forced' and 2 or 0
  else
    local done = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i], 'GT')
    if done == 0 then
      done = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i], 'NX')
    end
    replies[i] = type(done) == 'table' and done.err or 1
  end
end
if #ARGV > 2 * #KEYS then
  redis.pcall('EXISTS', unpack(KEYS))
end
return replies
