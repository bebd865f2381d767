--- How a completion at the cursor comes about, for a person who asks.
local client = require('copilotd.client')
local view = require('copilotd.view')

local M = {}

local function add(lines, text)
  vim.list_extend(lines, vim.split(text, '\n'))
end

--- @param answer { items: string[], reason: string, explanation?: table }
--- @return string[]
function M.lines(answer)
  local lines = {}
  if #answer.items == 0 then
    add(lines, '# No completion: ' .. answer.reason)
  end
  for _, item in ipairs(answer.items) do
    add(lines, '# Completion\n```\n' .. item .. '\n```')
  end
  local explanation = answer.explanation
  if type(explanation) ~= 'table' then
    return lines
  end
  add(lines, '\n# Steps')
  for _, reason in ipairs(explanation.reasons) do
    add(lines, ('- %s: %s (%.1f ms)'):format(reason.stage, reason.text, reason.ms))
  end
  if #explanation.drafts > 0 then
    add(lines, '\n# Drafts, what was written of them and what was not')
  end
  for _, draft in ipairs(explanation.drafts) do
    add(lines, ('- %s\n```\n%s\n```\n```\n%s\n```'):format(draft.source, draft.accepted, draft.rejected))
  end
  add(lines, '\n# Prompt')
  for _, part in ipairs(explanation.parts) do
    add(lines, ('## %s, %d tokens\n```\n%s\n```'):format(part.name, part.tokens, part.text))
  end
  return lines
end

function M.here()
  local front = client.get()
  if not front then
    vim.notify('copilotd: no front runs in this Neovim', vim.log.levels.WARN)
    return
  end
  local position = vim.lsp.util.make_position_params(0, front.offset_encoding)
  local params = { uri = position.textDocument.uri, position = position.position }
  front:request('copilotd/explain', params, function(problem, answer)
    if problem or not answer then
      vim.notify('copilotd: there is nothing to explain here', vim.log.levels.WARN)
    else
      view.show('explain', M.lines(answer), 'markdown')
    end
  end, 0)
end

return M
