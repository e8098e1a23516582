//! The endpoint where a job asks its runner for a token of its own identity.

use konverge_base::variables;
/// The variable with the address.
const URL: &str = variables::ACTIONS_ID_TOKEN_REQUEST_URL;

/// The variable with the bearer token for the address.
const TOKEN: &str = variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN;

/// The address at which the runner gives the job a token of its identity. GitHub's runner has one; Gitea's has none.
#[derive(Clone, Copy)]
pub struct IdentityEndpoint<'a> {
    /// The address, not checked yet.
    pub url: &'a str,
    /// The bearer token of the request, a secret.
    pub bearer: &'a str,
}

impl<'a> IdentityEndpoint<'a> {
    /// The variable that holds the address, for messages.
    pub const VARIABLE: &'static str = URL;

    /// Finds the endpoint among variables; `None` in a job that may not ask for such a token.
    pub fn find(variable: impl Fn(&'static str) -> Option<&'a str>) -> Option<Self> {
        Some(Self {
            url: variable(URL)?,
            bearer: variable(TOKEN)?,
        })
    }
}
