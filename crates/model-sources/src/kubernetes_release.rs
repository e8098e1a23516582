//! The OpenAPI document of a release of Kubernetes.

use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    variables,
};
use konverge_http::BodyError;
use konverge_run::RunContext;

/// Address at which the releases are published.
const ADDRESS: &str = "https://raw.githubusercontent.com/kubernetes/kubernetes";
/// Another place with the same layout, such as a mirror.
const VARIABLE: &str = variables::KONVERGE_KUBERNETES_SCHEMAS;
/// The maximum size of the document.
const LONGEST: usize = 64 << 20;

/// Downloads the document of a minor version.
pub(super) async fn read(run: &RunContext, version: &str) -> Result<Value, UserError> {
    let place = run.var(VARIABLE).unwrap_or(ADDRESS).trim_end_matches('/');
    let url = format!("{place}/release-{version}/api/openapi-spec/swagger.json");
    let failed = |why: SharedError| {
        let what = format!("the OpenAPI document of Kubernetes {version} cannot be downloaded");
        UserError::from_error(ErrorKind::Config, why)
            .context(what)
            .hint(format!(
                "give a file or `cluster:NAME` instead, or set {VARIABLE} to a mirror"
            ))
    };
    let client = konverge_http::client()
        .timeout(std::time::Duration::from_secs(120))
        .build()
        .map_err(|error| failed(error.into()))?;
    let answer = konverge_http::send(client.get(&url)).await;
    let answer = answer.map_err(|error| failed(error.without_url().into()))?;
    if !answer.status().is_success() {
        return Err(failed(format!("the server says {}", answer.status()).into()));
    }
    let body = konverge_http::read_body(answer, LONGEST).await;
    let body = body.map_err(|error| match error {
        BodyError::TooLong { .. } => failed("it is too large".into()),
        other => failed(other.without_url().into()),
    })?;
    serde_json::from_slice(&body).map_err(|error| failed(SharedError::from(error).context("it is not JSON")))
}
