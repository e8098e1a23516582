// Finds the konverge binary: by the setting, or else on the PATH. Never in the folder that is open: its files belong to
// the author of the repository.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

/** Returns true if a path is a folder, or lies in it. Links are followed. */
function isWithin(file, folder) {
  const real = (name) => {
    try {
      return fs.realpathSync(name);
    } catch {
      return path.resolve(name);
    }
  };
  const relative = path.relative(real(folder), real(file));
  return relative === '' || (!relative.startsWith('..') && !path.isAbsolute(relative));
}

/** Returns true for a file that can be run. */
function isExecutable(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/**
 * The binary to run, or an error that says what to do.
 * @param {string} setting the setting `konverge.path`
 * @param {string} searched the variable PATH
 * @param {string[]} folders the folders that are open
 * @returns {{path?: string, error?: string}}
 */
function findBinary(setting, searched, folders) {
  const isOpen = (file) => folders.some((folder) => isWithin(file, folder));
  if (setting) {
    if (!path.isAbsolute(setting)) {
      return { error: `konverge.path must be an absolute path, and is ${JSON.stringify(setting)}.` };
    }
    if (isOpen(setting)) {
      return { error: `konverge.path names ${setting}, which lies in the open folder. Install the binary elsewhere.` };
    }
    if (!isExecutable(setting)) {
      return { error: `konverge.path names ${setting}, which is not a program. Correct the setting.` };
    }
    return { path: setting };
  }
  const places = searched.split(path.delimiter).filter((place) => path.isAbsolute(place));
  const found = places.map((place) => path.join(place, 'konverge')).find((file) => isExecutable(file) && !isOpen(file));
  return found
    ? { path: found }
    : { error: 'There is no konverge on the PATH. Install it, or set konverge.path to the binary.' };
}

module.exports = { findBinary };
