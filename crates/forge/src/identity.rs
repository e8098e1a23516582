//! The endpoint of the runner at which a job requests an identity token (OIDC).

use konverge_base::variables;
/// The variable with the address.
const URL: &str = variables::ACTIONS_ID_TOKEN_REQUEST_URL;

/// The variable with the bearer token for the address.
const TOKEN: &str = variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN;

/// The endpoint of the runner that issues identity tokens to the job. GitHub's runner has one; Gitea's has none.
#[derive(Clone, Copy)]
pub struct IdentityEndpoint<'a> {
    /// The address of the endpoint, not validated yet.
    pub url: &'a str,
    /// The bearer token for requests to the endpoint; a secret.
    pub bearer: &'a str,
}

impl<'a> IdentityEndpoint<'a> {
    /// The variable that holds the address, for messages.
    pub const VARIABLE: &'static str = URL;

    /// Finds the endpoint in the environment; `None` if the job has no permission to request an identity token.
    pub fn find(variable: impl Fn(&'static str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            url: variable(URL)?,
            bearer: variable(TOKEN)?,
        })
    }
}
