--- What the front says of the daemon and the models, and how it is shown.
local M = {}

--- @class copilotd.Status
--- @field state 'loading'|'ready'|'failed'|'paused'
--- @field message string
--- @field progress? number 0 … 1 while loading
--- @field model string
--- @field device string
--- @field paused boolean whether this window rests
--- @field reason string why the last completion was empty

local REASONS = {
  off = 'off for this file',
  secret = 'off for secret files',
}

local current --- @type copilotd.Status?
local from --- @type integer?

--- @param client integer
--- @param status copilotd.Status
function M.changed(client, status)
  local became_ready = status.state == 'ready' and M.get() and current.state ~= 'ready'
  from, current = client, status
  if became_ready then
    -- what was typed meanwhile got no answer
    require('copilotd.ghost').ask()
  end
  vim.cmd.redrawstatus({ bang = true })
  vim.api.nvim_exec_autocmds('User', { pattern = 'CopilotdStatus', data = status })
end

--- The last status of the front that runs; nil without one.
--- @return copilotd.Status?
function M.get()
  local client = from and vim.lsp.get_client_by_id(from)
  return client and not client:is_stopped() and current or nil
end

--- A few words for a status line; empty where copilotd has nothing to do with the buffer.
--- @return string
function M.text()
  local status = M.get()
  if not status or #vim.lsp.get_clients({ bufnr = 0, name = 'copilotd' }) == 0 then
    return ''
  end
  if status.paused then
    return 'copilotd: paused'
  end
  local fetching = require('copilotd.fetch').text()
  if fetching then
    return 'copilotd: ' .. fetching
  end
  if status.state == 'ready' then
    local reason = REASONS[status.reason]
    return reason and 'copilotd: ' .. reason or 'copilotd'
  end
  if status.state == 'loading' and status.message ~= '' then
    return 'copilotd: ' .. status.message
  end
  return 'copilotd: ' .. status.state
end

--- The whole of it, line by line.
--- @return string[]
function M.lines()
  local status = M.get()
  if not status then
    return { 'No front runs in this Neovim.' }
  end
  local lines = { 'state: ' .. (status.paused and 'paused in this window' or status.state) }
  for _, field in ipairs({ 'message', 'model', 'device' }) do
    local value = status[field]
    if value and value ~= '' then
      table.insert(lines, ('%s: %s'):format(field, (value:gsub('\n', ' '))))
    end
  end
  if status.reason ~= '' then
    table.insert(lines, 'last completion: none, ' .. (REASONS[status.reason] or status.reason))
  end
  return lines
end

return M
