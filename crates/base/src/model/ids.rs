//! Identifiers: stacks, resources, clusters, commits. Each is validated once, when it is created.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    Digest, RepoPath,
    text::{is_hidden, visible},
};

/// The error for an identifier that breaks the rules of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {why}")]
pub struct InvalidId {
    /// The kind of identifier that was expected.
    pub what: &'static str,
    /// The given text, with hidden characters escaped.
    pub text: String,
    /// The rule that the text breaks.
    pub why: &'static str,
}

fn invalid(what: &'static str, text: &str, why: &'static str) -> InvalidId {
    InvalidId {
        what,
        text: visible(text),
        why,
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:path, $error:ty) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[derive(derive_more::Debug, derive_more::Display, derive_more::Into)]
        #[serde(try_from = "String", into = "String")]
        #[debug("{_0:?}")]
        pub struct $name(String);

        impl $name {
            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                $check(&text)?;
                Ok(Self(text))
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                text.to_owned().try_into()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

pub(super) use text_id;

text_id!(
    /// The identity of a stack, `[tenant/]<project>/<stack>`, unique in the repository. It does not depend on
    /// the folder.
    StackId,
    check_stack,
    InvalidId
);
text_id!(
    /// A resource's id in its Spec, in Kusion's form: `apiVersion:Kind[:namespace]:name` for Kubernetes,
    /// `providerNamespace:providerName:type:name` for Terraform.
    ResourceId,
    check_resource,
    InvalidId
);
text_id!(
    /// The name of a cluster, as defined under `clusters` in `konverge.yaml`.
    ClusterName,
    check_cluster,
    InvalidId
);
text_id!(
    /// The full id of a commit: 40 lower-case hexadecimal digits.
    CommitId,
    check_commit,
    InvalidId
);

impl StackId {
    /// Creates an identity from its parts.
    ///
    /// # Errors
    /// A part is empty, is `.` or `..`, or contains a slash, white space or a control character.
    pub fn new(tenant: Option<&str>, project: &str, stack: &str) -> Result<Self, InvalidId> {
        let parts = tenant.into_iter().chain([project, stack]);
        for part in parts.clone() {
            if part.contains('/') {
                return Err(invalid("stack identity", part, "a part must not hold a slash"));
            }
        }
        parts.collect::<Vec<_>>().join("/").try_into()
    }

    /// Creates the identity of a stack whose names are not unique: the path of its folder.
    pub fn of_folder(folder: &RepoPath) -> Self {
        let allowed = |c: char| !(is_hidden(c) || c.is_whitespace() || c == '\\');
        let text: String = folder
            .as_str()
            .chars()
            .map(|c| if allowed(c) { c } else { '-' })
            .collect();
        // A folder directly below the root has one component, but an identity has at least two.
        let text = if text.contains('/') {
            text
        } else {
            format!("_/{}", if text.is_empty() { "_" } else { &text })
        };
        if text.strip_prefix("_/").unwrap_or(&text) == folder.as_str() && text.len() <= MAX_FOLDER {
            Self(text)
        } else {
            let end = (0..=MAX_FOLDER).rev().find(|end| text.is_char_boundary(*end));
            let text = text.get(..end.unwrap_or_default()).unwrap_or_default();
            let digest = Digest::of_bytes(folder.as_str().as_bytes()).to_string();
            Self(format!("{}-{}", text.trim_end_matches('/'), &digest[..8]))
        }
    }

    /// Returns the tenant, if the project has one.
    pub fn tenant(&self) -> Option<&str> {
        let mut parts = self.0.rsplitn(3, '/');
        parts.nth(2)
    }

    /// Returns the project: the part before the last slash.
    pub fn project(&self) -> &str {
        self.0.rsplit('/').nth(1).expect("checked: two or three parts")
    }

    /// Returns true if another identity has the same project.
    pub fn is_sibling_of(&self, other: &str) -> bool {
        let project = |id: &str| id.rsplit_once('/').map(|(project, _)| project.to_owned());
        project(&self.0) == project(other)
    }

    /// Returns the name of the stack within its project.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().expect("checked: two or three parts")
    }
}

impl CommitId {
    /// Returns the first seven digits, for display.
    pub fn short(&self) -> &str {
        &self.0[..7]
    }
}

/// The maximum number of bytes of a folder path in an identity.
const MAX_FOLDER: usize = 160;

/// Validates the text of an identity. An identity from names has two or three parts, one from the path of a folder any
/// number.
fn check_stack(text: &str) -> Result<(), InvalidId> {
    const WHAT: &str = "stack identity";
    let parts: Vec<_> = text.split('/').collect();
    if parts.len() < 2 {
        return Err(invalid(
            WHAT,
            text,
            "it must have the form [tenant/]<project>/<stack>",
        ));
    }
    if parts.len() > 3 && text.len() > MAX_FOLDER + 16 {
        return Err(invalid(WHAT, text, "it is longer than a folder path can be"));
    }
    for part in parts {
        if part.is_empty() || part == "." || part == ".." {
            return Err(invalid(WHAT, text, "no part may be empty, `.` or `..`"));
        }
        if part
            .chars()
            .any(|c| is_hidden(c) || c.is_whitespace() || c == '\\')
        {
            return Err(invalid(
                WHAT,
                text,
                "no part may hold white space, control or invisible characters, or a backslash",
            ));
        }
        if part.len() > 200 {
            return Err(invalid(WHAT, text, "no part may be longer than 200 bytes"));
        }
    }
    Ok(())
}

fn check_resource(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() || text.len() > 1024 {
        return Err(invalid("resource id", text, "it must have 1 to 1024 bytes"));
    }
    if text.chars().any(is_hidden) {
        return Err(invalid(
            "resource id",
            text,
            "it must not hold control or invisible characters",
        ));
    }
    Ok(())
}

fn check_cluster(text: &str) -> Result<(), InvalidId> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 63 || !text.chars().all(allowed) || text.starts_with('.') {
        return Err(invalid(
            "cluster name",
            text,
            "1 to 63 letters, digits, `-`, `_`, `.`, not starting with `.`",
        ));
    }
    Ok(())
}

fn check_commit(text: &str) -> Result<(), InvalidId> {
    if text.len() != 40
        || !text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return Err(invalid(
            "commit id",
            text,
            "it must have 40 lower-case hexadecimal digits",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_identity_has_its_parts() {
        let plain: StackId = "shop/prod".parse().unwrap();
        assert_eq!(
            (plain.tenant(), plain.project(), plain.name()),
            (None, "shop", "prod")
        );
        let tenant = StackId::new(Some("acme"), "shop", "prod").unwrap();
        assert_eq!(
            (tenant.tenant(), tenant.project(), tenant.name()),
            (Some("acme"), "shop", "prod")
        );
    }

    #[test]
    fn hostile_identities_are_refused() {
        for bad in [
            "",
            "a",
            "a/../b",
            "/a/b",
            "a/b/c/d/",
            "a/b\n",
            "a/ b",
            "a/b\\c",
            "a//b",
            "shop/pr\u{200b}od",
            "shop/\u{202e}dorp",
            "shop/prod\u{3164}",
            "shop/prod\u{fe0f}",
            "shop/prod\u{e0041}",
        ] {
            let refused = bad.parse::<StackId>().unwrap_err().to_string();
            assert!(!refused.contains(is_hidden), "{refused:?}");
        }
        assert!("v1:ConfigMap:a\u{200b}".parse::<ResourceId>().is_err());
        assert!(StackId::new(None, "a/b", "c").is_err());
        assert!("a/".repeat(200).parse::<StackId>().is_err());
    }

    #[test]
    fn each_folder_gives_an_identity_of_its_own() {
        let of = |folder: &str| StackId::of_folder(&RepoPath::normalize(folder).unwrap());
        let deep = of("examples/server/app_service/prod");
        assert_eq!(deep.as_str(), "examples/server/app_service/prod");
        assert_eq!((deep.project(), deep.name()), ("app_service", "prod"));
        assert_eq!(of("prod").as_str(), "_/prod");
        let long = "x/".repeat(400);
        let folders = [
            "a b/c",
            "a-b/c",
            "a\tb/c",
            "a\\b/c",
            "",
            "_",
            "prod",
            &long,
            &format!("{long}y"),
        ];
        let all: std::collections::BTreeSet<_> = folders.iter().map(|folder| of(folder)).collect();
        assert_eq!(all.len(), folders.len(), "{all:?}");
        for id in all {
            assert_eq!(id.as_str().parse::<StackId>(), Ok(id));
        }
    }
}
