/** What became of the ghost texts, and how soon they came. Numbers only; they stay on this machine. */

export interface Numbers {
  readonly shown: number
  readonly accepted: number
  readonly kept: number
}

const REMEMBERED = 100

export class Counts {
  shown: number
  accepted: number
  /** taken and still there half a minute later */
  kept: number
  private readonly times: number[] = []

  constructor(before: Partial<Numbers> = {}) {
    this.shown = before.shown ?? 0
    this.accepted = before.accepted ?? 0
    this.kept = before.kept ?? 0
  }

  answered(milliseconds: number, items: number): void {
    if (items === 0) return
    this.shown += 1
    this.times.push(milliseconds)
    if (this.times.length > REMEMBERED) this.times.shift()
  }

  /** Median of the last answers with ghost text, in milliseconds; undefined before the first. */
  get median(): number | undefined {
    return this.times.toSorted((a, b) => a - b)[Math.floor(this.times.length / 2)]
  }

  get numbers(): Numbers {
    return { shown: this.shown, accepted: this.accepted, kept: this.kept }
  }
}
