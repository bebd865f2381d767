--- :Copilotd
local client = require('copilotd.client')
local program = require('copilotd.program')
local view = require('copilotd.view')

local M = {}

local function tell(command)
  local front = client.get()
  if front then
    front:exec_cmd({ title = command, command = command })
  else
    vim.notify('copilotd: no front runs in this Neovim', vim.log.levels.WARN)
  end
end

M.ACTIONS = {
  status = function()
    program.run({ 'status' }, function(result)
      local lines = require('copilotd.status').lines()
      table.insert(lines, '')
      vim.list_extend(lines, vim.split(vim.trim(result.stdout .. result.stderr), '\n'))
      view.show('status', lines)
    end)
  end,
  pause = function()
    tell('copilotd.pause')
  end,
  resume = function()
    tell('copilotd.resume')
  end,
  restart = function()
    program.run({ 'stop' }, client.restart)
  end,
  log = function()
    program.run({ 'status', '--json' }, function(result)
      local status = program.status(result)
      if status and status.log_path and vim.uv.fs_stat(status.log_path) then
        vim.cmd.sview(vim.fn.fnameescape(status.log_path))
      else
        vim.notify('copilotd: there is no log yet', vim.log.levels.INFO)
      end
    end)
  end,
  explain = function()
    require('copilotd.explain').here()
  end,
  fetch = function(name)
    require('copilotd.fetch').fetch(name)
  end,
}

--- @param arguments { args: string }
function M.run(arguments)
  local words = vim.split(vim.trim(arguments.args), '%s+')
  local action = M.ACTIONS[words[1]]
  if action and (#words == 1 or words[1] == 'fetch' and #words == 2) then
    action(words[2])
  else
    vim.notify('copilotd: :Copilotd ' .. table.concat(M.complete(''), '|'), vim.log.levels.ERROR)
  end
end

--- @param begun string
--- @return string[]
function M.complete(begun)
  local names = vim.tbl_keys(M.ACTIONS)
  table.sort(names)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, begun)
  end, names)
end

return M
