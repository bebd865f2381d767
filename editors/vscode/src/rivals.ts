/** Other extensions that give inline completions: of two ghost texts VS Code shows one. */
import * as vscode from 'vscode'

const RIVALS: Readonly<Record<string, string>> = {
  'GitHub.copilot': 'GitHub Copilot',
  'GitHub.copilot-chat': 'GitHub Copilot',
  'amazonwebservices.amazon-q-vscode': 'Amazon Q',
  'Codeium.codeium': 'Windsurf',
  'Continue.continue': 'Continue',
  'Google.geminicodeassist': 'Gemini Code Assist',
  'sourcegraph.cody-ai': 'Cody',
  'Supermaven.supermaven': 'Supermaven',
  'TabbyML.vscode-tabby': 'Tabby',
  'TabNine.tabnine-vscode': 'Tabnine',
}

export interface Rival {
  readonly id: string
  readonly name: string
}

/** The first that is there and not switched off. */
export function rival(): Rival | undefined {
  for (const [id, name] of Object.entries(RIVALS)) {
    if (vscode.extensions.getExtension(id) !== undefined && !(isCopilot(id) && copilotIsOff())) return { id, name }
  }
  return undefined
}

/** Copilot has a setting for it; of others the person sees the extension's page, with its button. */
export async function turnOff({ id }: Rival): Promise<void> {
  if (isCopilot(id)) {
    const settings = vscode.workspace.getConfiguration('github.copilot')
    const before = settings.inspect<Record<string, boolean>>('enable')?.globalValue ?? {}
    try {
      await settings.update('enable', { ...before, '*': false }, vscode.ConfigurationTarget.Global)
      return
    } catch {
      // an old or strange Copilot without that setting
    }
  }
  await vscode.commands.executeCommand('workbench.extensions.search', `@installed ${id}`)
}

function isCopilot(id: string): boolean {
  return id.startsWith('GitHub.copilot')
}

function copilotIsOff(): boolean {
  const enabled = vscode.workspace.getConfiguration('github.copilot').get<Record<string, boolean>>('enable')
  const without = vscode.workspace.getConfiguration('chat').get<boolean>('disableAIFeatures')
  return enabled?.['*'] === false || without === true
}
