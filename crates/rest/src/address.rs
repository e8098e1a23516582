//! Validates the address of an API and a token, which both come from the environment.

use http::{HeaderValue, Uri};
use konverge_forge::{ForgeError, Result};
use konverge_secrets::{AddressParts, credential_in, without_credentials};

/// The address of an API.
#[derive(Debug, Clone)]
pub struct ApiAddress {
    /// The scheme and the authority: `https://api.github.com`.
    pub origin: String,
    /// The path of the API on the server without a trailing `/`, such as `/api/v3`, or empty.
    pub base_path: String,
}

impl ApiAddress {
    /// Parses an absolute URL. `hint` is the hint of the error: it names the variable.
    ///
    /// # Errors
    /// A text that is no URL, or a URL with credentials.
    pub fn parse(url: &str, hint: &str) -> Result<Self> {
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

/// Checks that a token is valid in a header. `hint` is the hint of the error: it names the variable.
///
/// # Errors
/// An empty token, or a character that is invalid in a header.
pub fn check_token(token: &str, hint: &str) -> Result<()> {
    if token.is_empty() || token.contains(char::is_whitespace) || HeaderValue::from_str(token).is_err() {
        return Err(ForgeError::Runner {
            message: "the token is empty, or holds white space or other unusual characters".to_owned(),
            hint: hint.to_owned(),
        });
    }
    Ok(())
}
