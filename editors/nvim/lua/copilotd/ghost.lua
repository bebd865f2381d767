--- The ghost text on screen: taken whole, by word, by line; another one, none, or one asked for.
---
--- Neovim 0.12 shows it and has two public functions for it. Where those do not reach (asking, dismissing),
--- we fire the events that it listens to.
local api = vim.api

local M = {}

local namespace = api.nvim_create_namespace('nvim.lsp.inline_completion')
local AUTOMATIC, INVOKED = 2, 1

local invoked = false

--- @return boolean
function M.visible()
  return #api.nvim_buf_get_extmarks(0, namespace, 0, -1, { limit = 1 }) > 0
end

--- The first word of a text, with the space and the line ends before it.
--- @param text string
--- @return string
function M.word(text)
  return vim.fn.matchstr(text, [[^\_s*\%(\k\+\|\%(\k\@!\S\)\+\)]])
end

--- A text up to its first line end that has something before it.
--- @param text string
--- @return string
function M.line(text)
  return (text:match('^\n*[^\n]*'))
end

local function bounds(range)
  if range.start_row then
    return range.start_row, range.start_col, range.end_row, range.end_col
  end
  return range.start.row, range.start.col, range.end_.row, range.end_.col
end

local function report(item, length, whole)
  local client = vim.lsp.get_client_by_id(item.client_id)
  local command = item.command
  if not client or not command then
    return
  end
  if not whole then
    if command.command ~= 'copilotd.didAccept' then
      return
    end
    command = {
      title = command.title,
      command = 'copilotd.didPartiallyAccept',
      arguments = { command.arguments[1], length },
    }
  end
  client:exec_cmd(command, { bufnr = api.nvim_get_current_buf() })
end

--- Insert an item, or what `cut` leaves of it, at the cursor.
---
--- Neovim's own insertion goes to where the cursor was when the item came. What was typed along since then
--- would stay behind it, so we insert ourselves.
--- @return vim.lsp.inline_completion.Item? what is left to Neovim
local function insert(item, cut)
  local text = item.insert_text
  if type(text) ~= 'string' or not item.range then
    return item
  end
  local row, column, end_row, end_column = bounds(item.range)
  local cursor = api.nvim_win_get_cursor(0)
  local typed = api.nvim_get_current_line():sub(column + 1, cursor[2])
  if row ~= cursor[1] - 1 or column > cursor[2] or not vim.startswith(text, typed) then
    return nil
  end
  local rest = text:sub(#typed + 1)
  local part = cut and cut(rest) or rest
  local whole = #part == #rest
  if end_row == row then
    end_column = end_column + #typed
  end
  if not whole then
    -- what the item covers comes again with its end
    end_row, end_column = row, cursor[2]
  end
  -- a new step for undo, so that it gives back what was typed
  vim.bo.undolevels = vim.bo.undolevels
  local lines = vim.split(part, '\n')
  api.nvim_buf_set_text(0, row, cursor[2], end_row, end_column, lines)
  api.nvim_win_set_cursor(0, { row + #lines, (#lines == 1 and cursor[2] or 0) + #lines[#lines] })
  report(item, vim.str_utfindex(typed .. part, 'utf-16'), whole)
end

--- Take the ghost text, or what `cut` leaves of it.
--- @param cut? fun(text: string): string
--- @return boolean whether there was one
function M.accept(cut)
  return vim.lsp.inline_completion.get({
    on_accept = function(item)
      return insert(item, cut)
    end,
  })
end

--- Show another alternative.
--- @param count integer 1 for the next, -1 for the one before
function M.select(count)
  vim.lsp.inline_completion.select({ count = count })
end

local function fire(event)
  local buffer = api.nvim_get_current_buf()
  local group = ('nvim.lsp.inline_completion:%d'):format(buffer)
  if vim.fn.exists('#' .. group) == 1 then
    api.nvim_exec_autocmds(event, { group = group, buffer = buffer })
  end
end

--- Hide the ghost text and drop what is being asked, until something is typed.
function M.dismiss()
  fire('InsertLeave')
end

--- Ask for a completion here, as if something had been typed.
function M.ask()
  if vim.startswith(api.nvim_get_mode().mode, 'i') then
    fire('CursorMovedI')
  end
end

--- Ask for a completion here, by the person's wish.
function M.trigger()
  invoked = true
  M.ask()
end

--- Neovim calls every request automatic; ours are told apart here.
--- @param client vim.lsp.Client
function M.watch(client)
  local request = client.request
  client.request = function(self, method, params, ...)
    if method == 'textDocument/inlineCompletion' then
      params.context.triggerKind = invoked and INVOKED or AUTOMATIC
      invoked = false
    end
    return request(self, method, params, ...)
  end
end

return M
