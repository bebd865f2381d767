import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { find } from '../src/program.ts'

const root = mkdtempSync(join(tmpdir(), 'copilotd-'))

function program(folder: string, mode = 0o755): string {
  const path = join(root, folder)
  mkdirSync(path, { recursive: true })
  writeFileSync(join(path, 'copilotd'), '#!/bin/sh\n')
  chmodSync(join(path, 'copilotd'), mode)
  return join(path, 'copilotd')
}

const workspace = join(root, 'work')
const bin = program('bin')
const planted = program('work/node_modules/.bin')
const places = { setting: '', path: `${root}/bin`, home: root, folders: [workspace] }

test('it is found on PATH', () => {
  assert.deepEqual(find(places), { program: bin })
})

test('nothing inside the workspace is run, nor what a relative PATH would find', () => {
  const path = `.:node_modules/.bin::${workspace}/node_modules/.bin`
  assert.deepEqual(find({ ...places, path }), { problem: 'the program copilotd is not on PATH' })
  assert.deepEqual(find({ ...places, path: `${path}:${root}/bin` }), { program: bin })
})

test('a link into the workspace is no way around', () => {
  mkdirSync(join(root, 'links'))
  symlinkSync(planted, join(root, 'links', 'copilotd'))
  assert.ok('problem' in find({ ...places, path: `${root}/links` }))
  symlinkSync(workspace, join(root, 'linked-work'))
  assert.ok('problem' in find({ ...places, setting: planted, folders: [`${root}/linked-work`] }))
})

test('the setting goes before PATH', () => {
  const other = program('other')
  assert.deepEqual(find({ ...places, setting: other }), { program: other })
  assert.deepEqual(find({ ...places, setting: '~/other/copilotd' }), { program: other })
})

test('a setting that names no program is said, not passed over', () => {
  for (const setting of ['copilotd', './copilotd', '/no/such/copilotd', root, program('plain', 0o644), planted]) {
    assert.ok('problem' in find({ ...places, setting }), setting)
  }
})
