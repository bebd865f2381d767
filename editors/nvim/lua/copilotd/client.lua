--- How Neovim finds, starts and shares the one front of this window.
local M = {}

M.NAME = 'copilotd'

local ROOTS = { '.git', '.hg', '.jj', '.svn' }

--- Neovim's filetypes that the rest of the world calls something else.
local LANGUAGES = {
  bash = 'shellscript',
  cs = 'csharp',
  dosbatch = 'bat',
  make = 'makefile',
  objc = 'objective-c',
  objcpp = 'objective-cpp',
  ps1 = 'powershell',
  sh = 'shellscript',
  tex = 'latex',
  text = 'plaintext',
  zsh = 'shellscript',
}

--- @return vim.lsp.Client?
function M.get()
  return vim.lsp.get_clients({ name = M.NAME })[1]
end

--- A folder that holds nothing of a workspace.
--- @return string
function M.working_folder()
  local folder = vim.fn.stdpath('state')
  vim.fn.mkdir(folder, 'p')
  return folder
end

--- The program that the front is started with.
--- @return string
function M.program()
  local config = vim.lsp.config[M.NAME]
  local cmd = config and config.cmd
  return type(cmd) == 'table' and cmd[1] or M.NAME
end

--- Whether a buffer is a file that a person edits: no help, terminal, prompt, scratch or plugin's buffer.
--- @param buffer integer
--- @return boolean
function M.serves(buffer)
  local name = vim.api.nvim_buf_get_name(buffer)
  return vim.bo[buffer].buftype == '' and name ~= '' and not name:match('^%a[%w+.-]+://')
end

--- @param buffer integer
--- @param on_dir fun(root?: string)
function M.root_dir(buffer, on_dir)
  if M.serves(buffer) then
    on_dir(vim.fs.root(buffer, ROOTS))
  end
end

--- @param filetype string
--- @return string
function M.language(_, filetype)
  return LANGUAGES[filetype] or filetype
end

local function notify_folders(client, folders)
  client:notify('workspace/didChangeWorkspaceFolders', { event = { added = folders, removed = {} } })
end

--- One front serves all roots: a new root becomes a folder of the front that runs.
--- @param client vim.lsp.Client
--- @param config vim.lsp.ClientConfig
--- @return boolean
function M.reuse(client, config)
  if client.name ~= config.name or client:is_stopped() then
    return false
  end
  local root = config.root_dir
  if not root then
    return true
  end
  local folders = client.workspace_folders or {}
  for _, folder in ipairs(folders) do
    if folder.name == root then
      return true
    end
  end
  local folder = { uri = vim.uri_from_fname(root), name = root }
  client.workspace_folders = vim.list_extend(vim.list_slice(folders), { folder })
  if client.initialized then
    notify_folders(client, { folder })
  end
  return true
end

--- @param client vim.lsp.Client
function M.on_init(client)
  -- roots that came between `initialize` and its answer
  if client.workspace_folders then
    notify_folders(client, client.workspace_folders)
  end
  require('copilotd.ghost').watch(client)
  require('copilotd.fetch').watch()
end

--- Start the front anew, and with it a daemon if none is left.
function M.restart()
  local old = M.get()
  vim.lsp.enable(M.NAME, false)
  local function start(attempts)
    if old and vim.lsp.get_client_by_id(old.id) and attempts > 0 then
      vim.defer_fn(function()
        start(attempts - 1)
      end, 50)
    else
      vim.lsp.enable(M.NAME)
    end
  end
  start(200)
end

return M
