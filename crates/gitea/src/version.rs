//! The version of the server, and the versions that some requests need.

use std::fmt;

/// The maximum number of characters of a version in a message.
const LONGEST: usize = 60;

/// A version of Gitea, or for Forgejo the version of Gitea that its API is compatible with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The version of a build from source, which reports `development`. It counts as newer than all others.
    const NEWEST: Self = Self {
        major: u32::MAX,
        minor: 0,
    };

    /// The first version that has a run's id in its URL, and that returns the started run after a dispatch.
    pub(super) const RUNS: Self = Self { major: 1, minor: 26 };

    fn parse(text: &str) -> Option<Self> {
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

/// The server as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// The version of Gitea that its API is compatible with.
    pub(super) api: Version,
    /// The name and version of the server, for messages.
    pub(super) name: String,
    /// True for a Forgejo.
    pub(super) is_forgejo: bool,
}

impl Server {
    /// Parses `1.26.0`, `1.26.0+dev-12-gabcdef`, or Forgejo's `11.0.1+gitea-1.22.0`.
    pub(super) fn parse(text: &str) -> Self {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || ".-+".contains(*c);
        let text: String = text.chars().take_while(is_plain).take(LONGEST).collect();
        match text.split_once("+gitea-") {
            Some((forgejo, gitea)) => Self {
                api: Version::parse(gitea).unwrap_or(Version::NEWEST),
                name: format!("Forgejo {forgejo}, with the API of Gitea {gitea},"),
                is_forgejo: true,
            },
            None => Self {
                api: Version::parse(&text).unwrap_or(Version::NEWEST),
                name: format!("Gitea {text}"),
                is_forgejo: false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        let api = |text| Server::parse(text).api;
        assert_eq!(api("1.26.0").to_string(), "1.26");
        assert_eq!(api("1.27.0+dev-12-gabcdef").to_string(), "1.27");
        assert_eq!(api("development"), Version::NEWEST);
        assert!(api("1.25.5") < Version::RUNS);
        // Only the version of the API counts.
        assert_eq!(api("11.0.1+gitea-1.22.0").to_string(), "1.22");
    }

    #[test]
    fn a_server_is_called_by_its_own_name() {
        let name = |text| Server::parse(text).name;
        assert_eq!(name("1.25.5"), "Gitea 1.25.5");
        assert_eq!(
            name("11.0.1+gitea-1.22.0"),
            "Forgejo 11.0.1, with the API of Gitea 1.22.0,"
        );
        assert_eq!(name("1.25.5\n::error::"), "Gitea 1.25.5");
    }
}
