import assert from 'node:assert/strict'
import { test } from 'node:test'

import { present, type ServerStatus, type Situation } from '../src/status.ts'

const ready: ServerStatus = {
  state: 'ready',
  message: '',
  progress: null,
  model: 'qwen2.5-coder-1.5b',
  device: 'cpu',
  paused: false,
  reason: '',
}
const none: Situation = { numbers: { shown: 0, accepted: 0, kept: 0 } }

function text(status: Partial<ServerStatus>, more: Partial<Situation> = {}): string {
  return present({ ...none, status: { ...ready, ...status }, ...more }).text
}

test('every state has its words', () => {
  assert.equal(present(none).text, '$(loading~spin) copilotd')
  assert.equal(text({ state: 'loading', message: 'target: 45 of 98 MB' }), '$(loading~spin) copilotd: target: 45 of 98 MB')
  assert.equal(text({}), '$(sparkle) copilotd')
  assert.equal(text({ paused: true }), '$(debug-pause) copilotd: paused')
  assert.equal(text({ state: 'paused', message: 'stopped' }), '$(debug-pause) copilotd: stopped')
  assert.equal(text({ state: 'failed', message: 'no such file' }), '$(error) copilotd: failed')
  assert.equal(text({ reason: 'off' }), '$(circle-slash) copilotd: off')
  assert.equal(text({ reason: 'secret' }), '$(circle-slash) copilotd: off')
  assert.equal(text({}, { rival: 'GitHub Copilot' }), '$(warning) copilotd: beside GitHub Copilot')
  assert.equal(text({}, { hidden: true }), '$(eye-closed) copilotd: hidden')
  assert.equal(present({ ...none, problem: 'it is not on PATH' }).text, '$(error) copilotd: not running')
})

test('the tooltip says why', () => {
  assert.match(present({ ...none, status: { ...ready, reason: 'off' }, language: 'markdown' }).tooltip, /markdown/)
  assert.match(present({ ...none, status: { ...ready, reason: 'secret' } }).tooltip, /secrets/)
  assert.match(present({ ...none, problem: 'it is not on PATH' }).tooltip, /It is not on PATH\./)
})

test('the tooltip has the model, the latency and what was taken', () => {
  const { tooltip } = present({ status: ready, numbers: { shown: 40, accepted: 12, kept: 10 }, median: 45.4 })
  assert.match(tooltip, /qwen2\.5-coder-1\.5b on cpu/)
  assert.match(tooltip, /45 ms/)
  assert.match(tooltip, /12 of 40 \(30 %\), kept: 10/)
})

test('trouble has a colour', () => {
  assert.equal(present({ ...none, problem: 'gone' }).level, 'error')
  assert.equal(present({ ...none, status: ready, rival: 'Other' }).level, 'warning')
  assert.equal(present({ ...none, status: ready }).level, 'normal')
})
