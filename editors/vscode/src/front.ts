/** The language server of this window: `copilotd --stdio`, started, watched and asked. */
import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'

import * as vscode from 'vscode'
import { CloseAction, ErrorAction, LanguageClient, RevealOutputChannelOn, type Middleware } from 'vscode-languageclient/node'

import type { Counts } from './counts.ts'
import type { Answer } from './explanation.ts'
import { chosen } from './settings.ts'
import type { ServerStatus } from './status.ts'

const DOCUMENTS = ['file', 'untitled', 'vscode-notebook-cell']
const KEPT_AFTER_MS = 30_000
/** Before a front that could not be started is tried again. */
const PAUSES_MS = [1_000, 5_000, 15_000]
/** A front that ends more often than this in so many minutes is not started again by itself. */
const ENDS = 5
const MINUTES = 3

interface Item {
  readonly text: string
  readonly document: vscode.TextDocument
}

export interface Listener {
  changed(status: ServerStatus | undefined, problem?: string): void
  counted(): void
}

/** Says nothing of its own troubles but in the log: a person who types is not to be stopped by a popup. */
class Client extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false)
  }
}

export class Front implements vscode.Disposable {
  private readonly client: LanguageClient
  private readonly ends: number[] = []
  private items = new Map<string, Item>()
  private started = false
  private disposed = false
  private status: ServerStatus | undefined

  constructor(
    private readonly program: string,
    private readonly folder: string,
    /** names of the session's settings */
    private readonly keys: readonly string[],
    private readonly counts: Counts,
    private readonly listener: Listener,
    log: vscode.LogOutputChannel,
  ) {
    mkdirSync(folder, { recursive: true })
    this.client = new Client(
      'copilotd',
      'copilotd',
      { command: program, args: ['--stdio'], options: { cwd: folder } },
      {
        documentSelector: DOCUMENTS.map((scheme) => ({ scheme })),
        outputChannel: log,
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        initializationOptions: { copilotd: { trusted: vscode.workspace.isTrusted } },
        initializationFailedHandler: () => false,
        errorHandler: {
          error: () => ({ action: ErrorAction.Continue, handled: true }),
          closed: () => this.closed(),
        },
        middleware: this.middleware(),
      },
    )
    this.client.onNotification('copilotd/didChangeStatus', (status: ServerStatus) => {
      this.status = status
      if (this.started) listener.changed(status)
    })
  }

  async start(): Promise<void> {
    for (const pause of [...PAUSES_MS, undefined]) {
      try {
        await this.client.start()
        // not before: only now can VS Code ask for completions
        this.started = true
        if (this.status !== undefined) this.listener.changed(this.status)
        return
      } catch {
        if (this.disposed) return
        if (pause !== undefined) await setTimeout(pause)
      }
    }
    this.listener.changed(undefined, 'copilotd could not be started; see its log')
  }

  /** Have the settings read again. */
  async reconfigure(): Promise<void> {
    if (this.client.isRunning()) await this.client.sendNotification('workspace/didChangeConfiguration', { settings: null })
  }

  async explain(document: vscode.TextDocument, position: vscode.Position): Promise<Answer | null> {
    const { line, character } = position
    const uri = this.client.code2ProtocolConverter.asUri(document.uri)
    return this.client.sendRequest<Answer | null>('copilotd/explain', { uri, position: { line, character } })
  }

  /** What the program prints for `copilotd …`, run outside the workspace. */
  async run(...words: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(this.program, words, { cwd: this.folder, timeout: 30_000 })
    return stdout
  }

  async stop(): Promise<void> {
    if (this.client.needsStop()) await this.client.stop().catch(() => undefined)
  }

  dispose(): void {
    this.disposed = true
    void this.stop().then(() => this.client.dispose())
  }

  private closed() {
    const now = Date.now()
    this.ends.push(now)
    const lately = this.ends.filter((end) => now - end < MINUTES * 60_000)
    if (lately.length > ENDS) {
      this.listener.changed(undefined, 'copilotd ended again and again; see its log')
      return { action: CloseAction.DoNotRestart, handled: true }
    }
    this.listener.changed(undefined)
    return { action: CloseAction.Restart, handled: true }
  }

  private middleware(): Middleware {
    return {
      provideInlineCompletionItems: async (document, position, context, token, next) => {
        const begun = performance.now()
        const answer = (await next(document, position, context, token)) ?? []
        const items = Array.isArray(answer) ? answer : answer.items
        if (!token.isCancellationRequested) {
          this.remember(document, items)
          this.counts.answered(performance.now() - begun, items.length)
          this.listener.counted()
        }
        return answer
      },
      executeCommand: (command, words: unknown[], next): unknown => {
        if (command === 'copilotd.didAccept') this.accepted(words[0])
        return next(command, words)
      },
      sendRequest: (type, params, token, next) => {
        const method = typeof type === 'string' ? type : type.method
        const sent = method === 'textDocument/inlineCompletion' ? { ...params, ...formatting() } : params
        return next(type, sent as typeof params, token)
      },
      workspace: {
        configuration: ({ items }) => items.map(({ scopeUri }) => this.settings(scopeUri)),
      },
    }
  }

  private settings(scope: string | undefined): Record<string, unknown> {
    const uri = scope === undefined ? null : this.client.protocol2CodeConverter.asUri(scope)
    const settings = vscode.workspace.getConfiguration('copilotd', uri)
    return { ...chosen(this.keys, (key) => settings.inspect(key)), trusted: vscode.workspace.isTrusted }
  }

  private remember(document: vscode.TextDocument, items: readonly vscode.InlineCompletionItem[]): void {
    if (items.length > 0) this.items = new Map()
    for (const { command, insertText } of items) {
      const id: unknown = command?.arguments?.[0]
      const text = typeof insertText === 'string' ? insertText : insertText.value
      if (typeof id === 'string') this.items.set(id, { document, text })
    }
  }

  private accepted(id: unknown): void {
    const item = typeof id === 'string' ? this.items.get(id) : undefined
    if (item === undefined) return
    this.counts.accepted += 1
    this.listener.counted()
    const text = item.text.trim()
    void setTimeout(KEPT_AFTER_MS).then(() => {
      if (item.document.isClosed || !item.document.getText().replaceAll('\r\n', '\n').includes(text)) return
      this.counts.kept += 1
      this.listener.counted()
    })
  }
}

/** Not in LSP, but the front reads it. */
function formatting() {
  const options = vscode.window.activeTextEditor?.options
  if (options === undefined) return {}
  return { formattingOptions: { tabSize: options.tabSize, insertSpaces: options.insertSpaces } }
}
