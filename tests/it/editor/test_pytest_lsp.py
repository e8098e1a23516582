"""The language server, driven by pytest-lsp as an editor drives it. `tools.rs` makes the repository and runs this."""

import os
import pathlib

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

ROOT = pathlib.Path(os.environ["REPOSITORY"]).resolve()


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[os.environ["KONVERGE"], "lsp"]))
async def client(lsp_client: LanguageClient):
    params = types.InitializeParams(
        capabilities=client_capabilities("visual-studio-code"),
        workspace_folders=[types.WorkspaceFolder(uri=ROOT.as_uri(), name="repository")],
    )

    @lsp_client.feature("client/registerCapability")
    @lsp_client.feature("workspace/codeLens/refresh")
    def accept(*_):
        return None

    await lsp_client.initialize_session(params)
    yield
    await lsp_client.shutdown_session()


def uri(file: str) -> str:
    return (ROOT / file).as_uri()


def open_file(client: LanguageClient, file: str) -> None:
    text = (ROOT / file).read_text()
    item = types.TextDocumentItem(uri=uri(file), language_id="kcl", version=1, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))


def save(client: LanguageClient, file: str, text: str) -> None:
    (ROOT / file).write_text(text)
    identifier = types.TextDocumentIdentifier(uri=uri(file))
    client.text_document_did_save(types.DidSaveTextDocumentParams(text_document=identifier))


async def lenses(client: LanguageClient, file: str) -> list[str]:
    identifier = types.TextDocumentIdentifier(uri=uri(file))
    found = await client.text_document_code_lens_async(types.CodeLensParams(text_document=identifier))
    return [lens.command.title for lens in found]


@pytest.mark.asyncio
async def test_a_lens_counts_five_thousand_stacks(client: LanguageClient):
    open_file(client, "base/app.k")
    expected = "affects 5000 stacks, 2000 in prod; the nearest 16 are checked"
    assert (await lenses(client, "base/app.k"))[0] == expected
    assert (await lenses(client, "appops/p0001/prod/main.k"))[0] == "affects 1 stack, 1 in prod"


@pytest.mark.asyncio
async def test_findings_follow_a_save(client: LanguageClient):
    file = "appops/p0002/dev/main.k"
    text = (ROOT / file).read_text()
    open_file(client, file)
    save(client, file, "resources = = []\n")
    while not any(found.code == "compile" for found in client.diagnostics.get(uri(file), [])):
        await client.wait_for_notification("textDocument/publishDiagnostics")
    save(client, file, text)
    while client.diagnostics.get(uri(file)):
        await client.wait_for_notification("textDocument/publishDiagnostics")


@pytest.mark.asyncio
async def test_a_command_shows_a_file(client: LanguageClient):
    for command, words in [
        ("konverge.showChain", "base/app.k → appops/p0003/dev/main.k"),
        ("konverge.showSpec", "kind: ConfigMap"),
        ("konverge.preview", "p0003/dev"),
    ]:
        file = "base/app.k" if command == "konverge.showChain" else "appops/p0003/dev/main.k"
        params = types.ExecuteCommandParams(command=command, arguments=[uri(file)])
        shown = await client.workspace_execute_command_async(params)
        text = shown["text"] if isinstance(shown, dict) else shown.text
        assert words in text
    opened = [request.uri for request in client.shown_documents]
    assert len(opened) == 3 and all(one.startswith("file:///") for one in opened)
