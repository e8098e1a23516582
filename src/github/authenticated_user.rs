//! Who we are on GitHub. Anybody can write our marker into a text, so our own texts are recognised by their
//! author.

use std::sync::Arc;

use tokio::sync::OnceCell;

/// The login that the token writes as, once it is known.
#[derive(Clone, Default)]
pub(super) struct AuthenticatedUser(pub(super) Arc<OnceCell<String>>);
