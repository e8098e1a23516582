//! [`Trust`]: the trust of a job in the code that it processes, and the permissions that follow from it.

/// The trust of a job in the code that it processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Code of the default branch: it is merged, or checked for drift.
    Merged,
    /// A pull request from this repository into the default branch.
    Proposed,
    /// Code of this repository whose merge applies nothing.
    Own,
    /// Code from outside in a job of this repository with write access.
    Recorded,
    /// Code from outside the repository, in a job without write access.
    Untrusted,
}

/// The permissions of a job: what it may open, store and write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // a row of the table
pub(crate) struct Grants {
    /// Compare with the live infrastructure. Otherwise Specs are compared.
    pub clusters: bool,
    /// Open the store of the default branch's configuration, and record what a preview shows.
    pub store: bool,
    /// Fetch packages with the credentials of the job. Otherwise only packages of the base are fetched, without
    /// credentials.
    pub packages: bool,
    /// Store compiled values for later runs.
    pub caches: bool,
    /// Publish on GitHub: comment, status, issues.
    pub publishes: bool,
    /// Show the findings of the policies, for which people are looked up at GitHub.
    pub people: bool,
}

impl Trust {
    /// Returns the permissions for this level of trust.
    pub(crate) fn grants(self) -> Grants {
        match self {
            Self::Merged | Self::Proposed => Grants {
                clusters: true,
                store: true,
                packages: true,
                caches: true,
                publishes: true,
                people: true,
            },
            Self::Own => Grants {
                packages: true,
                publishes: true,
                people: true,
                ..Grants::default()
            },
            Self::Recorded => Grants {
                store: true,
                publishes: true,
                ..Grants::default()
            },
            Self::Untrusted => Grants::default(),
        }
    }

    /// Lowers the trust to the level without the default branch's configuration, if that configuration is unusable or
    /// unknown.
    #[must_use]
    pub(crate) const fn without_trusted_config(self) -> Self {
        match self {
            Self::Merged | Self::Proposed | Self::Own => Self::Own,
            Self::Recorded | Self::Untrusted => Self::Untrusted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a level grants, in the order of the fields.
    fn granted(trust: Trust) -> [bool; 6] {
        let Grants {
            clusters,
            store,
            packages,
            caches,
            publishes,
            people,
        } = trust.grants();
        [clusters, store, packages, caches, publishes, people]
    }

    #[test]
    fn each_level_grants_its_row_and_nothing_else() {
        let (yes, no) = (true, false);
        for (trust, row) in [
            (Trust::Merged, [yes, yes, yes, yes, yes, yes]),
            (Trust::Proposed, [yes, yes, yes, yes, yes, yes]),
            (Trust::Own, [no, no, yes, no, yes, yes]),
            (Trust::Recorded, [no, yes, no, no, yes, no]),
            (Trust::Untrusted, [no, no, no, no, no, no]),
        ] {
            assert_eq!(granted(trust), row, "{trust:?}");
        }
    }

    #[test]
    fn without_the_default_branch_nothing_is_added_and_clusters_and_store_go() {
        for trust in [
            Trust::Merged,
            Trust::Proposed,
            Trust::Own,
            Trust::Recorded,
            Trust::Untrusted,
        ] {
            let (before, after) = (granted(trust), granted(trust.without_trusted_config()));
            assert!(!after[0] && !after[1], "{trust:?}");
            let added = before.iter().zip(after).any(|(before, after)| after && !before);
            assert!(!added, "{trust:?}");
        }
        // It still says what it may say.
        assert_eq!(Trust::Proposed.without_trusted_config(), Trust::Own);
        assert_eq!(Trust::Recorded.without_trusted_config(), Trust::Untrusted);
    }
}
