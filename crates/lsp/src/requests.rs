//! Handles requests. If a response needs a compilation, another thread computes it.

use std::sync::Arc;

use lsp_server::{ErrorCode, RequestId, ResponseError};
use lsp_types::{
    CodeLensParams, DocumentLink, DocumentLinkParams, ExecuteCommandParams, HoverParams, Position, Url,
    request::{
        CodeLensRequest, DocumentLinkRequest, DocumentLinkResolve, ExecuteCommand, HoverRequest, Request as _,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    file_uri,
    rendering::{self, LinkData, RequestResult, refusal},
    resource_mentions::{self, ResourceMention},
    server::{FinishedWork, LanguageServer},
    text_position::byte_of,
    workspace::{EditorView, EditorWorkspace, ResourceView, ShownText},
};
use konverge_base::{error::UserError, model::RepoPath};

impl LanguageServer {
    /// Handles a request. Returns the response; `None` if it will be sent later.
    pub(crate) fn answer(&mut self, id: &RequestId, method: &str, params: Value) -> Option<RequestResult> {
        let answered = match method {
            CodeLensRequest::METHOD => read(params).and_then(|params| self.lenses(&params)).map(Some),
            DocumentLinkRequest::METHOD => read(params).map(|params| Some(self.links(&params))),
            DocumentLinkResolve::METHOD => read(params).and_then(|link| self.resolve_link(id, link)),
            HoverRequest::METHOD => read(params).and_then(|params| self.hover(id, &params)),
            ExecuteCommand::METHOD => read(params).and_then(|params| self.execute(id, &params)),
            _ => {
                let shown: String = method.escape_debug().take(100).collect();
                let message = format!("there is no request `{shown}`");
                Err(refusal(ErrorCode::MethodNotFound, message))
            }
        };
        answered.transpose()
    }

    fn lenses(&self, params: &CodeLensParams) -> RequestResult {
        let uri = &params.text_document.uri;
        let Some(file) = self.file_of(uri) else {
            return Ok(json!([]));
        };
        let impact = self.workspace.impact(&file).map_err(failed)?;
        // Every KCL file has a code lens; other files only if a stack uses them.
        let impact = impact.filter(|impact| impact.stacks > 0 || file.file_name().ends_with(".k"));
        Ok(impact.map_or(json!([]), |impact| as_json(rendering::lenses(uri, &impact))))
    }

    fn links(&self, params: &DocumentLinkParams) -> Value {
        let file = self.file_of(&params.text_document.uri);
        let Some(open) = file.and_then(|file| self.files.open.get(&file)) else {
            return json!([]);
        };
        let lines: Vec<_> = open.text.lines().collect();
        let mentions = resource_mentions::find(&open.text);
        let links = mentions
            .iter()
            .map(|mention| rendering::link(&open.uri, mention, lines[mention.line as usize]));
        as_json(links.collect::<Vec<_>>())
    }

    fn resolve_link(
        &mut self,
        id: &RequestId,
        mut link: DocumentLink,
    ) -> Result<Option<Value>, ResponseError> {
        let LinkData { uri, mention } = read(link.data.clone().unwrap_or_default())?;
        let file = self.file_of(&uri).ok_or_else(|| outside(uri.as_str()))?;
        self.work(id, move |workspace| async move {
            let resource = resource(&*workspace, &file, &mention).await?;
            let resource = resource.ok_or_else(|| no_resource(&mention))?;
            let shown = workspace.show(EditorView::Spec, &file).await.map_err(failed)?;
            link.target = place_in(&shown, &resource);
            Ok((as_json(link), None))
        })
    }

    fn hover(&mut self, id: &RequestId, params: &HoverParams) -> Result<Option<Value>, ResponseError> {
        let place = &params.text_document_position_params;
        let found = self.file_of(&place.text_document.uri).and_then(|file| {
            let mention = self.mention_at(&file, place.position)?;
            Some((file, mention))
        });
        let Some((file, mention)) = found else {
            return Ok(Some(Value::Null));
        };
        self.work(id, move |workspace| async move {
            let resource = resource(&*workspace, &file, &mention.text).await?;
            Ok((as_json(resource.as_ref().map(rendering::hover)), None))
        })
    }

    fn mention_at(&self, file: &RepoPath, position: Position) -> Option<ResourceMention> {
        let open = self.files.open.get(file)?;
        let line = open.text.lines().nth(usize::try_from(position.line).ok()?)?;
        resource_mentions::find_at(line, byte_of(line, position.character))
    }

    fn execute(
        &mut self,
        id: &RequestId,
        params: &ExecuteCommandParams,
    ) -> Result<Option<Value>, ResponseError> {
        let invalid = |message: &str| refusal(ErrorCode::InvalidParams, message);
        let view = match params.command.as_str() {
            "konverge.showChain" => EditorView::Chain,
            "konverge.showSpec" => EditorView::Spec,
            "konverge.preview" => EditorView::Preview,
            _ => {
                let commands = super::client_support::COMMANDS.join("`, `");
                return Err(invalid(&format!("the commands are `{commands}`")));
            }
        };
        let Some(Value::String(uri)) = params.arguments.first() else {
            return Err(invalid("the first argument must be the URI of a file"));
        };
        let file = Url::parse(uri).ok().and_then(|uri| self.file_of(&uri));
        let file = file.ok_or_else(|| outside(uri))?;
        self.work(id, move |workspace| async move {
            let shown = workspace.show(view, &file).await.map_err(failed)?;
            let result = json!({"uri": file_uri::uri_of(&shown.file), "text": shown.text});
            Ok((result, Some(shown)))
        })
    }

    /// Computes a response on another thread. The result may also contain a text to show in the editor.
    fn work<T>(
        &mut self,
        id: &RequestId,
        work: impl FnOnce(Arc<dyn EditorWorkspace>) -> T + Send + 'static,
    ) -> Result<Option<Value>, ResponseError>
    where
        T: Future<Output = Result<(Value, Option<ShownText>), ResponseError>> + 'static,
    {
        if self.running.contains_key(id) {
            let message = "a request with this id is already in progress";
            return Err(refusal(ErrorCode::InvalidRequest, message));
        }
        let stop = CancellationToken::new();
        self.running.insert(id.clone(), stop.clone());
        let (workspace, finished, id) = (Arc::clone(&self.workspace), self.finished.clone(), id.clone());
        // The work may block for seconds, so it runs on a blocking thread with the runtime's handle; a cancelled
        // request drops it at the next await.
        let runtime = Handle::current();
        tokio::spawn(async move {
            let worker = move || runtime.block_on(stop.run_until_cancelled(work(workspace)));
            let (result, shown) = match tokio::task::spawn_blocking(worker).await {
                Ok(Some(Ok((result, shown)))) => (Ok(result), shown),
                Ok(Some(Err(refused))) => (Err(refused), None),
                Ok(None) => {
                    let message = "the request was cancelled";
                    (Err(refusal(ErrorCode::RequestCanceled, message)), None)
                }
                Err(_) => {
                    let message = "a bug in Konverge; its log says where";
                    (Err(refusal(ErrorCode::InternalError, message)), None)
                }
            };
            // If sending fails, the session has ended and nobody waits for the response.
            let _ = finished.send(FinishedWork::Answer { id, result, shown });
        });
        Ok(None)
    }

    /// Starts a check of the open files on another thread. Cancels a running check.
    pub(crate) fn start_check(&mut self) {
        self.check.1.cancel();
        let stop = CancellationToken::new();
        let number = self.check.0 + 1;
        self.check = (number, stop.clone());
        let (workspace, finished) = (Arc::clone(&self.workspace), self.finished.clone());
        let (files, runtime): (Vec<_>, _) = (self.files.open.keys().cloned().collect(), Handle::current());
        tokio::spawn(async move {
            let worker = move || {
                let check = stop.run_until_cancelled(workspace.check(&files));
                runtime.block_on(check)
            };
            if let Ok(Some(found)) = tokio::task::spawn_blocking(worker).await {
                // If sending fails, the session has ended and nobody waits for the result.
                let _ = finished.send(FinishedWork::Check { number, found });
            }
        });
    }
}

async fn resource(
    workspace: &dyn EditorWorkspace,
    file: &RepoPath,
    mention: &str,
) -> Result<Option<ResourceView>, ResponseError> {
    workspace.resource(file, mention).await.map_err(failed)
}

/// Returns the URI of a shown Spec, with the line of a resource if the resource is in it.
fn place_in(shown: &ShownText, resource: &ResourceView) -> Option<Url> {
    let mut uri = file_uri::uri_of(&shown.file)?;
    let is_id = |line: &str| {
        let value = line.trim_start().trim_start_matches("- ").strip_prefix("id:");
        value.is_some_and(|value| value.trim().trim_matches(['"', '\'']) == resource.id.as_str())
    };
    if let Some(at) = shown.text.lines().position(is_id) {
        uri.set_fragment(Some(&format!("L{}", at + 1)));
    }
    Some(uri)
}

/// Parses the parameters of a request.
fn read<T: DeserializeOwned>(params: Value) -> Result<T, ResponseError> {
    serde_json::from_value(params).map_err(|error| refusal(ErrorCode::InvalidParams, error.to_string()))
}

fn as_json(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("the keys of the protocol's types are texts")
}

fn failed(error: UserError) -> ResponseError {
    refusal(ErrorCode::RequestFailed, rendering::failure(&error))
}

fn outside(uri: &str) -> ResponseError {
    let shown: String = uri.escape_debug().take(200).collect();
    let message = format!("`{shown}` is not a file of the opened repository");
    refusal(ErrorCode::InvalidParams, message)
}

fn no_resource(mention: &str) -> ResponseError {
    let message = format!("no Spec of the stacks of this file has the resource `{mention}`");
    refusal(ErrorCode::RequestFailed, message)
}
