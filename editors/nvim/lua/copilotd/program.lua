--- The command line's `copilotd status` and the like.
local client = require('copilotd.client')

local M = {}

--- Run `copilotd …` outside the workspace.
--- @param arguments string[]
--- @param done? fun(result: vim.SystemCompleted) on the main loop
--- @return vim.SystemCompleted? result if `done` is not given
function M.run(arguments, done)
  local command = vim.list_extend({ client.program() }, arguments)
  local options = { cwd = client.working_folder(), text = true, timeout = 30000 }
  local callback = done and vim.schedule_wrap(done)
  local started, process = pcall(vim.system, command, options, callback)
  if not started then
    local failed = { code = 127, stdout = '', stderr = tostring(process) }
    if done then
      done(failed)
    end
    return failed
  end
  return not done and process:wait() or nil
end

--- `copilotd status --json`
--- @param result vim.SystemCompleted
--- @return table?
function M.status(result)
  local read, status = pcall(vim.json.decode, result.stdout)
  return result.code == 0 and read and status or nil
end

return M
