/** Texts for reading only, in a tab. Their scheme is not one that copilotd serves. */
import * as vscode from 'vscode'

const SCHEME = 'copilotd'

export class Reading implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>()
  private readonly change = new vscode.EventEmitter<vscode.Uri>()
  private readonly registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this)
  readonly onDidChange = this.change.event

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.path) ?? ''
  }

  async show(name: string, text: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: name })
    this.texts.set(uri.path, text)
    this.change.fire(uri)
    await vscode.window.showTextDocument(uri, { preview: true, viewColumn: vscode.ViewColumn.Beside, preserveFocus: true })
  }

  dispose(): void {
    this.registration.dispose()
    this.change.dispose()
  }
}
