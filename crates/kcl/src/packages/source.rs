//! Parses the requirements in `kcl.mod` into the sources of packages.

use std::fmt;

use serde_json::Value;

use super::super::KclError;
use konverge_base::model::{digest::DigestBuilder, package_lock::is_whole_commit, stack::RemotePackage};
use konverge_secrets::{AddressParts, credential_in, without_credentials};

/// The registry for packages that `kcl.mod` names by a version only, as in the official tools.
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
    /// A package in an OCI registry: `registry/repository`, and the tag.
    Oci { repository: String, tag: String },
}

/// The revision of a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GitRevision {
    Tag(String),
    Branch(String),
    Commit(String),
}

impl PackageSource {
    /// Returns the commit, if the requirement itself names one that is not abbreviated.
    pub(super) fn whole_commit(&self) -> Option<&str> {
        match self {
            Self::Git {
                at: GitRevision::Commit(id),
                ..
            } => Some(id.as_str()).filter(|id| is_whole_commit(id)),
            _ => None,
        }
    }

    /// Adds the identity of the source to a digest.
    pub(super) fn add_to(&self, digest: &mut DigestBuilder) {
        let parts = match self {
            Self::Git { url, at, package } => {
                let (kind, name) = match at {
                    GitRevision::Tag(name) => ("tag", name),
                    GitRevision::Branch(name) => ("branch", name),
                    GitRevision::Commit(name) => ("commit", name),
                };
                ["git", url, kind, name, package.as_deref().unwrap_or_default()]
            }
            Self::Oci { repository, tag } => ["oci", repository, "tag", tag, ""],
        };
        for part in parts {
            digest.part(part.as_bytes());
        }
    }

    /// Returns the version in `kcl.mod` and the one in the lock, if they differ. A lock entry without pins
    /// never differs.
    pub(super) fn lock_difference(&self, package: &RemotePackage) -> Option<(String, String)> {
        let locked = &package.locked;
        if !locked.is_pinned() {
            return None;
        }
        let differs = |asked: &str, known: Option<&String>| {
            let known = known.filter(|known| *known != asked)?;
            Some((asked.to_owned(), known.clone()))
        };
        // If the requirement is only a version, each machine chooses its registry, so another registry is no
        // difference.
        let is_version_alone = !package.requirement.starts_with('{');
        match self {
            Self::Git { url, at, .. } => {
                let other = locked
                    .address
                    .as_ref()
                    .filter(|known| repository_of(known) != repository_of(url));
                if let Some(known) = other {
                    return Some((url.clone(), known.clone()));
                }
                match (at, &locked.commit) {
                    (GitRevision::Tag(name) | GitRevision::Branch(name), _) => {
                        differs(name, locked.reference.as_ref())
                    }
                    (GitRevision::Commit(id), Some(known)) => {
                        let same = known.starts_with(id.as_str()) || id.starts_with(known.as_str());
                        (!same).then(|| (id.clone(), known.clone()))
                    }
                    (GitRevision::Commit(id), None) => differs(id, locked.reference.as_ref()),
                }
            }
            Self::Oci { tag, .. } if is_version_alone => {
                differs(tag, locked.reference.as_ref().or(locked.version.as_ref()))
            }
            Self::Oci { repository, tag } => differs(repository, locked.address.as_ref())
                .or_else(|| differs(tag, locked.reference.as_ref())),
        }
    }
}

impl fmt::Display for PackageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Git { url, at, .. } => match at {
                GitRevision::Tag(name) => write!(f, "the tag `{name}` of {url}"),
                GitRevision::Branch(name) => write!(f, "the branch `{name}` of {url}"),
                GitRevision::Commit(name) => write!(f, "the commit `{name}` of {url}"),
            },
            Self::Oci { repository, tag } => write!(f, "{repository}:{tag}"),
        }
    }
}

/// Returns a git address in a normal form, so that two addresses can be compared.
fn repository_of(url: &str) -> String {
    let url = url.trim_end_matches('/').trim_end_matches(".git");
    match url.strip_prefix("git://") {
        Some(rest) => format!("https://{rest}"),
        None => url.to_owned(),
    }
}

/// Parses the requirement of a package.
pub(super) fn read(package: &RemotePackage, registry: Option<&str>) -> Result<PackageSource, KclError> {
    let wrong = |why: &str| KclError::Package {
        name: package.name.clone(),
        why: why.into(),
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
                return Err(wrong(&format!(
                    "it names no tag, commit or branch, so the version is not pinned; write `{} = {{ git = \"{}\", tag = \"TAG\" }}` into kcl.mod",
                    package.declared.escape_debug(),
                    url.escape_debug()
                )));
            }
        };
        let (GitRevision::Commit(name) | GitRevision::Tag(name) | GitRevision::Branch(name)) = &at;
        // Git would read a revision that begins with a dash as an option.
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
        let line = match text("oci") {
            Some(url) => format!("{{ oci = \"{}\", tag = \"TAG\" }}", url.escape_debug()),
            None => "\"VERSION\"".to_owned(),
        };
        return Err(wrong(&format!(
            "it names no version, so the version is not pinned; write `{} = {line}` into kcl.mod",
            package.declared.escape_debug()
        )));
    };
    // A version alone names a package of the default registry, which the user may replace.
    let base = registry.unwrap_or(DEFAULT_REGISTRY);
    let url = text("oci").map_or_else(
        || format!("{}/{}", base.trim_end_matches('/'), package.declared),
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

/// Checks that a URL has a safe transport: git's `ext::` runs commands, and a leading dash would be an option.
fn check_url(url: &str) -> Result<(), String> {
    // A user name in an SSH address is not a secret. `git://` counts as web, because it becomes `https://`.
    let is_web = url.starts_with("http") || url.starts_with("git://");
    check_credentials(url, !is_web)
        .map_err(|why| format!("{why}; move them to git's credential helper, or to `http.extraheader`"))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::package_lock::PackageLock;

    fn place(requirement: &str) -> Result<PackageSource, KclError> {
        read(&wanted(requirement, ""), None)
    }

    /// A package, and the lines of its lock entry.
    fn wanted(requirement: &str, entry: &str) -> RemotePackage {
        let lock = PackageLock::parse(format!("[dependencies.my-lib]\n{entry}").as_bytes());
        RemotePackage {
            name: "my_lib".to_owned(),
            declared: "my-lib".to_owned(),
            requirement: requirement.to_owned(),
            locked: lock.unwrap().find("my_lib").unwrap_or_default(),
        }
    }

    #[test]
    fn a_requirement_that_the_lock_does_not_follow_is_found() {
        const COMMIT: &str = "b2297e75c9887963ceb0540f40a1bc8f88c2bd6f";
        let difference = |requirement: &str, entry: &str| {
            let package = wanted(requirement, entry);
            read(&package, None).unwrap().lock_difference(&package)
        };
        let whole = format!("git_commit = \"{COMMIT}\"\n");
        for (requirement, entry, asked, locked) in [
            (
                r#"{"oci":"oci://h/x","tag":"0.3.0"}"#,
                "sum = \"x\"\noci_tag = \"0.2.0\"",
                "0.3.0",
                "0.2.0",
            ),
            (
                r#"{"oci":"oci://h/x","tag":"1"}"#,
                "sum = \"x\"\nreg = \"h\"\nrepo = \"y\"\noci_tag = \"1\"",
                "h/x",
                "h/y",
            ),
            ("\"1.32\"", "sum = \"x\"\nversion = \"1.31\"", "1.32", "1.31"),
            (
                r#"{"git":"https://h/x","tag":"v2"}"#,
                "sum = \"x\"\ngit_tag = \"v1\"",
                "v2",
                "v1",
            ),
            (
                r#"{"git":"https://h/x","tag":"v2"}"#,
                &format!("{whole}git_tag = \"v1\""),
                "v2",
                "v1",
            ),
            (
                r#"{"git":"https://h/x","commit":"abc1234"}"#,
                &whole,
                "abc1234",
                COMMIT,
            ),
            (
                r#"{"git":"https://h/x","tag":"v1"}"#,
                "sum = \"x\"\nurl = \"https://h/y\"\ngit_tag = \"v1\"",
                "https://h/x",
                "https://h/y",
            ),
        ] {
            let expected = Some((asked.to_owned(), locked.to_owned()));
            assert_eq!(difference(requirement, entry), expected, "{requirement} {entry}");
        }
        for (requirement, entry) in [
            // Nothing is pinned: there is nothing to compare.
            (r#"{"git":"https://h/x","tag":"v2"}"#, "git_tag = \"v1\""),
            (
                r#"{"git":"https://h/x","tag":"v1"}"#,
                &*format!("commit = \"{COMMIT}\""),
            ),
            (
                r#"{"git":"git://h/x.git","tag":"v1"}"#,
                "sum = \"x\"\nurl = \"https://h/x\"\ngit_tag = \"v1\"",
            ),
            (r#"{"git":"https://h/x","commit":"b2297e7"}"#, &whole),
            // The version of the package is not its tag.
            (
                r#"{"oci":"oci://h/x","tag":"latest"}"#,
                "sum = \"x\"\nversion = \"0.2.0\"",
            ),
            // Another registry for versions alone.
            (
                "\"1.31\"",
                "sum = \"x\"\nreg = \"mirror\"\nrepo = \"x\"\noci_tag = \"1.31\"",
            ),
        ] {
            assert_eq!(difference(requirement, entry), None, "{requirement} {entry}");
        }
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
            r#"{"git":"git://s3cret-pass@h/x","tag":"v1"}"#,
            r#"{"git":"ssh://git:s3cret-pass@h/x","tag":"v1"}"#,
            r#"{"git":"https://h/x?token=s3cret-pass","tag":"v1"}"#,
            r#"{"git":"https://h/x#s3cret-pass","tag":"v1"}"#,
            r#"{"oci":"oci://me:s3cret-pass@h/x","tag":"1"}"#,
            r#"{"oci":"oci://h/x?token=s3cret-pass","tag":"1"}"#,
        ] {
            let error = konverge_base::error::chain(&place(bad).unwrap_err());
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
