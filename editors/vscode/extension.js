// The extension: starts `konverge lsp`, and has its commands in the palette. The server does the rest.
'use strict';

const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');
const { findBinary } = require('./binary.js');

/** The commands of the palette, and those of the server. */
const COMMANDS = {
  'konverge.showSpecOfFile': 'konverge.showSpec',
  'konverge.previewFile': 'konverge.preview',
  'konverge.showChainOfFile': 'konverge.showChain',
};

/** @type {LanguageClient | undefined} */
let client;

async function start() {
  const folders = (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath);
  const setting = vscode.workspace.getConfiguration('konverge').get('path', '');
  const binary = findBinary(setting, process.env.PATH ?? '', folders);
  if (!binary.path) {
    vscode.window.showErrorMessage(`Konverge: ${binary.error}`);
    return;
  }
  const server = { command: binary.path, args: ['lsp'] };
  client = new LanguageClient('konverge', 'Konverge', server, {
    documentSelector: [
      { scheme: 'file', language: 'kcl' },
      { scheme: 'file', pattern: '**/*.k' },
      { scheme: 'file', language: 'yaml' },
      { scheme: 'file', pattern: '**/kcl.mod' },
    ],
  });
  await client.start();
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

/** Runs a command of the server for the file in the active editor. */
async function execute(command) {
  const editor = vscode.window.activeTextEditor;
  if (!client || !editor) {
    vscode.window.showInformationMessage(client ? 'Konverge: open a file of a stack first.' : 'Konverge does not run.');
    return;
  }
  const uri = client.code2ProtocolConverter.asUri(editor.document.uri);
  const run = () => client.sendRequest('workspace/executeCommand', { command, arguments: [uri] });
  try {
    await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title: 'Konverge' }, run);
  } catch (error) {
    vscode.window.showErrorMessage(`Konverge: ${error.message}`);
  }
}

async function activate(context) {
  for (const [name, command] of Object.entries(COMMANDS)) {
    context.subscriptions.push(vscode.commands.registerCommand(name, () => execute(command)));
  }
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(vscode.commands.registerCommand('konverge.restart', restart));
  await start();
}

module.exports = { activate, deactivate: stop };
