--- :checkhealth copilotd. Its first check also runs on a Neovim that is too old for the rest.
local health = vim.health

local M = {}

local function check_neovim()
  if vim.fn.has('nvim-0.12') == 1 then
    health.ok('Neovim ' .. tostring(vim.version()))
    return true
  end
  local version = vim.version()
  health.error(
    ('Neovim 0.12 or newer is needed for inline completion; this is %d.%d.%d'):format(
      version.major,
      version.minor,
      version.patch
    ),
    {
      'Install a release: https://github.com/neovim/neovim/releases (Debian 13 has only 0.10)',
      'Debian sid and Homebrew have 0.12: `apt-get install neovim`, `brew install neovim`',
    }
  )
  return false
end

local function check_program()
  local name = require('copilotd.client').program()
  local path = vim.fn.exepath(name)
  if path == '' then
    health.error(('The program %q is not on PATH'):format(name), {
      'Install copilotd as its README says',
      "Or name it: vim.lsp.config('copilotd', { cmd = { '/path/to/copilotd', '--stdio' } })",
    })
    return false
  end
  health.ok('Program: ' .. path)
  return true
end

local function check_daemon()
  local program = require('copilotd.program')
  local status = program.status(program.run({ 'status', '--json' }))
  if not status then
    health.error('`copilotd status` does not answer', { 'Run `copilotd status` in a terminal' })
  elseif status.state == 'failed' then
    health.error(status.last_error, { 'Log: ' .. status.log_path, 'Then: `copilotd reload`' })
  elseif status.state == 'not running' then
    health.info('The daemon is not running; a front starts it')
  else
    health.ok(('Daemon: %s, %s on %s'):format(status.state, status.target, status.device))
  end
end

local function check_front()
  local client = require('copilotd.client').get()
  if not vim.lsp.is_enabled('copilotd') then
    health.error('Not enabled', { "Add to your init.lua: vim.lsp.enable('copilotd')" })
  elseif not client then
    health.info('No front runs: it starts with the first file whose filetype is known')
  else
    health.ok(
      ('Front: %d buffers, %d folders'):format(
        vim.tbl_count(client.attached_buffers),
        #(client.workspace_folders or {})
      )
    )
    for _, line in ipairs(require('copilotd.status').lines()) do
      health.info(line)
    end
    for buffer in pairs(client.attached_buffers) do
      if not vim.lsp.inline_completion.is_enabled({ bufnr = buffer }) then
        health.warn(('Ghost text is off in buffer %d'):format(buffer), {
          "require('copilotd').setup({}) or vim.lsp.inline_completion.enable() turns it on",
        })
      end
    end
  end
end

local function check_others()
  for _, client in ipairs(vim.lsp.get_clients({ method = 'textDocument/inlineCompletion' })) do
    if client.name ~= 'copilotd' then
      health.warn(('%s gives inline completions too; their ghost texts mix'):format(client.name), {
        ("Keep one: vim.lsp.enable('%s', false)"):format(client.name),
      })
    end
  end
  local keys = require('copilotd.keys')
  if not keys.wanted then
    health.info("No keys are set; require('copilotd').setup({}) sets them")
  end
  for action, key in vim.spairs(keys.taken()) do
    health.warn(('%s belongs to another mapping, so `%s` has no key'):format(key, action), {
      ("Choose one: require('copilotd').setup({ keys = { %s = '…' } })"):format(action),
      "Or call require('copilotd').accept() from that mapping; see :help copilotd-completion-plugins",
    })
  end
end

function M.check()
  health.start('copilotd')
  if not check_neovim() then
    return
  end
  if check_program() then
    check_daemon()
  end
  check_front()
  check_others()
end

return M
