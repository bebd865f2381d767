/** What to do where the program is missing: the command is shown, the person runs it. */
import { homedir } from 'node:os'

import * as vscode from 'vscode'

const COMMAND = "python3 -m pip install '/path/to/copilotd[local]'"

export async function offerInstall(problem: string): Promise<void> {
  const show = 'Show the Command'
  const choose = 'Choose the Program…'
  const message = `copilotd cannot start: ${problem}. It is installed with: ${COMMAND}`
  const answer = await vscode.window.showWarningMessage(message, show, choose)
  if (answer === show) {
    const terminal = vscode.window.createTerminal({ name: 'Install copilotd', cwd: homedir() })
    terminal.show()
    terminal.sendText(COMMAND, false)
  } else if (answer === choose) {
    const [program] = (await vscode.window.showOpenDialog({ title: 'The program copilotd' })) ?? []
    if (program === undefined) return
    await vscode.workspace.getConfiguration('copilotd').update('path', program.fsPath, vscode.ConfigurationTarget.Global)
  }
}
