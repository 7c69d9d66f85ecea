-- The code about the queue, for scripts that need it only when somebody waits: most locks are free, and nobody waits for them.
-- `tag` names the sharded channels of the slot: see queue.lua.
local queueing
local function waiting()
  queueing = queueing or (function()
-- include queue.lua
    shard = tag
    return { join = join, leave = leave, hand_off = hand_off, tell = tell, tell_near = tell_near, holder_of = holder_of,
      shares = shares }
  end)()
  return queueing
end
