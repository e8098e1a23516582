'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const { findBinary } = require('./binary.js');

function folder(...names) {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'konverge-'));
  for (const name of names) {
    fs.mkdirSync(path.join(root, path.dirname(name)), { recursive: true });
    fs.writeFileSync(path.join(root, name), '#!/bin/sh\n', { mode: 0o755 });
  }
  return root;
}

test('the binary is the first one on the PATH', () => {
  const one = folder('konverge');
  const two = folder('konverge');
  assert.deepStrictEqual(findBinary('', `${one}:${two}`, []), { path: path.join(one, 'konverge') });
  assert.match(findBinary('', '/nowhere', []).error, /no konverge on the PATH/);
});

test('no program of the open folder is run', () => {
  const open = folder('konverge', 'bin/konverge');
  const link = path.join(folder(), 'link');
  fs.symlinkSync(open, link);
  const other = folder('konverge');
  for (const place of ['.', '', 'bin', open, path.join(open, 'bin'), link, path.join(link, 'bin')]) {
    assert.deepStrictEqual(findBinary('', `${place}:${other}`, [open]), { path: path.join(other, 'konverge') }, place);
    assert.match(findBinary('', place, [open]).error, /no konverge on the PATH/, place);
  }
  for (const setting of [path.join(open, 'konverge'), path.join(link, 'bin/konverge')]) {
    assert.match(findBinary(setting, other, [open]).error, /lies in the open folder/, setting);
  }
});

test('a setting that is wrong says why', () => {
  assert.match(findBinary('konverge', '', []).error, /absolute path/);
  assert.match(findBinary('/nowhere/konverge', '', []).error, /not a program/);
  const own = path.join(folder('konverge'), 'konverge');
  assert.deepStrictEqual(findBinary(own, '', []), { path: own });
});
