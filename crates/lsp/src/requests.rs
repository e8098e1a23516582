//! What each request asks for. An answer that needs a compilation is worked out on another thread.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    file_uri,
    incoming::{RefusalCode, RpcRefusal},
    rendering,
    resource_mentions::{self, ResourceMention},
    server::{FinishedWork, LanguageServer},
    text_position::byte_of,
    workspace::{EditorView, EditorWorkspace, ResourceView, ShownText},
};
use konverge_base::{error::UserError, model::RepoPath};

/// The result of a request, and a text that is shown besides.
type Answered = Result<(Value, Option<ShownText>), RpcRefusal>;

impl LanguageServer {
    /// The answer to a request; `None` if it follows later.
    pub(crate) fn answer(
        &mut self,
        id: &Value,
        method: &str,
        params: &Value,
    ) -> Option<Result<Value, RpcRefusal>> {
        match method {
            "textDocument/codeLens" => Some(self.lenses(params)),
            "textDocument/documentLink" => Some(Ok(self.links(params))),
            "documentLink/resolve" => self.resolve_link(id, params),
            "textDocument/hover" => self.hover(id, params),
            "workspace/executeCommand" => self.execute(id, params),
            _ => {
                let shown: String = method.escape_debug().take(100).collect();
                let message = format!("there is no request `{shown}`");
                Some(Err(RpcRefusal::new(RefusalCode::UnknownMethod, message)))
            }
        }
    }

    fn lenses(&self, params: &Value) -> Result<Value, RpcRefusal> {
        let uri = params.pointer("/textDocument/uri").and_then(Value::as_str);
        let uri = uri.ok_or_else(|| RpcRefusal::params("`textDocument.uri` must be a string"))?;
        let Some(file) = self.file_of(params) else {
            return Ok(json!([]));
        };
        let impact = self.workspace.impact(&file).map_err(|error| failed(&error))?;
        // Of other files only those that a stack is made of are of interest.
        let impact = impact.filter(|impact| impact.stacks > 0 || file.file_name().ends_with(".k"));
        Ok(impact.map_or(json!([]), |impact| rendering::lenses(uri, &impact)))
    }

    fn links(&self, params: &Value) -> Value {
        let open = self.file_of(params).and_then(|file| self.files.get(&file));
        let Some(open) = open else {
            return json!([]);
        };
        let lines: Vec<_> = open.text.lines().collect();
        let mentions = resource_mentions::find(&open.text);
        let links = mentions
            .iter()
            .map(|mention| rendering::link(&open.uri, mention, lines[mention.line as usize]));
        links.collect::<Vec<_>>().into()
    }

    fn resolve_link(&mut self, id: &Value, params: &Value) -> Option<Result<Value, RpcRefusal>> {
        let text = |pointer: &str| params.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let Some((uri, mention)) = text("/data/uri").zip(text("/data/mention")) else {
            return Some(Err(RpcRefusal::params("`data` must be that of the link")));
        };
        let Some(file) = self
            .workspace
            .root()
            .and_then(|root| file_uri::file_of(&uri, &root))
        else {
            return Some(Err(outside(&uri)));
        };
        let mut link = params.clone();
        self.work(id, move |workspace| async move {
            let resource = resource(&*workspace, &file, &mention).await?;
            let resource = resource.ok_or_else(|| no_resource(&mention))?;
            let shown = workspace
                .show(EditorView::Spec, &file)
                .await
                .map_err(|error| failed(&error))?;
            link["target"] = place_in(&shown, &resource).into();
            Ok((link, None))
        })
    }

    fn hover(&mut self, id: &Value, params: &Value) -> Option<Result<Value, RpcRefusal>> {
        let number = |pointer: &str| params.pointer(pointer).and_then(Value::as_u64);
        let position = number("/position/line").zip(number("/position/character"));
        let Some((line, column)) = position else {
            return Some(Err(RpcRefusal::params(
                "`position` must have a line and a character",
            )));
        };
        let file = self.file_of(params);
        let Some((file, mention)) = file.and_then(|file| {
            let mention = self.mention_at(&file, line, column)?;
            Some((file, mention))
        }) else {
            return Some(Ok(Value::Null));
        };
        self.work(id, move |workspace| async move {
            let resource = resource(&*workspace, &file, &mention.text).await?;
            Ok((
                resource.map_or(Value::Null, |resource| rendering::hover(&resource)),
                None,
            ))
        })
    }

    fn mention_at(&self, file: &RepoPath, line: u64, column: u64) -> Option<ResourceMention> {
        let open = self.files.get(file)?;
        let line = open.text.lines().nth(usize::try_from(line).ok()?)?;
        let byte = byte_of(line, u32::try_from(column).unwrap_or(u32::MAX));
        resource_mentions::find_at(line, byte)
    }

    fn execute(&mut self, id: &Value, params: &Value) -> Option<Result<Value, RpcRefusal>> {
        let view = match params.get("command").and_then(Value::as_str) {
            Some("konverge.showChain") => EditorView::Chain,
            Some("konverge.showSpec") => EditorView::Spec,
            Some("konverge.preview") => EditorView::Preview,
            _ => {
                let commands = super::client_support::COMMANDS.join("`, `");
                return Some(Err(RpcRefusal::params(&format!("the commands are `{commands}`"))));
            }
        };
        let Some(uri) = params.pointer("/arguments/0").and_then(Value::as_str) else {
            return Some(Err(RpcRefusal::params(
                "the first argument must be the URI of a file",
            )));
        };
        let Some(file) = self
            .workspace
            .root()
            .and_then(|root| file_uri::file_of(uri, &root))
        else {
            return Some(Err(outside(uri)));
        };
        self.work(id, move |workspace| async move {
            let shown = workspace
                .show(view, &file)
                .await
                .map_err(|error| failed(&error))?;
            let result = json!({"uri": file_uri::uri_of(&shown.file), "text": shown.text});
            Ok((result, Some(shown)))
        })
    }

    /// Works on a request on another thread.
    fn work<T>(
        &mut self,
        id: &Value,
        work: impl FnOnce(Arc<dyn EditorWorkspace>) -> T + Send + 'static,
    ) -> Option<Result<Value, RpcRefusal>>
    where
        T: Future<Output = Answered> + 'static,
    {
        let stop = CancellationToken::new();
        if self.running.insert(id.to_string(), stop.clone()).is_some() {
            let message = "a request with this id is worked on";
            return Some(Err(RpcRefusal::new(RefusalCode::InvalidRequest, message)));
        }
        let (workspace, finished, id) = (Arc::clone(&self.workspace), self.finished.clone(), id.clone());
        let runtime = Handle::current();
        tokio::spawn(async move {
            let worker = move || runtime.block_on(stop.run_until_cancelled(work(workspace)));
            let (result, shown) = match tokio::task::spawn_blocking(worker).await {
                Ok(Some(Ok((result, shown)))) => (Ok(result), shown),
                Ok(Some(Err(refusal))) => (Err(refusal), None),
                Ok(None) => (
                    Err(RpcRefusal::new(
                        RefusalCode::Cancelled,
                        "the request was cancelled",
                    )),
                    None,
                ),
                Err(_) => (
                    Err(RpcRefusal::new(
                        RefusalCode::Internal,
                        "a bug in Konverge; its log says where",
                    )),
                    None,
                ),
            };
            // If nobody waits, the session has ended.
            let _ = finished.send(FinishedWork::Answer { id, result, shown });
        });
        None
    }

    /// Checks the open files again, on another thread. A check that is under way is stopped.
    pub(crate) fn start_check(&mut self) {
        self.check.1.cancel();
        let stop = CancellationToken::new();
        let number = self.check.0 + 1;
        self.check = (number, stop.clone());
        let (workspace, finished) = (Arc::clone(&self.workspace), self.finished.clone());
        let (files, runtime) = (self.files.paths(), Handle::current());
        tokio::spawn(async move {
            let worker = move || {
                let check = stop.run_until_cancelled(workspace.check(&files));
                runtime.block_on(check)
            };
            if let Ok(Some(found)) = tokio::task::spawn_blocking(worker).await {
                // If nobody waits, the session has ended.
                let _ = finished.send(FinishedWork::Check { number, found });
            }
        });
    }
}

async fn resource(
    workspace: &dyn EditorWorkspace,
    file: &RepoPath,
    mention: &str,
) -> Result<Option<ResourceView>, RpcRefusal> {
    workspace
        .resource(file, mention)
        .await
        .map_err(|error| failed(&error))
}

/// The place of a resource in a shown Spec.
fn place_in(shown: &ShownText, resource: &ResourceView) -> Option<String> {
    let uri = file_uri::uri_of(&shown.file)?;
    let is_id = |line: &str| {
        let value = line.trim_start().trim_start_matches("- ").strip_prefix("id:");
        value.is_some_and(|value| value.trim().trim_matches(['"', '\'']) == resource.id.as_str())
    };
    Some(match shown.text.lines().position(is_id) {
        Some(at) => format!("{uri}#L{}", at + 1),
        None => uri,
    })
}

fn failed(error: &UserError) -> RpcRefusal {
    RpcRefusal::new(RefusalCode::Failed, rendering::failure(error))
}

fn outside(uri: &str) -> RpcRefusal {
    let shown: String = uri.escape_debug().take(200).collect();
    RpcRefusal::params(&format!("`{shown}` is not a file of the opened repository"))
}

fn no_resource(mention: &str) -> RpcRefusal {
    let message = format!("no Spec of the stacks of this file has the resource `{mention}`");
    RpcRefusal::new(RefusalCode::Failed, message)
}
