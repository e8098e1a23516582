//! The JSON API under `/api/v1`, with one document for each page.

use std::sync::Arc;

use axum::{Router, extract::Path, response::Response, routing::get};
use konverge_base::model::StackId;

use super::{
    answer::RequestError,
    documents::{self, Asked, serials},
    shared::Shared,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/overview", get(documents::overview))
        .route("/api/v1/search", get(documents::search))
        .route("/api/v1/audit", get(documents::audit))
        .route("/api/v1/rollouts", get(documents::rollouts))
        .route("/api/v1/trends", get(documents::trends))
        .route("/api/v1/permissions", get(documents::permissions))
        .route("/api/v1/stacks/{id}", get(stack))
        .route("/api/v1/stacks/{id}/diff", get(difference))
}

pub(super) fn parse(id: &str) -> Result<StackId, RequestError> {
    id.parse().map_err(|error: konverge_base::model::InvalidId| {
        RequestError::wrong(error.to_string(), "write `PROJECT%2FSTACK`")
    })
}

async fn stack(asked: Asked, Path(id): Path<String>) -> Response {
    let make = async { asked.stack(&parse(&id)?).await };
    asked.respond(make.await)
}

async fn difference(asked: Asked, Path(id): Path<String>) -> Response {
    let make = async {
        let (id, (from, to)) = (parse(&id)?, serials(&asked.words)?);
        asked.difference(&id, from, to).await
    };
    asked.respond(make.await)
}
