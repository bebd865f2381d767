if vim.g.loaded_copilotd or vim.fn.has('nvim-0.12') == 0 then
  return
end
vim.g.loaded_copilotd = true

vim.api.nvim_create_user_command('Copilotd', function(arguments)
  require('copilotd.command').run(arguments)
end, {
  nargs = '*', -- without a word it says which there are
  desc = 'copilotd: status, pause, resume, restart, log, explain or fetch',
  complete = function(begun)
    return require('copilotd.command').complete(begun)
  end,
})
