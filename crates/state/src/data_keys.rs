//! Data keys: age identities to which documents are encrypted, wrapped by the key services of
//! `state.encrypt_to`.
//!
//! A run unwraps the newest data key once, before it takes a lease. Encrypting needs no service, so a service
//! that fails between two writes causes no loss. A new data key contains the earlier ones, encrypted, so that
//! one call to a service gives all of them.

use age::secrecy::{ExposeSecret as _, SecretString};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    DataKeys, NamedKeyService, Sealer, StateError, StateStore,
    document_format::CreateResult,
    document_mark::DocumentMark,
    encryption::{key_error, public},
    keys,
};
use crate::store::Key;
use konverge_base::error::{SharedError, chain};

/// A data key and the services that can unwrap it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedDataKey {
    /// The key of the document in the store.
    pub place: String,
    /// The age recipient of the data key, by which documents name it.
    pub recipient: String,
    /// The names of the services that wrap the data key.
    pub by: Vec<String>,
}

/// The result of a test whether a key service can unwrap the newest data key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyServiceTrial {
    /// The name of the service in `state.encrypt_to`.
    pub service: String,
    /// The reason why the service cannot unwrap the key; `None` if it can.
    pub failure: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct DataKeyDocument {
    recipient: String,
    wrapped: Vec<WrappedBy>,
    /// Marks by the holders of age identities that had this key when it was made. Each mark is for its own
    /// maker, over the document's key and the recipient, so that its maker accepts documents of this data key
    /// even when no service responds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    known_by: Vec<DocumentMark>,
    /// The earlier data keys, encrypted to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    older: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WrappedBy {
    by: String,
    key: String,
}

impl StateStore {
    /// Sets the services that wrap data keys.
    #[must_use]
    pub fn with_key_services(mut self, services: Vec<NamedKeyService>) -> Self {
        self.key_services = services;
        self
    }

    /// Returns true if services wrap data keys.
    pub fn has_key_services(&self) -> bool {
        !self.key_services.is_empty()
    }

    /// Unwraps the newest data key with the first service that can. `None` if there is no data key yet.
    ///
    /// # Errors
    /// No service can unwrap it, the store fails, or the document is damaged.
    pub async fn open_data_keys(&self) -> Result<Option<DataKeys>, StateError> {
        let Some((number, document)) = self.data_key_rows().await?.pop() else {
            return Ok(None);
        };
        let mut reasons = Vec::new();
        for service in &self.key_services {
            let name = &service.name;
            let Some(wrapped) = document.wrapped.iter().find(|wrapped| wrapped.by == *name) else {
                reasons.push(format!("`{name}` does not wrap the data key"));
                continue;
            };
            match service.unwrap_key(&wrapped.key, &self.context(number)).await {
                Ok(secret) => return self.opened(number, &document, &secret).map(Some),
                Err(error) => reasons.push(format!("`{name}`: {}", chain(&*error))),
            }
        }
        Err(StateError::KeyService {
            what: format!("`{}` cannot be unwrapped", place(number)),
            why: reasons.join("; ").into(),
        })
    }

    /// Makes a new data key, wrapped by every service. It contains the earlier ones.
    ///
    /// # Errors
    /// A service fails, in which case nothing is written, or the store fails.
    pub async fn make_data_key(&self, earlier: Option<&DataKeys>) -> Result<DataKeys, StateError> {
        let number = earlier.map_or(1, |earlier| earlier.number + 1);
        let older = earlier.into_iter().flat_map(DataKeys::identities);
        self.make_data_key_at(number, older.cloned().collect()).await
    }

    /// Makes a new data key after all services lost the newest one. Data that was encrypted only to earlier
    /// keys stays unreadable.
    ///
    /// # Errors
    /// Errors of [`StateStore::make_data_key`].
    pub async fn make_data_key_after_loss(&self) -> Result<DataKeys, StateError> {
        let rows = self.data_key_rows().await?;
        let newest = rows.last().map_or(0, |(number, _)| *number);
        self.make_data_key_at(newest + 1, Vec::new()).await
    }

    async fn make_data_key_at(
        &self,
        number: u64,
        older: Vec<age::x25519::Identity>,
    ) -> Result<DataKeys, StateError> {
        let newest = age::x25519::Identity::generate();
        let secret = newest.to_string();
        let mut wrapped = Vec::new();
        for service in &self.key_services {
            let context = self.context(number);
            let key = service
                .wrap_key(secret.expose_secret().as_bytes(), &context)
                .await;
            let key = key.map_err(|error| StateError::KeyService {
                what: format!("`{}` cannot be created", place(number)),
                why: error.context(format!("`{}`", service.name)),
            })?;
            let by = service.name.clone();
            wrapped.push(WrappedBy { by, key });
        }
        let recipient = public(&newest);
        let identities = self.sealer().map(Sealer::listed_identities).unwrap_or_default();
        // This run has the data key now. With a mark for its own identity, a later run with that identity
        // accepts documents of the key even when no service responds.
        let known_by = identities.into_iter().filter_map(|identity| {
            let own = public(identity);
            DocumentMark::new(identity, &own, &place(number), recipient.as_bytes())
        });
        let known_by: Vec<_> = known_by.collect();
        let document = DataKeyDocument {
            recipient,
            known_by,
            older: (!older.is_empty())
                .then(|| enclose(&newest, &older))
                .transpose()?,
            wrapped,
        };
        match self.create("data-key", &place(number), &document).await? {
            CreateResult::Ours => Ok(DataKeys {
                newest,
                older,
                number,
                wrapped_by: names(&document),
                known_by: markers(&document),
            }),
            // Another run made a key with this number first, so that key is used.
            CreateResult::Theirs(_) => self.open_data_keys().await?.ok_or_else(|| {
                StateError::damaged(
                    &place(number),
                    "the store says that it exists, but does not list it",
                )
            }),
        }
    }

    /// Returns true if all age identities of this run can recognize the newest data key without a service.
    pub fn is_known_to_identities(&self, keys: &DataKeys) -> bool {
        let identities = self.sealer().map(Sealer::listed_identities).unwrap_or_default();
        let mut names = identities.iter().map(|identity| public(identity));
        names.all(|name| keys.known_by.contains(&name))
    }

    /// Returns the recipients of the data keys that an age identity of this run can recognize without a
    /// service.
    ///
    /// # Errors
    /// The store fails, or a document is damaged.
    pub async fn known_data_keys(&self) -> Result<Vec<String>, StateError> {
        let identities = self.sealer().map(Sealer::listed_identities).unwrap_or_default();
        let rows = self.data_key_rows().await?.into_iter();
        let is_known = |number, document: &DataKeyDocument| {
            document.known_by.iter().any(|mark| {
                let own = identities.iter().find(|own| public(own) == mark.by);
                own.is_some_and(|own| mark.is_valid(own, &place(number), document.recipient.as_bytes()))
            })
        };
        let known = rows.filter(|(number, document)| is_known(*number, document));
        Ok(known.map(|(_, document)| document.recipient).collect())
    }

    /// Returns true if exactly the services of this run wrap the newest data key.
    pub fn is_wrapped_by_all(&self, keys: &DataKeys) -> bool {
        let mut services: Vec<_> = self.key_services.iter().map(|service| &service.name).collect();
        services.sort_unstable();
        services.into_iter().eq(&keys.wrapped_by)
    }

    /// Returns the services among `wrapped_by` that are no longer in `state.encrypt_to`.
    pub fn former_services(&self, wrapped_by: &[String]) -> Vec<String> {
        let is_today = |name: &String| self.key_services.iter().any(|service| service.name == *name);
        let former = wrapped_by.iter().filter(|name| !is_today(name));
        former.cloned().collect()
    }

    /// Lists all data keys, the oldest first, without unwrapping them.
    ///
    /// # Errors
    /// The store fails, or a document is damaged.
    pub async fn list_data_keys(&self) -> Result<Vec<WrappedDataKey>, StateError> {
        let rows = self.data_key_rows().await?.into_iter();
        let rows = rows.map(|(number, document)| WrappedDataKey {
            place: place(number).to_string(),
            by: names(&document),
            recipient: document.recipient,
        });
        Ok(rows.collect())
    }

    /// Tests for each service whether it can unwrap the newest data key.
    ///
    /// # Errors
    /// The store fails, or a document is damaged.
    pub async fn try_key_services(&self) -> Result<Vec<KeyServiceTrial>, StateError> {
        let Some((number, document)) = self.data_key_rows().await?.pop() else {
            return Ok(Vec::new());
        };
        let mut tried = Vec::new();
        for service in &self.key_services {
            let name = &service.name;
            let wrapped = document.wrapped.iter().find(|wrapped| wrapped.by == *name);
            let failure = match wrapped {
                None => Some(format!("does not wrap `{}`", place(number))),
                Some(wrapped) => {
                    let secret = service.unwrap_key(&wrapped.key, &self.context(number)).await;
                    secret.err().map(|error| chain(&*error))
                }
            };
            tried.push(KeyServiceTrial {
                service: name.clone(),
                failure,
            });
        }
        Ok(tried)
    }

    async fn data_key_rows(&self) -> Result<Vec<(u64, DataKeyDocument)>, StateError> {
        let mut rows = Vec::new();
        for key in self.store.list(&folder()).await? {
            let number = key.last().parse().ok();
            let (Some(number), Some(bytes)) = (number, self.store.get(&key).await?) else {
                continue;
            };
            let (_, document) = self.envelopes.read("data-key", &key, &bytes)?;
            rows.push((number, document));
        }
        Ok(rows)
    }

    fn opened(&self, number: u64, document: &DataKeyDocument, secret: &[u8]) -> Result<DataKeys, StateError> {
        let damaged = |why: &str| StateError::damaged(&place(number), why);
        let newest: Option<age::x25519::Identity> = std::str::from_utf8(secret)
            .ok()
            .and_then(|text| text.parse().ok());
        let newest = newest.ok_or_else(|| damaged("the key that it wraps is not an age identity"))?;
        // The document's recipient must be that of the wrapped key. Somebody who can only write to the store
        // could name another recipient, and an RSA key does not prevent that, because it needs only the
        // public half.
        if public(&newest) != document.recipient {
            return Err(damaged("its recipient is not that of the key that it wraps"));
        }
        let older = document.older.as_deref().map(|older| disclose(&newest, older));
        let older = older
            .transpose()
            .map_err(|_| damaged("the earlier keys that it encloses cannot be decrypted"))?;
        Ok(DataKeys {
            newest,
            older: older.unwrap_or_default(),
            number,
            wrapped_by: names(document),
            known_by: markers(document),
        })
    }

    /// Returns the context that binds a wrapped key to its number in one repository, so that an old key
    /// cannot be passed off as the newest.
    fn context(&self, number: u64) -> String {
        format!("{} {}", self.envelopes.repository.as_str(), place(number))
    }
}

/// Returns the names of the services in a document, sorted.
fn names(document: &DataKeyDocument) -> Vec<String> {
    let mut names: Vec<_> = document
        .wrapped
        .iter()
        .map(|wrapped| wrapped.by.clone())
        .collect();
    names.sort_unstable();
    names
}

/// Lists the age recipients whose holders marked the data key.
fn markers(document: &DataKeyDocument) -> Vec<String> {
    document.known_by.iter().map(|mark| mark.by.clone()).collect()
}

fn enclose(newest: &age::x25519::Identity, older: &[age::x25519::Identity]) -> Result<String, StateError> {
    let texts: Vec<SecretString> = older.iter().map(age::x25519::Identity::to_string).collect();
    let texts: Vec<_> = texts.iter().map(|text| text.expose_secret()).collect();
    let plain = Zeroizing::new(texts.join("\n"));
    let cipher = age::encrypt(&newest.to_public(), plain.as_bytes());
    let cipher = cipher.map_err(|error| key_error("encrypting", error))?;
    Ok(STANDARD.encode(cipher))
}

fn disclose(newest: &age::x25519::Identity, older: &str) -> Result<Vec<age::x25519::Identity>, StateError> {
    let wrong = |why: SharedError| key_error("decrypting", why);
    let cipher = STANDARD.decode(older).map_err(|error| wrong(error.into()))?;
    let plain = age::decrypt(newest, &cipher).map_err(|error| wrong(error.into()))?;
    let plain = Zeroizing::new(plain);
    let text = std::str::from_utf8(&plain).map_err(|error| wrong(error.into()))?;
    text.lines()
        .map(|line| line.parse().map_err(|why: &str| wrong(why.into())))
        .collect()
}

fn folder() -> Key {
    Key::from_components(&["keys", "data"])
}

fn place(number: u64) -> Key {
    folder().child(&keys::number(number))
}

#[cfg(test)]
#[path = "data_keys_tests.rs"]
mod tests;
