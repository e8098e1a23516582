//! The HTTP transport below octocrab: our own client (proxy, certificates, no redirects), with a limit for bodies.

use std::convert::Infallible;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use konverge_base::error::SharedError;
use konverge_forge::{ForgeError, ForgeKind, Result};
use konverge_http::BodyError;
use konverge_rest::{Answer, ApiAddress, Exchange, MOST_BYTES};
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};

/// The path for GraphQL. On a GitHub Enterprise Server it is not below the REST API but beside it.
pub(super) const GRAPHQL: &str = "/graphql";

/// Returns the URL of a path: beside the REST API for GraphQL, below it for everything else.
fn address_of(api: &ApiAddress, path: &str) -> String {
    let base = match path {
        GRAPHQL => api.base_path.trim_end_matches("/v3"),
        _ => &api.base_path,
    };
    format!("{}{base}{path}", api.origin)
}

/// Reasons why there is no response.
#[derive(Debug, thiserror::Error)]
enum TransportError {
    #[error("the request has no valid address")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Octocrab(#[from] octocrab::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Creates octocrab's client for an API.
pub(super) fn octocrab(http: reqwest::Client, address: ApiAddress, auth: AuthState) -> Octocrab {
    let service = tower::service_fn(move |request: Request<OctoBody>| {
        let http = http.clone();
        let address = address_of(
            &address,
            request.uri().path_and_query().map_or("/", |path| path.as_str()),
        );
        async move {
            let (mut parts, body) = request.into_parts();
            parts.uri = address.parse().map_err(http::Error::from)?;
            let body = body.collect().await?.to_bytes().to_vec();
            let answer = konverge_http::exchange(&http, Request::from_parts(parts, body), MOST_BYTES).await?;
            Ok::<_, TransportError>(answer.map(|body| Full::new(body.into())))
        }
    });
    let built: Result<Octocrab, Infallible> = OctocrabBuilder::new_empty()
        .with_service(service)
        .with_auth(auth)
        .build();
    match built {
        Ok(octocrab) => octocrab,
        Err(never) => match never {},
    }
}

/// Sends a request once, with the client's login.
pub(super) async fn send(octocrab: &Octocrab, exchange: Exchange<'_>) -> Result<Answer> {
    let failed = |error: octocrab::Error| unanswered(exchange.operation(), error);
    let request = exchange.request(exchange.path);
    let forge = ForgeKind::Github;
    let request = request.map_err(|error| ForgeError::malformed(forge, exchange.operation(), error))?;
    let (parts, body) = octocrab.execute(request).await.map_err(failed)?.into_parts();
    let body = body.collect().await.map_err(failed)?;
    Ok(Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    })
}

/// Creates the error of a request without a response. octocrab's own texts are dropped, because they repeat their
/// causes, and so is the URL, which may contain a secret.
pub(super) fn unanswered(operation: String, error: octocrab::Error) -> ForgeError {
    let cause: SharedError = match error {
        octocrab::Error::Service { source, .. } => {
            match source.downcast::<TransportError>().map(|error| *error) {
                Ok(TransportError::Body(error)) => error.without_url().into(),
                Ok(error) => error.into(),
                Err(error) => error.to_string().into(),
            }
        }
        error => error.to_string().into(),
    };
    ForgeError::Unreachable {
        forge: ForgeKind::Github,
        operation,
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphql_is_beside_the_rest_api_of_a_server_and_below_that_of_github_com() {
        let address = |api: &str, path| address_of(&ApiAddress::parse(api, "a hint").unwrap(), path);
        for (api, graphql, rest) in [
            (
                "https://api.github.com",
                "https://api.github.com/graphql",
                "https://api.github.com/repos/a/b?x=y",
            ),
            (
                "https://ghes.example/api/v3/",
                "https://ghes.example/api/graphql",
                "https://ghes.example/api/v3/repos/a/b?x=y",
            ),
        ] {
            assert_eq!(address(api, GRAPHQL), graphql);
            assert_eq!(address(api, "/repos/a/b?x=y"), rest);
        }
    }
}
