--- Fetching a better model: offered once in a line, done when a person says so.
local client = require('copilotd.client')

local M = {}

local wanted = false
local percentages = {} --- @type table<string|integer, integer>

--- `window/showMessageRequest`: unasked it is one line that stops nobody; for who asks it is a menu.
function M.offered(err, params, context)
  if wanted then
    wanted = false
    return vim.lsp.handlers['window/showMessageRequest'](err, params, context)
  end
  vim.notify('copilotd: better models can be fetched; see :Copilotd fetch', vim.log.levels.INFO)
  return vim.NIL
end

--- Fetch a model by its name, or choose one.
--- @param name? string
function M.fetch(name)
  local front = client.get()
  if not front then
    vim.notify('copilotd: no front runs in this Neovim', vim.log.levels.WARN)
    return
  end
  wanted = name == nil
  front:exec_cmd({ title = 'Fetch', command = 'copilotd.fetch', arguments = name and { name } })
end

--- Follow how far a fetch is.
function M.watch()
  vim.api.nvim_create_autocmd('LspProgress', {
    group = vim.api.nvim_create_augroup('copilotd_fetch', { clear = true }),
    callback = function(event)
      local told = event.data.params
      if not tostring(told.token):match('^copilotd%-fetch') then
        return
      end
      local value = told.value
      percentages[told.token] = value.kind ~= 'end' and (value.percentage or 0) or nil
      vim.cmd.redrawstatus({ bang = true })
    end,
  })
end

--- For a status line; nil while nothing is fetched.
--- @return string?
function M.text()
  local _, percentage = next(percentages)
  return percentage and ('fetching, %d %%'):format(percentage)
end

return M
