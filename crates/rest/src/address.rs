//! The address of an API, and the check of a token. Both come from the environment.

use http::{HeaderValue, Uri};
use konverge_forge::ForgeError;
use konverge_secrets::{AddressParts, credential_in, without_credentials};

/// The address of an API.
#[derive(Debug, Clone)]
pub struct ApiAddress {
    /// Scheme and authority: `https://api.github.com`.
    pub origin: String,
    /// The path of the API on its server, without a `/` at its end: `/api/v3`, or nothing.
    pub base_path: String,
}

impl ApiAddress {
    /// Reads an absolute URL. `hint` says which variable it comes from.
    ///
    /// # Errors
    /// The text is no URL, or holds a credential.
    pub fn parse(url: &str, hint: &str) -> Result<Self, ForgeError> {
        let shown = without_credentials(url).escape_debug().to_string();
        let unusable = |message: String| ForgeError::Runner {
            message,
            hint: hint.to_owned(),
        };
        if let Some(credential) = credential_in(url, AddressParts::default()) {
            return Err(unusable(format!(
                "the URL of the API, {shown}, holds {credential}"
            )));
        }
        let no_url = || unusable(format!("`{shown}` is not the URL of an API"));
        let base: Uri = url.trim_end_matches('/').parse().map_err(|_| no_url())?;
        let (Some(scheme), Some(server)) = (base.scheme_str(), base.authority()) else {
            return Err(no_url());
        };
        Ok(Self {
            origin: format!("{scheme}://{server}"),
            base_path: base.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Checks that a token can stand in a header. `hint` says which variable it comes from.
///
/// # Errors
/// The token is empty, or has characters that no header may have.
pub fn check_token(token: &str, hint: &str) -> Result<(), ForgeError> {
    if token.is_empty() || token.contains(char::is_whitespace) || HeaderValue::from_str(token).is_err() {
        return Err(ForgeError::Runner {
            message: "the token is empty, or holds white space or other unusual characters".to_owned(),
            hint: hint.to_owned(),
        });
    }
    Ok(())
}
