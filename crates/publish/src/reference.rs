//! The reference of an artifact: `oci://HOST/NAME:TAG`.

use std::str::FromStr;

use crate::PublishError;

/// A reference: the registry, the repository in it, and the tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactReference {
    /// The registry, for example `ghcr.io` or `localhost:5000`.
    pub host: String,
    /// The repository, for example `acme/shop`.
    pub name: String,
    /// The tag, for example `1.2.3`.
    pub tag: String,
}

/// The scheme at the start of every reference.
const SCHEME: &str = "oci://";

impl FromStr for ArtifactReference {
    type Err = PublishError;

    fn from_str(text: &str) -> Result<Self, PublishError> {
        let refuse = |why| PublishError::Reference {
            text: text.to_owned(),
            why,
        };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or(refuse("it must begin with `oci://`"))?;
        if rest.contains('@') {
            return Err(refuse("it must hold neither credentials nor a digest"));
        }
        let (host, path) = rest
            .split_once('/')
            .ok_or(refuse("it has no name behind the host"))?;
        let (name, tag) = path.rsplit_once(':').ok_or(refuse("it has no tag"))?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_part = |part: &str| {
            let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            part.chars().all(is_name) && is_end(part.chars().next()) && is_end(part.chars().last())
        };
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(refuse("its host is not a name with an optional port"));
        }
        if !name.split('/').all(is_part) {
            return Err(refuse(
                "its name may only have lower-case letters, digits and `. _ - /`",
            ));
        }
        if tag.is_empty() || tag.len() > 128 || tag.starts_with(['.', '-']) || !tag.chars().all(is_tag) {
            return Err(refuse(
                "its tag may only have letters, digits and `. _ -`, at most 128 characters",
            ));
        }
        Ok(Self {
            host: host.to_owned(),
            name: name.to_owned(),
            tag: tag.to_owned(),
        })
    }
}

impl std::fmt::Display for ArtifactReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}/{}:{}", self.host, self.name, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_host_a_name_and_a_tag() {
        let read: ArtifactReference = "oci://localhost:5000/acme/shop:1.2.3".parse().unwrap();
        assert_eq!(
            (read.host.as_str(), read.name.as_str(), read.tag.as_str()),
            ("localhost:5000", "acme/shop", "1.2.3")
        );
        assert_eq!(read.to_string(), "oci://localhost:5000/acme/shop:1.2.3");
        for wrong in [
            "ghcr.io/a:1",
            "oci://ghcr.io",
            "oci://ghcr.io/a",
            "oci:///a:1",
            "oci://h/A:1",
            "oci://h/../a:1",
            "oci://h/a//b:1",
            "oci://h/a:",
            "oci://h/a:.x",
            "oci://u:p@h/a:1",
            "oci://h/a:1@sha256:0",
            "oci://h/a b:1",
        ] {
            assert!(wrong.parse::<ArtifactReference>().is_err(), "{wrong}");
        }
    }
}
