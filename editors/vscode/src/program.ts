/** Where the program `copilotd` is. Never inside a workspace: what lies there is not ours to run. */
import { accessSync, constants, realpathSync, statSync } from 'node:fs'
import { delimiter, isAbsolute, join, sep } from 'node:path'

export interface Places {
  /** the setting `copilotd.path`, "" if it is not set */
  readonly setting: string
  /** the environment's PATH */
  readonly path: string
  readonly home: string
  /** the window's folders */
  readonly folders: readonly string[]
}

export type Found = { readonly program: string } | { readonly problem: string }

export function find(places: Places): Found {
  if (places.setting !== '') {
    const program = places.setting.replace(/^~(?=\/|$)/, places.home)
    if (!isAbsolute(program)) return { problem: 'the setting copilotd.path is not an absolute path' }
    if (!isProgram(program)) return { problem: 'the setting copilotd.path names no program' }
    if (isInside(program, places.folders)) return { problem: 'the setting copilotd.path leads into the workspace' }
    return { program }
  }
  for (const folder of places.path.split(delimiter)) {
    const program = join(folder, 'copilotd')
    if (isAbsolute(folder) && isProgram(program) && !isInside(program, places.folders)) return { program }
  }
  return { problem: 'the program copilotd is not on PATH' }
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}

/** Whether a file lies in one of the folders, as it is named or as links lead. */
function isInside(file: string, folders: readonly string[]): boolean {
  const names = [file, realpathSync(file)]
  return folders.some((folder) => {
    const roots = [folder, real(folder)]
    return names.some((name) => roots.some((root) => name.startsWith(root.endsWith(sep) ? root : root + sep)))
  })
}

function real(folder: string): string {
  try {
    return realpathSync(folder)
  } catch {
    return folder
  }
}
