//! The OpenAPI document of a release of Kubernetes.

use serde_json::Value;

use konverge_base::error::{ErrorKind, UserError};
use konverge_run::RunContext;

/// Where the releases are published.
const ADDRESS: &str = "https://raw.githubusercontent.com/kubernetes/kubernetes";
/// Another place with the same layout, such as a mirror.
const VARIABLE: &str = "KONVERGE_KUBERNETES_SCHEMAS";
/// The maximum size of the document.
const LONGEST: usize = 64 << 20;

/// Downloads the document of a minor version.
pub(super) async fn read(run: &RunContext, version: &str) -> Result<Value, UserError> {
    let place = run.var(VARIABLE).unwrap_or(ADDRESS).trim_end_matches('/');
    let url = format!("{place}/release-{version}/api/openapi-spec/swagger.json");
    let failed = |why: String| {
        UserError::new(
            ErrorKind::Config,
            format!("the OpenAPI document of Kubernetes {version} cannot be downloaded: {why}"),
        )
        .hint(format!(
            "give a file or `cluster:NAME` instead, or set {VARIABLE} to a mirror"
        ))
    };
    let without_url = |error: reqwest::Error| konverge_base::error::chain(&error.without_url());
    let client = reqwest::Client::builder()
        .connect_timeout(std::time::Duration::from_secs(10))
        .timeout(std::time::Duration::from_secs(120))
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| failed(without_url(error)))?;
    let mut answer = client
        .get(&url)
        .send()
        .await
        .map_err(|error| failed(without_url(error)))?;
    if !answer.status().is_success() {
        return Err(failed(format!("the server says {}", answer.status())));
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| failed(without_url(error)))? {
        body.extend_from_slice(&part);
        if body.len() > LONGEST {
            return Err(failed("it is too large".to_owned()));
        }
    }
    serde_json::from_slice(&body).map_err(|error| failed(format!("it is not JSON: {error}")))
}
