-- Takes a lock from its owner by force. Idempotent.
-- Rules of docs/protocol.md: 21 (the owner is told, and has a claim to stop), 4 (the head of the queue first).
--
-- A value that is marked is not the owner's token any more. So every renewal of the token is refused, and nobody else gets
-- the lock before the mark is released, or ends.
--
-- KEYS  lock, queue, shared
-- ARGV  how long the owner may take to stop, in ms
-- Returns 0                nobody had the lock
--   or 1                   nobody has to stop: the owner was another client, which can't be told, or the lock waited for its adopter,
--                          or rested. The lock is free, or passed on
--   or the marked value    the owner is told; the lock has this value until the owner releases it. Of a lock that is shared,
--                          all owners are told, and the last of them releases it

-- include values.lua
-- include queue.lua
-- include take.lua

local lock, queue = KEYS[1], KEYS[2]
local value = value_of(lock, true)
if not value or (value == SHARED and not shares().has(lock)) then
  return 0
end
local taken = take(lock, queue, value, ARGV[1])
tell_near(lock, queue)
return taken
