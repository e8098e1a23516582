//! The REST API of a forge: pages, retries, deadlines, safe repetition of a POST, and the server's time. A forge's
//! client implements `RestApi`: it sends a single request, and recognizes errors in the response.

mod address;
mod api;
mod branch_files;
mod client;
mod comments;
mod commits;
mod http_api;
mod links;
mod pull_requests;

pub use address::{ApiAddress, check_token};
pub use api::{Answer, Exchange, MOST_BYTES, RestApi, TokenPermission, UNSAID};
pub use branch_files::{BranchFile, BranchFiles};
pub use client::RestClient;
pub use comments::{ListedComment, User};
pub use commits::{CommitNames, ListedCommit, co_authors};
pub use http_api::{ErrorOf, HttpApi, http_client};
pub use pull_requests::{ListedIssue, ListedPullRequest, PullRequestSide};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to escape: all except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes one segment of a path, or a value in a query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
