//! The addresses to which credentials may be sent. They are fixed: a variable or a file chooses only among
//! the hosts of its cloud.

use url::Url;

use super::CloudError;
use konverge_secrets::{AddressParts, credential_in, is_this_machine};

/// Parses an address from a setting. It must be HTTPS at one of these hosts, or a service of this machine. A
/// host that begins with a dot allows all hosts below it.
pub(super) fn of_cloud(setting: &str, text: &str, hosts: &[&str]) -> Result<Url, CloudError> {
    if let Some(credential) = credential_in(text, AddressParts::default()) {
        return Err(CloudError::setting(setting, format!("it holds {credential}")));
    }
    let url: Url = text
        .parse()
        .map_err(|_| CloudError::setting(setting, "it is not a URL"))?;
    let host = url.host_str().unwrap_or_default();
    let is_known = url.scheme() == "https"
        && url.port().is_none()
        && hosts.iter().any(|known| match known.strip_prefix('.') {
            Some(_) => host.ends_with(known),
            None => host == *known,
        });
    if is_known || is_this_machine(&url) {
        return Ok(url);
    }
    let hosts = hosts.join(", ");
    let why = format!("`{}` is not an HTTPS address of {hosts}", host.escape_debug());
    Err(CloudError::setting(setting, why))
}

/// Parses an address to which a token may be sent: HTTPS, or this machine.
pub(super) fn encrypted(setting: &str, text: &str) -> Result<Url, CloudError> {
    let url: Option<Url> = text.parse().ok();
    let url = url.filter(|url| url.scheme() == "https" || is_this_machine(url));
    url.ok_or_else(|| CloudError::setting(setting, "it is not an HTTPS address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_the_cloud_or_to_this_machine() {
        let hosts = [".googleapis.com", "login.microsoftonline.com"];
        for (text, is_good) in [
            ("https://sts.googleapis.com/v1/token", true),
            ("https://login.microsoftonline.com/", true),
            ("http://127.0.0.1:9/x", true),
            ("http://localhost:9/x", true),
            ("https://[::1]/", true),
            ("http://sts.googleapis.com/v1/token", false),
            ("https://sts.googleapis.com:8443/", false),
            ("https://googleapis.com.example.com/", false),
            ("https://xgoogleapis.com/", false),
            ("https://sts.googleapis.com@example.com/", false),
            ("https://me:pass@sts.googleapis.com/v1/token", false),
            ("https://sts.googleapis.com/v1/token?key=x", false),
            ("https://a.login.microsoftonline.com/", false),
            ("http://127.0.0.1.example.com/", false),
            ("file:///etc/passwd", false),
            ("not a URL", false),
        ] {
            assert_eq!(of_cloud("token_url", text, &hosts).is_ok(), is_good, "{text}");
        }
    }
}
