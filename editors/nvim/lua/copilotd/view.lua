--- Text for reading, in a window of its own.
local M = {}

--- @param title string
--- @param lines string[]
--- @param filetype? string
function M.show(title, lines, filetype)
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].bufhidden = 'wipe'
  vim.cmd('botright split')
  vim.api.nvim_win_set_buf(0, buffer)
  vim.api.nvim_win_set_height(0, math.max(3, math.min(#lines, math.floor(vim.o.lines / 2))))
  vim.wo.winbar = 'copilotd ' .. title
  if filetype then
    vim.bo[buffer].filetype = filetype
  end
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = buffer, desc = 'Close' })
end

return M
