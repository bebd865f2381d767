-- What `vim.lsp.enable('copilotd')` starts. Change it with `vim.lsp.config('copilotd', { … })`.
local client = require('copilotd.client')

return {
  cmd = { 'copilotd', '--stdio' },
  -- not the workspace: nothing in it may be taken for a program or a module
  cmd_cwd = client.working_folder(),
  root_dir = client.root_dir,
  reuse_client = client.reuse,
  get_language_id = client.language,
  on_init = client.on_init,
  handlers = {
    ['copilotd/didChangeStatus'] = function(_, status, context)
      require('copilotd.status').changed(context.client_id, status)
    end,
    ['window/showMessageRequest'] = function(...)
      return require('copilotd.fetch').offered(...)
    end,
  },
}
