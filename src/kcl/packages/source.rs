//! The requirements in `kcl.mod`, and the sources of packages.

use serde_json::Value;

use super::super::KclError;
use crate::{
    model::stack::RemotePackage,
    secrets::{AddressParts, credential_in, without_credentials},
};

/// The registry of packages that are named by a version only, as in the official tools.
const DEFAULT_REGISTRY: &str = "oci://ghcr.io/kcl-lang";

/// The source of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PackageSource {
    Git {
        url: String,
        at: GitRevision,
        /// The name or folder of the package inside the repository.
        package: Option<String>,
    },
    /// `registry/repository`, and the tag.
    Oci { repository: String, tag: String },
}

/// The revision of a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GitRevision {
    Tag(String),
    Branch(String),
    Commit(String),
}

/// Parses a requirement. `original` is the name as in `kcl.mod`.
pub(super) fn read(
    package: &RemotePackage,
    original: &str,
    registry: Option<&str>,
) -> Result<PackageSource, KclError> {
    let wrong = |why: &str| KclError::Package {
        name: package.name.clone(),
        why: why.to_owned(),
    };
    let entry: Value = serde_json::from_str(&package.requirement)
        .map_err(|_| wrong("its entry in kcl.mod cannot be read"))?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    if let Some(url) = text("git") {
        check_url(url).map_err(|why| wrong(&why))?;
        let at = match (text("commit"), text("tag"), text("branch")) {
            (Some(commit), _, _) => GitRevision::Commit(commit.to_owned()),
            (_, Some(tag), _) => GitRevision::Tag(tag.to_owned()),
            (_, _, Some(branch)) => GitRevision::Branch(branch.to_owned()),
            _ => {
                return Err(wrong(
                    "it names no tag, commit or branch, so the version is not pinned",
                ));
            }
        };
        let (GitRevision::Commit(name) | GitRevision::Tag(name) | GitRevision::Branch(name)) = &at;
        if name.is_empty()
            || name.starts_with('-')
            || name.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(wrong("its revision is not a valid git name"));
        }
        return Ok(PackageSource::Git {
            url: url.to_owned(),
            at,
            package: text("package").map(str::to_owned),
        });
    }
    let version = entry.as_str().or_else(|| text("tag")).or_else(|| text("version"));
    let Some(tag) = version.filter(|tag| !tag.is_empty()) else {
        return Err(wrong("it names no version, so the version is not pinned"));
    };
    let base = registry.unwrap_or(DEFAULT_REGISTRY);
    let url = text("oci").map_or_else(
        || format!("{}/{original}", base.trim_end_matches('/')),
        str::to_owned,
    );
    let repository = url.strip_prefix("oci://").unwrap_or(&url).trim_end_matches('/');
    check_credentials(&url, false).map_err(|why| {
        wrong(&format!(
            "{why}; set KONVERGE_OCI_REGISTRY, KONVERGE_OCI_USERNAME and KONVERGE_OCI_PASSWORD instead"
        ))
    })?;
    Ok(PackageSource::Oci {
        repository: repository.to_owned(),
        tag: tag.to_owned(),
    })
}

/// Accepts only transports that fetch: git's `ext::` runs commands, and a leading dash would be an option.
fn check_url(url: &str) -> Result<(), String> {
    // The user of git over SSH is not secret.
    let is_web = url.starts_with("http");
    check_credentials(url, !is_web)
        .map_err(|why| format!("{why}; let git's credential helper, or `http.extraheader`, give them"))?;
    let transports = ["https://", "http://", "ssh://", "git://", "file://", "git@"];
    if transports.iter().any(|transport| url.starts_with(transport))
        && !url.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Ok(());
    }
    Err(format!(
        "`{}` is not the URL of a git repository: https, http, ssh, git or file",
        url.escape_debug()
    ))
}

fn check_credentials(address: &str, user: bool) -> Result<(), String> {
    let allowed = AddressParts {
        user,
        ..AddressParts::default()
    };
    let Some(credential) = credential_in(address, allowed) else {
        return Ok(());
    };
    let shown = without_credentials(address);
    Err(format!(
        "its address {} holds credentials: {credential}",
        shown.escape_debug()
    ))
}

/// Returns true for a registry on this machine.
pub(super) fn is_local(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn place(requirement: &str) -> Result<PackageSource, KclError> {
        let package = RemotePackage {
            name: "my_lib".to_owned(),
            requirement: requirement.to_owned(),
            checksum: None,
        };
        read(&package, "my-lib", None)
    }

    #[test]
    fn versions_lie_in_the_default_registry() {
        let oci = |repository: &str, tag: &str| PackageSource::Oci {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        };
        assert_eq!(place("\"1.2\"").unwrap(), oci("ghcr.io/kcl-lang/my-lib", "1.2"));
        assert_eq!(
            place(r#"{"oci":"oci://localhost:5001/x/y","tag":"1"}"#).unwrap(),
            oci("localhost:5001/x/y", "1")
        );
    }

    #[test]
    fn a_moving_or_hostile_address_is_refused() {
        for bad in [
            r#"{"git":"https://h/x"}"#,
            r#"{"git":"ext::sh -c id","tag":"v1"}"#,
            r#"{"git":"--upload-pack=id","tag":"v1"}"#,
            r#"{"git":"https://h/x","tag":"--upload-pack=id"}"#,
            r#"{"git":"https://h/x y","tag":"v1"}"#,
            r#"{"oci":"oci://h/x"}"#,
            "1",
        ] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_with_credentials_is_refused_and_not_shown() {
        for bad in [
            r#"{"git":"https://me:s3cret-pass@h/x","tag":"v1"}"#,
            r#"{"git":"https://s3cret-pass@h/x","tag":"v1"}"#,
            r#"{"git":"ssh://git:s3cret-pass@h/x","tag":"v1"}"#,
            r#"{"git":"https://h/x?token=s3cret-pass","tag":"v1"}"#,
            r#"{"git":"https://h/x#s3cret-pass","tag":"v1"}"#,
            r#"{"oci":"oci://me:s3cret-pass@h/x","tag":"1"}"#,
            r#"{"oci":"oci://h/x?token=s3cret-pass","tag":"1"}"#,
        ] {
            let error = place(bad).unwrap_err().to_string();
            assert!(
                error.contains("://h/x holds credentials") && !error.contains("s3cret"),
                "{error}"
            );
        }
        assert!(place(r#"{"git":"ssh://git@h/x","tag":"v1"}"#).is_ok());
    }

    #[test]
    fn git_has_three_kinds_of_revision() {
        let at = |requirement: &str| match place(requirement).unwrap() {
            PackageSource::Git { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            at(r#"{"git":"https://h/x","tag":"v1"}"#),
            GitRevision::Tag("v1".to_owned())
        );
        assert_eq!(
            at(r#"{"git":"git@h:x","branch":"b"}"#),
            GitRevision::Branch("b".to_owned())
        );
        assert_eq!(
            at(r#"{"git":"ssh://h/x","commit":"abc"}"#),
            GitRevision::Commit("abc".to_owned())
        );
    }
}
