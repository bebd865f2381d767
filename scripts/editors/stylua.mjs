// Formats the plugin's Lua as editors/nvim/stylua.toml says; `--check` only names what is not so.
// Needs @johnnymorganz/stylua, StyLua built for Node: the binary itself is on no package index.
import { createRequire } from 'node:module'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const [modules, ...options] = process.argv.slice(2)
const stylua = createRequire(`${modules}/`)('@johnnymorganz/stylua')
const plugin = fileURLToPath(new URL('../../editors/nvim', import.meta.url))
const wanted = readFileSync(`${plugin}/stylua.toml`, 'utf8').matchAll(/^(\w+) = "?(\w+)"?$/gm)
const names = { indent_type: stylua.IndentType, quote_style: stylua.QuoteStyle }
const settings = [...wanted].map(([, key, value]) => [key, names[key]?.[value] ?? Number(value)])

let odd = 0
for (const file of globSync(`${plugin}/**/*.lua`)) {
  const config = stylua.Config.new()
  for (const [key, value] of settings) config[key] = value
  const text = readFileSync(file, 'utf8')
  const formatted = stylua.formatCode(text, config, undefined, stylua.OutputVerification.Full)
  if (formatted === text) continue
  odd += 1
  console.log(file)
  if (!options.includes('--check')) writeFileSync(file, formatted)
}
process.exit(odd && options.includes('--check') ? 1 : 0)
