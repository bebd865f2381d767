/** Of the settings only what someone has set: what is not set stays as the user's config.toml has it. */

export interface Inspected {
  readonly globalValue?: unknown
  readonly workspaceValue?: unknown
  readonly workspaceFolderValue?: unknown
}

export function chosen(
  keys: readonly string[],
  inspect: (key: string) => Inspected | undefined,
): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  for (const key of keys) {
    const found = inspect(key)
    const value = found?.workspaceFolderValue ?? found?.workspaceValue ?? found?.globalValue
    if (value !== undefined) values[key] = value
  }
  return values
}
