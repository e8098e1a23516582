//! The routes of the pages.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::Response,
    routing::get,
};
use konverge_base::model::StackId;
use konverge_portal::{StackIndex, StackOrder, html, site_path};

use super::{
    access::Access,
    answer::{Form, RequestError, answer},
    cache::Body,
    documents::{Asked, Words, serials},
    shared::Shared,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    let tables = StackOrder::ALL.into_iter().fold(Router::new(), |router, order| {
        let page = move |shared, access, headers| stacks(order, shared, access, headers);
        router.route(&format!("/{}", site_path::stacks(order)), get(page))
    });
    tables
        .route("/", get(overview))
        .route("/index.html", get(overview))
        .route("/search.html", get(search))
        .route("/audit.html", get(audit))
        .route("/audit.csv", get(audit_csv))
        .route("/rollouts.html", get(rollouts))
        .route("/trends.html", get(trends))
        .route("/permissions.html", get(permissions))
        .route("/kinds/{file}", get(kind))
        .route("/stacks/{folder}", get(stack))
        .route("/stacks/{folder}/", get(stack))
        .route("/stacks/{folder}/{file}", get(file_of_stack))
}

fn asked<'a>(shared: &'a Shared, access: &'a Access, depth: usize) -> Asked<'a> {
    Asked {
        shared,
        access,
        form: Form::Page(depth),
    }
}

async fn overview(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).overview(&words).await;
    answer(made, Form::Page(0), &headers)
}

async fn search(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).search(&words).await;
    answer(made, Form::Page(0), &headers)
}

async fn stacks(
    order: StackOrder,
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).stacks(order).await;
    answer(made, Form::Page(0), &headers)
}

async fn rollouts(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).rollouts().await;
    answer(made, Form::Page(0), &headers)
}

async fn trends(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).trends().await;
    answer(made, Form::Page(0), &headers)
}

async fn permissions(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).permissions().await;
    answer(made, Form::Page(0), &headers)
}

async fn audit_csv(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let asked = Asked {
        form: Form::Csv,
        ..asked(&shared, &access, 0)
    };
    answer(asked.audit().await, Form::Csv, &headers)
}

async fn audit(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access, 0).audit().await;
    answer(made, Form::Page(0), &headers)
}

async fn kind(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let index = shared.index(&access).await?;
        let path = format!("kinds/{file}");
        let kind = index.search.listings().find(|kind| site_path::kind(kind) == path);
        let page = kind.and_then(|kind| html::kind(&index.search, kind));
        page.map(|page| Body::new(page, None))
            .ok_or(RequestError::Unknown("this kind"))
    };
    answer(make.await, Form::Page(1), &headers)
}

/// Returns the stack whose pages are in a folder.
pub(super) fn stack_of(index: &StackIndex, folder: &str) -> Result<StackId, RequestError> {
    let rows = &index.overview.stacks;
    let row = rows.iter().find(|row| site_path::slug(row.id.as_str()) == folder);
    row.map(|row| row.id.clone())
        .ok_or(RequestError::Unknown("this stack"))
}

async fn stack(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Path(folder): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer(
        page_of_stack(&shared, &access, &folder, "index.html", &Words::new()).await,
        Form::Page(2),
        &headers,
    )
}

async fn file_of_stack(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Path((folder, file)): Path<(String, String)>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    answer(
        page_of_stack(&shared, &access, &folder, &file, &words).await,
        Form::Page(2),
        &headers,
    )
}

/// Responds with a page of a stack: `index.html`, `operations.html`, `FROM-TO.html`, or
/// `difference.html?from=FROM&to=TO`.
async fn page_of_stack(
    shared: &Shared,
    access: &Access,
    folder: &str,
    file: &str,
    words: &Words,
) -> Result<Body, RequestError> {
    let asked = asked(shared, access, 2);
    let index = shared.index(access).await?;
    let id = stack_of(&index, folder)?;
    match file {
        "index.html" => asked.stack(&id).await,
        site_path::OPERATIONS => {
            let csrf = access.signed_in.as_ref().and_then(|of| of.csrf.as_deref());
            let csrf = csrf.ok_or(RequestError::Unknown("this page"))?;
            let view = asked.details(&index, &id).await?;
            let csrf = Some(csrf).filter(|_| access.may_operate(view.row.stack.or_root()));
            Ok(Body::new(html::operations(&view, csrf), None))
        }
        file => {
            let (from, to) = match file {
                "difference.html" => serials(words)?,
                file => pair_of(file).ok_or(RequestError::Unknown("this page"))?,
            };
            asked.difference(&id, from, to).await
        }
    }
}

fn pair_of(file: &str) -> Option<(u64, u64)> {
    let (from, to) = file.strip_suffix(".html")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}
