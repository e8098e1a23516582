//! Normalizes the URL of a remote, so that all clones of a repository get the same identity.

use url::Url;

/// Normalizes the URL of a remote: `https://host/owner/name` without credentials, default ports, `.git` or a
/// trailing slash, whatever protocol was used for the clone; `file:///path` for a local one.
///
/// The SCP-like syntax `git@host:owner/name` is described in git-clone(1), "GIT URLS".
pub fn normalize_url(raw: &str) -> String {
    let raw = raw.trim();
    let parsed = match Url::parse(raw) {
        Ok(url) if url.has_host() => Some(url),
        Ok(url) if url.scheme() == "file" => return tidy(&format!("file://{}", url.path())),
        _ => scp_like(raw),
    };
    let Some(url) = parsed else {
        return tidy(&format!("file://{raw}"));
    };
    if url.scheme() == "file" {
        return tidy(&format!("file://{}", url.path()));
    }
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let port = match (url.scheme(), url.port()) {
        ("http" | "https", Some(port)) => format!(":{port}"),
        _ => String::new(),
    };
    tidy(&format!("https://{host}{port}{}", url.path()))
}

fn scp_like(raw: &str) -> Option<Url> {
    let (host, path) = raw.split_once(':')?;
    if host.contains('/') || host.is_empty() {
        return None;
    }
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Url::parse(&format!("ssh://{host}/{}", path.trim_start_matches('/'))).ok()
}

fn tidy(url: &str) -> String {
    let url = url.trim_end_matches('/');
    url.strip_suffix(".git")
        .unwrap_or(url)
        .trim_end_matches('/')
        .to_owned()
}

/// Removes `user:password@` from every URL in a text, because the output of `git` may contain secrets.
pub(super) fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || "/'\"`".contains(c))
            .unwrap_or(after.len());
        let authority = &after[..end];
        out.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_clone_one_repository_is_one_identity() {
        for raw in [
            "https://github.com/acme/konfig",
            "https://github.com/acme/konfig.git",
            "https://x-access-token:ghs_abc@github.com/acme/konfig.git/",
            "git@github.com:acme/konfig.git",
            "ssh://git@github.com/acme/konfig",
            "ssh://git@GitHub.com:22/acme/konfig.git",
        ] {
            assert_eq!(normalize_url(raw), "https://github.com/acme/konfig", "{raw}");
        }
        assert_eq!(normalize_url("/srv/git/konfig.git"), "file:///srv/git/konfig");
        assert_eq!(
            normalize_url("file:///srv/git/konfig.git"),
            "file:///srv/git/konfig"
        );
        assert_eq!(
            normalize_url("https://ghe.acme.io:8443/a/b"),
            "https://ghe.acme.io:8443/a/b"
        );
    }

    #[test]
    fn credentials_leave_no_trace() {
        let text = "fatal: unable to access 'https://me:s3cret@host/x.git/': 403\nand https://tok@h2/y";
        assert_eq!(
            without_credentials(text),
            "fatal: unable to access 'https://host/x.git/': 403\nand https://h2/y"
        );
    }
}
