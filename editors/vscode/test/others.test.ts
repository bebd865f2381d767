import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Counts } from '../src/counts.ts'
import { markdown } from '../src/explanation.ts'
import { chosen } from '../src/settings.ts'

test('a default is no choice', () => {
  const inspected: Record<string, object> = {
    enabled: { defaultValue: true },
    multiline: { defaultValue: 'auto', globalValue: 'never' },
    languages_off: { globalValue: ['markdown'], workspaceValue: [], workspaceFolderValue: ['python'] },
    comments: { globalValue: 'on', workspaceValue: 'off' },
  }
  assert.deepEqual(
    chosen([...Object.keys(inspected), 'unknown'], (key) => inspected[key]),
    { multiline: 'never', languages_off: ['python'], comments: 'off' },
  )
})

test('counts go on from where they were, and an empty answer is none', () => {
  const counts = new Counts({ shown: 3, accepted: 1, kept: 1 })
  assert.equal(counts.median, undefined)
  counts.answered(1000, 0)
  for (const milliseconds of [10, 500, 30]) counts.answered(milliseconds, 1)
  assert.deepEqual(counts.numbers, { shown: 6, accepted: 1, kept: 1 })
  assert.equal(counts.median, 30)
})

test('an explanation cannot break out of its fence', () => {
  const text = markdown({
    items: ['a\n```\n# b'],
    reason: '',
    explanation: {
      reasons: [{ stage: 'stop', text: 'end of line', ms: 0.5 }],
      drafts: [{ source: 'lookup', accepted: 'amount', rejected: '```' }],
      parts: [{ name: 'prefix', tokens: 7, text: '````' }],
    },
  })
  assert.match(text, /````\na\n```\n# b\n````/)
  assert.match(text, /- stop: end of line \(0\.5 ms\)/)
  assert.match(text, /- lookup\n\n```\namount\n```\n\n````\n```\n````/)
  assert.match(text, /## prefix, 7 tokens/)
  assert.match(text, /`````\n````\n`````/)
  assert.match(markdown({ items: [], reason: 'off', explanation: null }), /No completion: off/)
})
