//! The JSON API under `/api/v1`, with one document for each page.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::Response,
    routing::get,
};
use konverge_base::model::StackId;

use super::{
    access::Access,
    answer::{Form, RequestError, answer},
    documents::{Asked, Words, serials},
    shared::Shared,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/search", get(search))
        .route("/api/v1/audit", get(audit))
        .route("/api/v1/rollouts", get(rollouts))
        .route("/api/v1/trends", get(trends))
        .route("/api/v1/permissions", get(permissions))
        .route("/api/v1/stacks/{id}", get(stack))
        .route("/api/v1/stacks/{id}/diff", get(difference))
}

pub(super) fn parse(id: &str) -> Result<StackId, RequestError> {
    id.parse().map_err(|error: konverge_base::model::InvalidId| {
        RequestError::wrong(error.to_string(), "write `PROJECT%2FSTACK`")
    })
}

fn asked<'a>(shared: &'a Shared, access: &'a Access) -> Asked<'a> {
    Asked {
        shared,
        access,
        form: Form::Json,
    }
}

async fn overview(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).overview(&words).await;
    answer(made, Form::Json, &headers)
}

async fn search(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).search(&words).await;
    answer(made, Form::Json, &headers)
}

async fn audit(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).audit().await;
    answer(made, Form::Json, &headers)
}

async fn rollouts(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).rollouts().await;
    answer(made, Form::Json, &headers)
}

async fn trends(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).trends().await;
    answer(made, Form::Json, &headers)
}

async fn permissions(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Response {
    let made = asked(&shared, &access).permissions().await;
    answer(made, Form::Json, &headers)
}

async fn stack(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let make = async { asked(&shared, &access).stack(&parse(&id)?).await };
    answer(make.await, Form::Json, &headers)
}

async fn difference(
    State(shared): State<Arc<Shared>>,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let (id, (from, to)) = (parse(&id)?, serials(&words)?);
        asked(&shared, &access).difference(&id, from, to).await
    };
    answer(make.await, Form::Json, &headers)
}
