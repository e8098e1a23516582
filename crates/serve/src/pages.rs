//! The routes of the pages.

use std::sync::Arc;

use axum::{Router, extract::Path, response::Response, routing::get};
use konverge_base::model::StackId;
use konverge_portal::{StackIndex, StackOrder, html, site_path};

use super::{
    answer::{Form, RequestError},
    cache::Body,
    documents::{self, Asked, serials},
    shared::Shared,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    let tables = StackOrder::ALL.into_iter().fold(Router::new(), |router, order| {
        let page = move |asked: Asked| async move { asked.respond(asked.stacks(order).await) };
        router.route(&format!("/{}", site_path::stacks(order)), get(page))
    });
    tables
        .route("/", get(documents::overview))
        .route("/index.html", get(documents::overview))
        .route("/search.html", get(documents::search))
        .route("/audit.html", get(documents::audit))
        .route("/audit.csv", get(audit_csv))
        .route("/rollouts.html", get(documents::rollouts))
        .route("/trends.html", get(documents::trends))
        .route("/permissions.html", get(documents::permissions))
        .route("/kinds/{file}", get(kind))
        .route("/stacks/{folder}", get(stack))
        .route("/stacks/{folder}/", get(stack))
        .route("/stacks/{folder}/{file}", get(file_of_stack))
}

async fn audit_csv(mut asked: Asked) -> Response {
    asked.form = Form::Csv;
    documents::audit(asked).await
}

async fn kind(asked: Asked, Path(file): Path<String>) -> Response {
    let make = async {
        let index = asked.shared.index(&asked.access).await?;
        let path = format!("kinds/{file}");
        let kind = index.search.listings().find(|kind| site_path::kind(kind) == path);
        let page = kind.and_then(|kind| html::kind(&index.search, kind));
        page.map(|page| Body::new(page, None))
            .ok_or_else(|| RequestError::unknown("this kind"))
    };
    asked.respond(make.await)
}

/// Returns the stack whose pages are in a folder.
pub(super) fn stack_of(index: &StackIndex, folder: &str) -> Result<StackId, RequestError> {
    let rows = &index.overview.stacks;
    let row = rows.iter().find(|row| site_path::slug(row.id.as_str()) == folder);
    row.map(|row| row.id.clone())
        .ok_or_else(|| RequestError::unknown("this stack"))
}

async fn stack(mut asked: Asked, Path(folder): Path<String>) -> Response {
    asked.form = Form::Page(2);
    asked.respond(page_of_stack(&asked, &folder, "index.html").await)
}

async fn file_of_stack(asked: Asked, Path((folder, file)): Path<(String, String)>) -> Response {
    asked.respond(page_of_stack(&asked, &folder, &file).await)
}

/// Responds with a page of a stack: `index.html`, `operations.html`, `FROM-TO.html`, or
/// `difference.html?from=FROM&to=TO`.
async fn page_of_stack(asked: &Asked, folder: &str, file: &str) -> Result<Body, RequestError> {
    let access = &asked.access;
    let index = asked.shared.index(access).await?;
    let id = stack_of(&index, folder)?;
    match file {
        "index.html" => asked.stack(&id).await,
        site_path::OPERATIONS => {
            let csrf = access.csrf().ok_or_else(|| RequestError::unknown("this page"))?;
            let view = asked.details(&index, &id).await?;
            let csrf = Some(csrf).filter(|_| access.may_operate(view.row.stack.or_root()));
            Ok(Body::new(html::operations(&view, csrf), None))
        }
        file => {
            let (from, to) = match file {
                "difference.html" => serials(&asked.words)?,
                file => pair_of(file).ok_or_else(|| RequestError::unknown("this page"))?,
            };
            asked.difference(&id, from, to).await
        }
    }
}

fn pair_of(file: &str) -> Option<(u64, u64)> {
    let (from, to) = file.strip_suffix(".html")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}
