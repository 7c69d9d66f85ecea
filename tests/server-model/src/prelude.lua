-- What scripts find besides Lua's own libraries. An error that a function of the server raises has to be a table, which
-- only Lua itself can raise.
--
-- Arguments  one command; redis.status_reply; redis.error_reply; where an error was raised
-- Returns    a function that runs a script

local invoke, status_reply, error_reply, located = ...
local error, type, pcall, xpcall, tostring = error, type, pcall, xpcall, tostring

redis = { pcall = invoke, status_reply = status_reply, error_reply = error_reply }

function redis.call(...)
  local reply = invoke(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

local function told(ran, problem, ...)
  if not ran and type(problem) == 'table' and problem.err then
    return false, problem.err
  end
  return ran, problem, ...
end

-- As on a server, a script that catches an error finds its message alone.
function _G.pcall(...)
  return told(pcall(...))
end

-- Users and their rights are not modelled: everybody may do everything.
function redis.acl_check_cmd()
  return true
end

function redis.log() end
redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3

print, dofile, loadfile, newproxy, collectgarbage = nil, nil, nil, nil, nil

setmetatable(_G, {
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable ' .. "'" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

return function(script)
  return xpcall(script, located)
end
