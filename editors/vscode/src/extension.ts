/** copilotd in VS Code: a front, a place in the status bar, a menu. */
import { homedir } from 'node:os'

import * as vscode from 'vscode'

import { Counts, type Numbers } from './counts.ts'
import { markdown } from './explanation.ts'
import { Front, type Listener } from './front.ts'
import { offerInstall } from './install.ts'
import { find } from './program.ts'
import { Reading } from './reading.ts'
import { rival, turnOff } from './rivals.ts'
import { present, type ServerStatus } from './status.ts'

const COUNTS = 'counts'

class Extension implements Listener, vscode.Disposable {
  private readonly log = vscode.window.createOutputChannel('copilotd', { log: true })
  private readonly item = vscode.window.createStatusBarItem('copilotd.status', vscode.StatusBarAlignment.Right, 100)
  private readonly reading = new Reading()
  private readonly counts: Counts
  private readonly subscriptions: vscode.Disposable[]
  private readonly keys: readonly string[]
  private front: Front | undefined
  private status: ServerStatus | undefined
  private problem: string | undefined
  /** what was typed into while nothing could answer */
  private waiting: vscode.TextDocument | undefined

  constructor(private readonly context: vscode.ExtensionContext) {
    this.counts = new Counts(context.globalState.get<Numbers>(COUNTS))
    this.keys = sessionKeys(context)
    this.item.name = 'copilotd'
    this.item.command = 'copilotd.menu'
    const command = (name: string, run: () => Promise<void>) => vscode.commands.registerCommand(`copilotd.${name}`, run)
    this.subscriptions = [
      command('menu', () => this.menu()),
      command('restart', () => this.restart()),
      command('log', () => this.showLog()),
      command('status', () => this.showStatus()),
      command('explain', () => this.explain()),
      vscode.workspace.onDidGrantWorkspaceTrust(() => this.front?.reconfigure()),
      vscode.workspace.onDidChangeConfiguration((change) => {
        if (change.affectsConfiguration('copilotd.path')) void this.begin()
        this.show()
      }),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        if (this.status?.state !== 'ready') this.waiting = document
      }),
      vscode.extensions.onDidChange(() => {
        this.show()
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        // the reason was the other file's
        if (this.status !== undefined) this.status = { ...this.status, reason: '' }
        this.show()
      }),
    ]
    this.show()
    this.item.show()
  }

  /** Find the program and start a front, in the place of the one there is. */
  async begin(): Promise<void> {
    this.front?.dispose()
    this.front = undefined
    this.changed(undefined)
    const found = find({
      setting: vscode.workspace.getConfiguration('copilotd').get('path', ''),
      path: process.env['PATH'] ?? '',
      home: homedir(),
      folders: (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath),
    })
    if ('problem' in found) {
      this.changed(undefined, found.problem)
      void offerInstall(found.problem)
      return
    }
    const folder = this.context.globalStorageUri.fsPath
    this.front = new Front(found.program, folder, this.keys, this.counts, this, this.log)
    await this.front.start()
  }

  changed(status: ServerStatus | undefined, problem?: string): void {
    this.status = status
    this.problem = problem
    void vscode.commands.executeCommand('setContext', 'copilotd.running', status !== undefined)
    void vscode.commands.executeCommand('setContext', 'copilotd.paused', status?.paused === true)
    this.show()
    if (status?.state === 'ready') this.answerWaiting()
  }

  counted(): void {
    void this.context.globalState.update(COUNTS, this.counts.numbers)
    this.show()
  }

  dispose(): void {
    for (const part of [...this.subscriptions, this.item, this.reading, this.log]) part.dispose()
  }

  async stop(): Promise<void> {
    await this.front?.stop()
  }

  private answerWaiting(): void {
    const document = this.waiting
    this.waiting = undefined
    if (document === undefined || document !== vscode.window.activeTextEditor?.document) return
    void vscode.commands.executeCommand('editor.action.inlineSuggest.trigger')
  }

  private show(): void {
    const editor = vscode.window.activeTextEditor
    const { text, tooltip, level } = present({
      status: this.status,
      problem: this.problem,
      rival: rival()?.name,
      hidden: this.isHidden(),
      language: editor?.document.languageId,
      numbers: this.counts.numbers,
      median: this.counts.median,
    })
    this.item.text = text
    this.item.tooltip = new vscode.MarkdownString(tooltip)
    this.item.backgroundColor =
      level === 'normal' ? undefined : new vscode.ThemeColor(`statusBarItem.${level}Background`)
  }

  private isHidden(): boolean {
    return !vscode.workspace.getConfiguration('editor').get('inlineSuggest.enabled', true)
  }

  private async menu(): Promise<void> {
    const other = rival()
    const command = (label: string, name: string) => ({
      label,
      run: async () => {
        await vscode.commands.executeCommand(name)
      },
    })
    const entries = [
      ...(this.problem === undefined ? [] : [{ label: '$(cloud-download) Install or Choose copilotd…', run: () => offerInstall(this.problem ?? '') }]),
      ...(other === undefined ? [] : [{ label: `$(circle-slash) Turn Off ${other.name}`, run: () => turnOff(other) }]),
      ...(this.isHidden() ? [{ label: '$(eye) Show Ghost Text (editor.inlineSuggest.enabled)', run: showGhostText }] : []),
      this.status?.paused === true
        ? command('$(play) Resume', 'copilotd.resume')
        : command('$(debug-pause) Pause in This Window', 'copilotd.pause'),
      command('$(question) Explain the Completion Here', 'copilotd.explain'),
      ...(this.status === undefined ? [] : [command('$(cloud-download) Fetch a Model…', 'copilotd.fetch')]),
      command('$(info) Status', 'copilotd.status'),
      command('$(output) Log', 'copilotd.log'),
      { label: '$(gear) Settings', run: openSettings },
      command('$(refresh) Restart', 'copilotd.restart'),
    ]
    const chosen = await vscode.window.showQuickPick(entries, { title: 'copilotd' })
    await chosen?.run()
  }

  /** Also the daemon starts anew; it is the fronts that start it. */
  private async restart(): Promise<void> {
    await this.front?.run('stop').catch(() => '')
    await this.begin()
  }

  private async showLog(): Promise<void> {
    const status = await this.front?.run('status', '--json').catch(() => '')
    const path = status ? (JSON.parse(status) as { log_path?: string }).log_path : undefined
    try {
      if (path === undefined) throw new Error('no log')
      await vscode.window.showTextDocument(vscode.Uri.file(path), { preview: true })
    } catch {
      this.log.show()
    }
  }

  private async showStatus(): Promise<void> {
    const text = await this.front?.run('status').catch(() => '')
    await this.reading.show('/status', text ? text : 'copilotd does not run.\n')
  }

  private async explain(): Promise<void> {
    const editor = vscode.window.activeTextEditor
    const answer = editor && (await this.front?.explain(editor.document, editor.selection.active).catch(() => null))
    if (answer) await this.reading.show('/explain.md', markdown(answer))
    else void vscode.window.showInformationMessage('copilotd: there is nothing to explain here.')
  }
}

async function openSettings(): Promise<void> {
  await vscode.commands.executeCommand('workbench.action.openSettings', '@ext:copilotd.copilotd')
}

async function showGhostText(): Promise<void> {
  await vscode.workspace.getConfiguration('editor').update('inlineSuggest.enabled', true, vscode.ConfigurationTarget.Global)
}

function sessionKeys(context: vscode.ExtensionContext): string[] {
  const manifest = context.extension.packageJSON as { contributes: { configuration: { properties: object } } }
  return Object.keys(manifest.contributes.configuration.properties)
    .map((name) => name.replace(/^copilotd\./, ''))
    .filter((name) => name !== 'path')
}

let extension: Extension | undefined

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  extension = new Extension(context)
  context.subscriptions.push(extension)
  await extension.begin()
}

export async function deactivate(): Promise<void> {
  await extension?.stop()
}
