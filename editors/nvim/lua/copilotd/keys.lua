--- Keys that do something while ghost text is shown, and what they always did otherwise.
local ghost = require('copilotd.ghost')

local M = {}

M.DEFAULTS = {
  accept = '<Tab>',
  accept_word = '<M-w>',
  accept_line = '<M-l>',
  next = '<M-]>',
  previous = '<M-[>',
  dismiss = '<C-e>',
  trigger = '<M-\\>',
}

local ACTIONS = {
  accept = { 'Take the ghost text', ghost.accept },
  accept_word = {
    'Take a word of the ghost text',
    function()
      ghost.accept(ghost.word)
    end,
  },
  accept_line = {
    'Take a line of the ghost text',
    function()
      ghost.accept(ghost.line)
    end,
  },
  next = {
    'Show the next ghost text',
    function()
      ghost.select(1)
    end,
  },
  previous = {
    'Show the ghost text before',
    function()
      ghost.select(-1)
    end,
  },
  dismiss = { 'Hide the ghost text', ghost.dismiss },
  trigger = { 'Ask for ghost text', ghost.trigger },
}

local ours = {}

local function mapped(key)
  return vim.fn.maparg(key, 'i', false, true)
end

--- What a key does without us, as an <expr> mapping; nil if it is someone's whom we cannot stand in for.
local function otherwise(key)
  local map = mapped(key)
  if vim.tbl_isempty(map) then
    return function()
      return key
    end
  end
  if map.callback and map.expr == 1 and map.buffer == 0 then
    return map.callback
  end
end

local function map(name, key)
  local fallback = otherwise(key)
  if not fallback then
    return
  end
  local about, act = unpack(ACTIONS[name])
  local function press()
    if name ~= 'trigger' and not ghost.visible() then
      return fallback()
    end
    vim.schedule(function()
      act()
    end)
    return ''
  end
  ours[name] = { key = key, press = press }
  vim.keymap.set('i', key, press, { expr = true, desc = 'copilotd: ' .. about })
end

--- @param wanted table<string, string|false>|false
function M.set(wanted)
  for _, entry in pairs(ours) do
    if mapped(entry.key).callback == entry.press then
      vim.keymap.del('i', entry.key)
    end
  end
  ours = {}
  M.wanted = wanted and vim.tbl_extend('force', M.DEFAULTS, wanted) or {}
  for name, key in vim.spairs(M.wanted) do
    if not ACTIONS[name] then
      vim.notify(('copilotd: there is no action %q for a key'):format(name), vim.log.levels.WARN)
    elseif key then
      map(name, key)
    end
  end
end

--- Keys we were asked for that do something else now: action → key.
--- @return table<string, string>
function M.taken()
  local taken = {}
  for name, key in pairs(M.wanted or {}) do
    local own = ours[name]
    if key and not (own and mapped(key).callback == own.press) then
      taken[name] = key
    end
  end
  return taken
end

return M
