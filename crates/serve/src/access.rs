//! [`Access`]: the sender of a request, and the sender's permissions. Without a login everybody on this machine may
//! see everything, and nobody may request an operation.

use konverge_base::model::RepoPath;
use konverge_config::{PortalGrants, PortalRole};
use konverge_portal::PortalPerson;

/// The sender of a request.
#[derive(Clone)]
pub(super) struct Access {
    pub signed_in: Option<SignedIn>,
}

/// A person or a script with a role, after authentication.
#[derive(Clone)]
pub(super) struct SignedIn {
    pub person: PortalPerson,
    pub grants: PortalGrants,
    /// The CSRF token of a person's session. `None` for a script.
    pub csrf: Option<String>,
}

impl Access {
    /// Returns the access of somebody on this machine, for a portal without a login.
    pub(super) fn local() -> Self {
        Self { signed_in: None }
    }

    pub(super) fn may_see(&self, folder: &RepoPath) -> bool {
        let of = |signed_in: &SignedIn| signed_in.grants.may_see(folder);
        self.signed_in.as_ref().is_none_or(of)
    }

    pub(super) fn sees_all(&self) -> bool {
        self.signed_in.as_ref().is_none_or(|of| of.grants.sees_all())
    }

    pub(super) fn may_operate(&self, folder: &RepoPath) -> bool {
        let of = |signed_in: &SignedIn| signed_in.grants.may_operate(folder);
        self.signed_in.as_ref().is_some_and(of)
    }

    pub(super) fn may_freeze(&self) -> bool {
        self.signed_in.as_ref().is_some_and(|of| of.grants.may_freeze())
    }

    /// Returns the CSRF token of a person's session.
    pub(super) fn csrf(&self) -> Option<&str> {
        self.signed_in.as_ref()?.csrf.as_deref()
    }

    /// Returns the globs of the stacks that the sender may see; `None` means all stacks.
    pub(super) fn patterns(&self) -> Option<Vec<String>> {
        let signed_in = self.signed_in.as_ref().filter(|_| !self.sees_all())?;
        Some(signed_in.grants.patterns())
    }
}

/// Returns the name of a role in the configuration.
pub(super) fn role_word(role: PortalRole) -> &'static str {
    match role {
        PortalRole::Viewer => "viewer",
        PortalRole::Operator => "operator",
    }
}
