--- Private code completion from your own machine. See |copilotd|.
local M = {}

--- @class copilotd.Options
--- @field keys? table<string, string|false>|false action → key; false for none
--- @field inline_completion? boolean show ghost text (default: true)
--- @field settings? table<string, any> session settings, such as `languages_off`

--- @return boolean
local function supported()
  if vim.fn.has('nvim-0.12') == 1 then
    return true
  end
  vim.notify_once('copilotd needs Neovim 0.12 or newer; see :checkhealth copilotd', vim.log.levels.WARN)
  return false
end

local function show_in(buffer)
  vim.lsp.inline_completion.enable(true, { bufnr = buffer })
end

--- Ghost text and keys. May be called again; the last call holds.
--- @param options? copilotd.Options
function M.setup(options)
  if not supported() then
    return
  end
  options = options or {}
  if options.settings then
    vim.lsp.config('copilotd', { settings = { copilotd = options.settings } })
  end
  local group = vim.api.nvim_create_augroup('copilotd', { clear = true })
  if options.inline_completion ~= false then
    vim.api.nvim_create_autocmd('LspAttach', {
      group = group,
      callback = function(event)
        local client = vim.lsp.get_client_by_id(event.data.client_id)
        if client and client.name == 'copilotd' then
          show_in(event.buf)
        end
      end,
    })
    for _, client in ipairs(vim.lsp.get_clients({ name = 'copilotd' })) do
      vim.iter(vim.tbl_keys(client.attached_buffers)):each(show_in)
    end
  end
  require('copilotd.keys').set(options.keys == nil and {} or options.keys)
end

--- Take the ghost text. For mappings of your own: `if not require('copilotd').accept() then … end`
--- @return boolean whether there was one
function M.accept()
  return require('copilotd.ghost').accept()
end

--- Take a word of the ghost text.
--- @return boolean whether there was one
function M.accept_word()
  local ghost = require('copilotd.ghost')
  return ghost.accept(ghost.word)
end

--- Take a line of the ghost text.
--- @return boolean whether there was one
function M.accept_line()
  local ghost = require('copilotd.ghost')
  return ghost.accept(ghost.line)
end

--- Whether ghost text is shown in the current buffer.
--- @return boolean
function M.visible()
  return require('copilotd.ghost').visible()
end

--- Show the next alternative.
function M.next()
  require('copilotd.ghost').select(1)
end

--- Show the alternative before.
function M.previous()
  require('copilotd.ghost').select(-1)
end

--- Hide the ghost text until something is typed.
function M.dismiss()
  require('copilotd.ghost').dismiss()
end

--- Ask for ghost text at the cursor.
function M.trigger()
  require('copilotd.ghost').trigger()
end

--- A few words for a status line: `%{v:lua.require'copilotd'.statusline()}`
--- @return string
function M.statusline()
  return require('copilotd.status').text()
end

--- What the front said last; nil if none runs.
--- @return copilotd.Status?
function M.status()
  return require('copilotd.status').get()
end

return M
