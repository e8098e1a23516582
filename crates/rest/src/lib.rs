//! The REST API of a forge: pages, retries by what a call does, deadlines, a look before a repeated POST, the server's
//! time. A forge's client says how one request is sent and what its answer means (`RestApi`).

mod address;
mod api;
mod client;
mod commits;
mod http_api;
mod links;

pub use address::{ApiAddress, check_token};
pub use api::{Answer, Exchange, MOST_BYTES, RestApi, TokenPermission};
pub use client::RestClient;
pub use commits::{CommitNames, ListedCommit, co_authors};
pub use http_api::{HttpApi, http_client};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to encode: all but those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes one component of a path or a value of a query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
