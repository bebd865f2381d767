// A Chromium with VS Code's page in it, for tests/support/vscode.py: one JSON command a line in, one answer a
// line out. `{"do": NAME, ...}` gives `{"ok": VALUE}` or `{"error": TEXT}`.
const { createInterface } = require('node:readline')
const { createRequire } = require('node:module')

const [modules, browser, profile] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')

const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
]
let context, page

// runs in the page
function look() {
  const plain = (text) => text.replaceAll('\u00a0', ' ')
  const all = (selector) => [...document.querySelectorAll(selector)]
  const editor = '.editor-instance .monaco-editor'
  const top = (element) => element.getBoundingClientRect().top
  const ghost = all(`${editor} .ghost-text-decoration`).map((element) => element.textContent)
  const below = all(`${editor} .suggest-preview-text`).sort((a, b) => top(a) - top(b)).map((element) => element.textContent)
  return {
    ghost: plain([ghost.join(''), ...below].join('\n')),
    status: all('.statusbar-item').map((element) => plain(element.textContent)).filter((text) => text.includes('copilotd')).join(' | '),
    notices: all('.notification-toast').map((element) => plain(element.textContent)),
    tabs: all('.tab .label-name').map((element) => plain(element.textContent)),
    sidebar: all('.sidebar .title').map((element) => plain(element.textContent)).join(' '),
    entries: all('.quick-input-widget .monaco-list-row').map((element) => plain(element.textContent)),
  }
}

const commands = {
  async open({ url, window, width, height }) {
    if (!context) {
      context = await chromium.launchPersistentContext(profile, {
        executablePath: browser, headless: true, viewport: { width, height }, args: flags,
      })
    }
    page = window === 0 ? context.pages()[0] : await context.newPage()
    await page.goto(url, { timeout: 120_000 })
    await page.waitForSelector('.editor-instance .monaco-editor .view-lines', { timeout: 120_000 })
    await page.click('.editor-instance .monaco-editor .view-lines')
  },
  async use({ window }) {
    page = context.pages()[window]
    await page.bringToFront()
  },
  look: () => page.evaluate(look),
  type: ({ text, delay }) => page.keyboard.type(text, { delay }),
  press: ({ key }) => page.keyboard.press(key),
  // a hover that stands where the mouse was left would take the click
  click: async ({ selector }) => {
    await page.mouse.move(0, 0)
    await page.click(selector)
  },
  shot: ({ path }) => page.screenshot({ path }),
  watch: () => page.evaluate(() => {
    // from a key to the first ghost text that is new since
    window.times = []
    let pressed
    let before = ''
    const ghost = () => [...document.querySelectorAll('.ghost-text-decoration, .suggest-preview-text')].map((element) => element.textContent).join('\n')
    addEventListener('keydown', () => { pressed = performance.now(); before = ghost() }, true)
    new MutationObserver(() => {
      const now = ghost()
      if (pressed === undefined || now === '' || now === before) return
      window.times.push(performance.now() - pressed)
      pressed = undefined
    }).observe(document.querySelector('.monaco-workbench'), { subtree: true, childList: true, characterData: true })
  }),
  times: () => page.evaluate(() => window.times),
  close: () => context?.close(),
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { do: name, ...words } = JSON.parse(line)
  let answer
  try {
    answer = { ok: (await commands[name](words)) ?? null }
  } catch (error) {
    answer = { error: String(error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
  if (name === 'close') process.exit(0)
})
