//! Stores bytes by key in a folder, an object store, a database or an HTTP server. A store has four
//! operations, and one for the files of other programs. The modules above give the bytes their meaning.

mod aws_profile;
mod below;
mod cloud;
mod cloud_credentials;
mod conformance;
mod factory;
mod filesystem;
mod http;
mod http_client;
mod interruptible;
pub mod kusion;
mod kusion_query;
mod location;
mod memory;
mod options;
mod oss;
#[cfg_attr(not(feature = "sql"), path = "without_sql.rs")]
mod sql;
mod traced_requests;

use async_trait::async_trait;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub use below::StorePart;
pub use conformance::probe;
pub use factory::{open, open_foreign};
pub use memory::MemoryStore;
pub use options::{StoreOptionError, StoreOptions};

use konverge_base::{
    error::{ErrorKind, SharedError, UserError, chain},
    interrupt::Stopped,
};

/// A key: components of `[A-Za-z0-9._=@+-]` and percent escapes, separated by `/`; never empty, `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Builds a key from components. Characters outside the safe set are percent-encoded.
    pub fn from_components(components: &[&str]) -> Self {
        let mut text = String::new();
        for component in components {
            if !text.is_empty() {
                text.push('/');
            }
            encode_component(component, &mut text);
        }
        Self(text)
    }

    /// Returns the key `component` below this one.
    #[must_use]
    pub fn child(&self, component: &str) -> Self {
        let mut text = self.0.clone();
        text.push('/');
        encode_component(component, &mut text);
        Self(text)
    }

    /// Creates a key from a listing of a store, without escaping it again.
    pub fn from_listing(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Converts a listing to sorted keys: names below the prefix of the store, without that prefix.
    pub(super) fn listed_below(prefix: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Self> {
        let own = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let names = names.into_iter();
        let keys = names.filter_map(|name| name.as_ref().strip_prefix(&own).map(Self::from_listing));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the name of this key in a store whose keys begin with this prefix.
    pub(super) fn below(&self, prefix: &str) -> String {
        match (prefix, self.as_str()) {
            ("", key) => key.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}/{key}"),
        }
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last component, decoded.
    pub fn last(&self) -> String {
        decode_component(self.0.rsplit('/').next().unwrap_or_default())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The characters that are escaped in a component. A dot is escaped only if the component consists of dots.
const UNSAFE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'_')
    .remove(b'=')
    .remove(b'@')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.');

fn encode_component(component: &str, out: &mut String) {
    let has_only_dots = component.bytes().all(|b| b == b'.');
    let set = if has_only_dots { NON_ALPHANUMERIC } else { UNSAFE };
    out.extend(utf8_percent_encode(component, set));
}

fn decode_component(component: &str) -> String {
    percent_decode_str(component).decode_utf8_lossy().into_owned()
}

/// The result of a conditional create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// This call created the key.
    Created,
    /// The key already existed. An earlier attempt of this call, whose response was lost, may have created
    /// it, so its content must be read.
    Exists,
}

/// The error of a store.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum StoreError {
    /// An invalid URL or a missing option.
    #[error("store {url}")]
    Config {
        /// The URL without credentials.
        url: String,
        #[source]
        why: SharedError,
    },
    /// Permissions are missing, or credentials are wrong.
    #[error("store {url}: access denied to `{key}`")]
    Denied {
        url: String,
        key: String,
        #[source]
        why: SharedError,
    },
    /// The store is not reachable, or still fails after the retries.
    #[error("store {url}: `{key}`")]
    Unavailable {
        url: String,
        key: String,
        #[source]
        why: SharedError,
    },
    /// The run was asked to stop while the store did not respond.
    #[error("store {url}")]
    Stopped {
        url: String,
        /// The operation that was abandoned.
        #[source]
        why: Stopped,
    },
    /// Two creates of one key both succeeded, or a listing lacks a created key.
    #[error("store {url} cannot keep a lease: {why}")]
    Unsafe {
        url: String,
        /// The result of the conformance test.
        why: String,
    },
}

impl StoreError {
    pub(super) fn config(url: impl Into<String>, why: impl Into<SharedError>) -> Self {
        let (url, why) = (url.into(), why.into());
        Self::Config { url, why }
    }
}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        let failure = Self::new(ErrorKind::Store, chain(&error));
        match &error {
            StoreError::Config { .. } => {
                let mut failure = failure.hint("check `state.url` in konverge.yaml; `konverge state doctor` tests the store");
                failure.kind = ErrorKind::Config;
                failure
            }
            StoreError::Denied { .. } => failure.hint(
                "the credentials come from the environment of this run and need get, list, create and delete below the prefix",
            ),
            StoreError::Unavailable { why, .. } => {
                let why = chain(&**why);
                // Without credentials in the environment, the client asks the metadata address of the machine
                // for its role, so such an error means that there are none.
                let failure = if why.contains("://169.254.169.254") || why.contains("metadata.google.internal") {
                    failure.hint("no credentials are in the environment, and this machine has no role of its own: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (for gs:// GOOGLE_APPLICATION_CREDENTIALS, for az:// AZURE_STORAGE_ACCOUNT_KEY)")
                } else if why.contains("certificate") {
                    failure.hint("for a private certificate authority, set `state.options.ca_file` in konverge.yaml to its certificate file")
                } else {
                    failure
                };
                failure.hint("`konverge state doctor` tests each operation of the store by itself; a wrong endpoint can cause the same error")
            }
            StoreError::Stopped { .. } => {
                Self::new(ErrorKind::Interrupted, failure.message).hint("run the command again: completed work is recorded and is not repeated")
            }
            StoreError::Unsafe { .. } => failure.hint(
                "use a store that honours create-if-absent (S3, GCS, Azure, OSS, PostgreSQL, MySQL, a folder), or accept that two runs may apply at once with `state.unsafe_no_lock: true`",
            ),
        }
    }
}

/// The operations of a store.
#[async_trait]
pub trait Store: Send + Sync {
    /// Returns the URL without credentials, for messages.
    fn url(&self) -> &str;

    /// Returns the content; `None` if the key does not exist.
    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError>;

    /// Lists all keys below a folder, sorted. `prefix` consists of whole components.
    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError>;

    /// Creates a key; never changes an existing one.
    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError>;

    /// Deletes a key. A missing key is not an error. Used to delete old documents, and after a live test.
    async fn delete(&self, key: &Key) -> Result<(), StoreError>;

    /// Writes a key, and overwrites an existing one. Only for files of other programs, which overwrite them
    /// too, and for the pages of the portal, which can be rebuilt: Konverge's own records are never
    /// overwritten.
    async fn replace(&self, key: &Key, _content: Bytes) -> Result<(), StoreError> {
        let why = format!("`{key}` cannot be replaced in a store of this kind");
        Err(StoreError::config(self.url(), why))
    }

    /// Removes the remains of killed writes below a folder, which listings do not show. Only for a folder to
    /// which nobody writes any more, that of a live test that has ended.
    async fn remove_unfinished(&self, _folder: &Key) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Returns the media type of a file that a browser loads from a store; `None` for any other file.
fn media_type(key: &Key) -> Option<&'static str> {
    Some(match key.as_str().rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_can_not_climb() {
        let key = Key::from_components(&["stacks", "a/../b", "..", "x y"]);
        assert_eq!(key.as_str(), "stacks/a%2F..%2Fb/%2E%2E/x%20y");
        assert_eq!(key.last(), "x y");
    }
}
