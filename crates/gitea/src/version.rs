//! The version of the server, and the versions that calls need.

use std::fmt;

/// A version of Gitea, or of the Gitea whose API a Forgejo has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The version of a build from sources, which says `development`: newer than all others.
    pub(super) const NEWEST: Self = Self {
        major: u32::MAX,
        minor: 0,
    };

    /// The first version with the run id of a job in the URLs of runs, and with the started run in the answer to a dispatch.
    pub(super) const RUNS: Self = Self { major: 1, minor: 26 };

    /// Parses `1.26.0`, `1.26.0+dev-12-gabcdef`, or Forgejo's `11.0.1+gitea-1.22.0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split_once("+gitea-").map_or(text, |(_, gitea)| gitea);
        let mut parts = text.split(['.', '-', '+']);
        let mut next = || parts.next()?.parse().ok();
        Some(Self {
            major: next()?,
            minor: next()?,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        let parse = |text| Version::parse(text).map(|version| version.to_string());
        assert_eq!(parse("1.26.0").as_deref(), Some("1.26"));
        assert_eq!(parse("1.27.0+dev-12-gabcdef").as_deref(), Some("1.27"));
        // What counts is the API that it has.
        assert_eq!(parse("11.0.1+gitea-1.22.0").as_deref(), Some("1.22"));
        assert_eq!(parse("development"), None);
        assert!(Version::parse("1.25.5").unwrap() < Version::RUNS);
    }
}
