//! The GitHub user of our token. Anybody can copy our marker into a text, so we recognize our texts by their
//! author.

use std::sync::Arc;

use tokio::sync::OnceCell;

/// The login that the token writes as, once it is known.
#[derive(Clone, Default)]
pub(super) struct AuthenticatedUser(pub(super) Arc<OnceCell<String>>);
