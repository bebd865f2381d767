/** What the status bar says, from all that is known. */
import type { Numbers } from './counts.ts'

/** `copilotd/didChangeStatus` */
export interface ServerStatus {
  readonly state: 'loading' | 'ready' | 'failed' | 'paused'
  readonly message: string
  /** 0 … 1 while loading */
  readonly progress: number | null
  readonly model: string
  readonly device: string
  /** this window rests */
  readonly paused: boolean
  /** why the last completion was empty */
  readonly reason: string
}

export interface Situation {
  readonly status?: ServerStatus | undefined
  /** why no front runs */
  readonly problem?: string | undefined
  /** another extension that gives inline completions */
  readonly rival?: string | undefined
  /** `editor.inlineSuggest.enabled` is off */
  readonly hidden?: boolean
  readonly language?: string | undefined
  readonly numbers: Numbers
  readonly median?: number | undefined
}

export interface Shown {
  readonly text: string
  readonly tooltip: string
  readonly level: 'normal' | 'warning' | 'error'
}

export function present(situation: Situation): Shown {
  const { icon, words, about, level = 'normal' } = headline(situation)
  const lines = [about, ...model(situation), ...experience(situation)]
  return {
    text: `$(${icon}) copilotd${words === undefined ? '' : `: ${words}`}`,
    tooltip: lines.join('\n\n'),
    level,
  }
}

interface Headline {
  readonly icon: string
  readonly words?: string
  readonly about: string
  readonly level?: Shown['level']
}

function headline({ status, problem, rival, hidden, language }: Situation): Headline {
  if (problem !== undefined) return { icon: 'error', words: 'not running', about: sentence(problem), level: 'error' }
  if (status === undefined) return { icon: 'loading~spin', about: 'Starting.' }
  if (status.paused) return { icon: 'debug-pause', words: 'paused', about: 'Paused in this window.' }
  switch (status.state) {
    case 'failed':
      return { icon: 'error', words: 'failed', about: sentence(status.message), level: 'error' }
    case 'paused':
      return { icon: 'debug-pause', words: 'stopped', about: sentence(status.message) }
    case 'loading':
      return { icon: 'loading~spin', words: status.message || 'loading', about: 'The models are loading.' }
    case 'ready':
  }
  if (hidden === true) {
    return {
      icon: 'eye-closed',
      words: 'hidden',
      about: 'The setting `editor.inlineSuggest.enabled` is off, so no ghost text is shown.',
      level: 'warning',
    }
  }
  if (rival !== undefined) {
    return {
      icon: 'warning',
      words: `beside ${rival}`,
      about: `${rival} gives inline completions too. VS Code shows only one of two ghost texts.`,
      level: 'warning',
    }
  }
  if (status.reason === 'off') {
    const what = language === undefined ? 'this file' : `this file or its language (${language})`
    return { icon: 'circle-slash', words: 'off', about: `Switched off for ${what} in the settings.` }
  }
  if (status.reason === 'secret') {
    return { icon: 'circle-slash', words: 'off', about: 'Off: this file may hold secrets.' }
  }
  return { icon: 'sparkle', about: 'Ready.' }
}

function model({ status }: Situation): string[] {
  if (status?.state !== 'ready' || status.model === '') return []
  return [`Model: ${status.model} on ${status.device}`]
}

function experience({ numbers, median }: Situation): string[] {
  const lines = median === undefined ? [] : [`Ghost text in ${median.toFixed(0)} ms (median of the last)`]
  if (numbers.shown > 0) {
    const { shown, accepted, kept } = numbers
    const share = Math.round((100 * accepted) / shown)
    lines.push(`Taken: ${String(accepted)} of ${String(shown)} (${String(share)} %), kept: ${String(kept)}`)
  }
  return lines
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1)
  return /[.!?]$/.test(begun) ? begun : `${begun}.`
}
