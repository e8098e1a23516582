//! [`Access`]: who asks, and what of it they may see and do. Without a login everybody on this machine sees everything,
//! and nobody may ask for an operation.

use konverge_base::model::RepoPath;
use konverge_config::{PortalGrants, PortalRole};
use konverge_portal::PortalPerson;

/// Who asks.
#[derive(Clone)]
pub(super) struct Access {
    pub signed_in: Option<SignedIn>,
}

/// A person or a script with a role.
#[derive(Clone)]
pub(super) struct SignedIn {
    pub person: PortalPerson,
    pub grants: PortalGrants,
    /// The token of the forms of a person's session. A script has none, and sends none.
    pub csrf: Option<String>,
}

impl Access {
    /// Somebody on this machine, where there is no login.
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

    /// The globs of what may be seen; `None`: everything.
    pub(super) fn patterns(&self) -> Option<Vec<String>> {
        let signed_in = self.signed_in.as_ref().filter(|_| !self.sees_all())?;
        Some(signed_in.grants.patterns())
    }
}

/// The word of a role.
pub(super) fn role_word(role: PortalRole) -> &'static str {
    match role {
        PortalRole::Viewer => "viewer",
        PortalRole::Operator => "operator",
    }
}
