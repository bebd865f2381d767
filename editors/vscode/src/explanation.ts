/** How a completion came about, for reading. */

export interface Answer {
  readonly items: readonly string[]
  readonly reason: string
  readonly explanation: {
    readonly reasons: readonly { readonly stage: string; readonly text: string; readonly ms: number }[]
    readonly drafts: readonly { readonly source: string; readonly accepted: string; readonly rejected: string }[]
    readonly parts: readonly { readonly name: string; readonly tokens: number; readonly text: string }[]
  } | null
}

export function markdown({ items, reason, explanation }: Answer): string {
  const blocks = items.length === 0 ? [`# No completion: ${reason}`] : []
  for (const item of items) blocks.push('# Completion', fenced(item))
  if (explanation !== null) {
    blocks.push('# Steps')
    blocks.push(explanation.reasons.map((step) => `- ${step.stage}: ${step.text} (${step.ms.toFixed(1)} ms)`).join('\n'))
    if (explanation.drafts.length > 0) {
      blocks.push('# Drafts, what was written of them and what was not')
      for (const draft of explanation.drafts) blocks.push(`- ${draft.source}`, fenced(draft.accepted), fenced(draft.rejected))
    }
    blocks.push('# Prompt')
    for (const part of explanation.parts) blocks.push(`## ${part.name}, ${String(part.tokens)} tokens`, fenced(part.text))
  }
  return `${blocks.join('\n\n')}\n`
}

function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length))
  const fence = '`'.repeat(longest + 1)
  return `${fence}\n${text}\n${fence}`
}
