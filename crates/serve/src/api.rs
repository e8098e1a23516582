//! The JSON twins of the pages, under `/api/v1`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::Response,
    routing::get,
};
use konverge_base::model::StackId;
use konverge_report::json;

use super::{
    answer::{Form, RequestError, answer},
    cache::{Body, within_deadline},
    pages::{Words, filter, serials},
    shared::Shared,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/search", get(search))
        .route("/api/v1/stacks/{id}", get(stack))
        .route("/api/v1/stacks/{id}/diff", get(difference))
}

fn parse(id: &str) -> Result<StackId, RequestError> {
    id.parse().map_err(|error: konverge_base::model::InvalidId| {
        RequestError::wrong(error.to_string(), "write `PROJECT%2FSTACK`")
    })
}

async fn overview(
    State(shared): State<Arc<Shared>>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let (condition, text) = filter(&words)?;
        let index = shared.index().await?;
        Ok(match condition.is_none() && text.is_empty() {
            true => index.json.clone(),
            false => Body::new(json::document(&index.overview.filtered(condition, text)), None),
        })
    };
    answer(make.await, Form::Json, &headers)
}

async fn search(
    State(shared): State<Arc<Shared>>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let text = words.get("q").map_or("", String::as_str);
        if text.trim().is_empty() {
            return Err(RequestError::wrong("`q` must hold a word", "add `?q=nginx`"));
        }
        let index = shared.index().await?;
        Ok(Body::new(json::document(&index.search.search(text)), None))
    };
    answer(make.await, Form::Json, &headers)
}

async fn stack(State(shared): State<Arc<Shared>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let make = async {
        let id = parse(&id)?;
        let index = shared.index().await?;
        let version = index.fingerprints.get(&id).map(ToString::to_string);
        let address = format!("json {id} {}", version.unwrap_or_default());
        if let Some(body) = shared.bodies.get(&address) {
            return Ok(body);
        }
        let _permit = shared.reads.acquire().await;
        let view = within_deadline(shared.source().stack(&index, &id)).await?;
        let view = view.ok_or_else(|| RequestError::Unknown("this stack"))?;
        let body = Body::new(json::document(&view), index.serials.get(&id).copied());
        shared.bodies.put(address, &body);
        Ok(body)
    };
    answer(make.await, Form::Json, &headers)
}

async fn difference(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let (id, (from, to)) = (parse(&id)?, serials(&words)?);
        let index = shared.index().await?;
        if index.overview.row(&id).is_none() {
            return Err(RequestError::Unknown("this stack"));
        }
        let _permit = shared.reads.acquire().await;
        let difference = within_deadline(shared.source().difference(&id, from, to)).await?;
        let difference = difference.ok_or(RequestError::Unknown("one of these serials"))?;
        Ok(Body::new(json::document(&difference), None))
    };
    answer(make.await, Form::Json, &headers)
}
