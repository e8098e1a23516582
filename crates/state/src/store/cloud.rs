//! Folders, and the object stores of AWS, Google and Azure, through the `object_store` crate. The types of
//! that crate are used only here.

use std::{collections::BTreeMap, path::Path as FilePath, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::{
    Attribute, Certificate, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
    local::LocalFileSystem,
    path::Path,
};

use super::{
    Created, Key, Store, StoreError, StoreOptions, aws_profile, cloud_credentials, location::StoreLocation,
    media_type, traced_requests::TracedConnector,
};
use konverge_base::{
    error::{SharedError, chain},
    retry::{RetryDecision, RetryPolicy},
    variables,
};
use konverge_cloud::{AwsLogin, AzureLogin, CloudEnvironment, GoogleLogin};
use konverge_secrets::{AddressParts, credential_in};

/// The maximum duration of a request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

struct CloudStore {
    url: String,
    prefix: String,
    inner: Box<dyn ObjectStore>,
    retry: RetryPolicy,
}

/// Opens a folder of this machine. The folder is created if it does not exist, and every write is on the disk
/// before it is acknowledged.
pub(super) fn folder(path: &FilePath, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let url = format!("file://{}", path.display().to_string().escape_debug());
    std::fs::create_dir_all(path).map_err(|error| StoreError::config(&url, error))?;
    let local = LocalFileSystem::new_with_prefix(path).map_err(|error| StoreError::config(&url, error))?;
    Ok(Arc::new(CloudStore {
        prefix: String::new(),
        inner: Box::new(local.with_fsync(true)),
        retry: options.retry,
        url,
    }))
}

/// Opens Amazon S3 or a compatible store.
pub(super) fn s3(place: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    let mut builder = AmazonS3Builder::new();
    let environment = aws_profile::environment(&place.options.environment);
    check_endpoints(place, &environment, "AWS_")?;
    for (name, value) in &environment {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
            && name.starts_with("AWS_")
        {
            builder = builder.with_config(key, value);
        }
    }
    let login = AwsLogin::new(CloudEnvironment::new(environment));
    if login.is_by_job() {
        builder = builder.with_credentials(cloud_credentials::aws(login));
    }
    builder = builder
        .with_bucket_name(&place.host)
        .with_retry(no_retries())
        .with_http_connector(TracedConnector::default())
        .with_client_options(client(place)?)
        .with_allow_http(place.options.allow_http);
    if let Some(region) = &place.options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &place.options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(path_style) = place.options.path_style {
        builder = builder.with_virtual_hosted_style_request(!path_style);
    }
    let inner = builder.build().map_err(|error| place.error(error))?;
    Ok(at(place, Box::new(inner)))
}

/// Returns an error if an address in the environment of a cloud contains credentials.
fn check_endpoints(
    place: &StoreLocation,
    environment: &BTreeMap<String, String>,
    prefix: &str,
) -> Result<(), StoreError> {
    let is_address =
        |name: &str| name.starts_with(prefix) && (name.contains("ENDPOINT") || name.ends_with("_URL"));
    let mut addresses = environment.iter().filter(|(name, _)| is_address(name));
    let found =
        addresses.find_map(|(name, value)| Some((name, credential_in(value, AddressParts::default())?)));
    found.map_or(Ok(()), |(name, credential)| {
        Err(place.error(format!("the address in {name} holds {credential}")))
    })
}

pub(super) fn gs(place: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    const FILE: &str = variables::GOOGLE_APPLICATION_CREDENTIALS;
    let environment = &place.options.environment;
    check_endpoints(place, environment, "GOOGLE_")?;
    let login = GoogleLogin::new(CloudEnvironment::new(environment.clone()));
    let is_federated = login.is_federated();
    let mut builder = GoogleCloudStorageBuilder::new();
    let ours = |name: &str| name.starts_with("GOOGLE_") && (name != FILE || !is_federated);
    for (name, value) in environment.iter().filter(|(name, _)| ours(name)) {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder
        .with_bucket_name(&place.host)
        .with_retry(no_retries())
        .with_http_connector(TracedConnector::default())
        .with_client_options(client(place)?);
    if is_federated {
        builder = builder.with_credentials(cloud_credentials::google(login));
    }
    if let Some(endpoint) = &place.options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let inner = builder.build().map_err(|error| place.error(error))?;
    Ok(at(place, Box::new(inner)))
}

/// Opens Azure Blob Storage. The account comes from `AZURE_STORAGE_ACCOUNT_NAME`.
pub(super) fn az(place: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    let mut builder = MicrosoftAzureBuilder::new();
    check_endpoints(place, &place.options.environment, "AZURE_")?;
    for (name, value) in &place.options.environment {
        if name.starts_with("AZURE_")
            && let Ok(key) = name.to_ascii_lowercase().parse()
        {
            builder = builder.with_config(key, value);
        }
    }
    let login = AzureLogin::new(CloudEnvironment::new(place.options.environment.clone()));
    if login.is_by_job() {
        builder = builder.with_credentials(cloud_credentials::azure(login));
    }
    builder = builder
        .with_container_name(&place.host)
        .with_retry(no_retries())
        .with_http_connector(TracedConnector::default())
        .with_client_options(client(place)?)
        .with_allow_http(place.options.allow_http);
    if let Some(endpoint) = &place.options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let inner = builder.build().map_err(|error| {
        if chain(&error).contains("Account must be specified") {
            place.error("the environment names no account: set AZURE_STORAGE_ACCOUNT_NAME")
        } else {
            place.error(error)
        }
    })?;
    Ok(at(place, Box::new(inner)))
}

fn at(place: &StoreLocation, inner: Box<dyn ObjectStore>) -> Arc<dyn Store> {
    Arc::new(CloudStore {
        url: place.shown.clone(),
        prefix: place.prefix.clone(),
        inner,
        retry: place.options.retry,
    })
}

/// Disables the crate's retries, because Konverge retries by its own policy.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: REQUEST_DEADLINE,
        ..RetryConfig::default()
    }
}

fn client(place: &StoreLocation) -> Result<ClientOptions, StoreError> {
    let mut client = ClientOptions::new()
        .with_timeout(REQUEST_DEADLINE)
        .with_connect_timeout(konverge_http::CONNECT_DEADLINE)
        .with_allow_http(place.options.allow_http);
    if let Some(file) = &place.options.ca_file {
        let unreadable = |why: SharedError| place.error(why.context(format!("certificates of `{file}`")));
        let pem = std::fs::read(file).map_err(|error| unreadable(error.into()))?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unreadable(error.into()))?;
        for certificate in certificates {
            client = client.with_root_certificate(certificate);
        }
    }
    Ok(client)
}

impl CloudStore {
    fn path(&self, key: &Key) -> Result<Path, StoreError> {
        Path::parse(key.below(&self.prefix)).map_err(|error| self.error(key, error.into()))
    }

    fn error(&self, key: &Key, error: Error) -> StoreError {
        let said = chain(&error);
        let shown = without_markup(&said);
        let is_denied = matches!(
            error,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
        ) || is_denied(&error)
            || is_bad_credential(&shown);
        let is_missing = matches!(error, Error::NotFound { .. });
        let (url, key) = (self.url.clone(), key.to_string());
        let why = if shown == said { error.into() } else { shown.into() };
        if is_denied {
            StoreError::Denied { url, key, why }
        } else if is_missing {
            // For a read, a missing key is a normal result. For a create, 404 means that the bucket is
            // missing.
            StoreError::Config { url, why }
        } else {
            StoreError::Unavailable { url, key, why }
        }
    }
}

/// Returns the text of an error with the code and message of its XML or HTML body instead of the markup.
fn without_markup(text: &str) -> String {
    let begins = ["<?xml", "<Error", "<!DOCTYPE", "<!doctype", "<html", "<HTML"];
    let Some(begin) = begins.iter().filter_map(|tag| text.find(tag)).min() else {
        return text.to_owned();
    };
    let (before, answer) = text.split_at(begin);
    let element = |name: &str| konverge_http::xml_text(answer, name).filter(|text| !text.is_empty());
    let parts: Vec<_> = ["Code", "Message"].into_iter().filter_map(element).collect();
    let said = match parts.as_slice() {
        [] => "the response is an HTML page, not that of an object store".to_owned(),
        parts => parts.join(": "),
    };
    format!("{}: {said}", before.trim_end().trim_end_matches(':'))
}

/// Returns true for a folder without write permission. The crate wraps the system's error in a generic one.
fn is_denied(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            );
        }
        source = cause.source();
    }
    false
}

/// Returns true if the error means expired or invalid credentials. S3 and the token service report these with
/// status 400 (<https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>).
fn is_bad_credential(why: &str) -> bool {
    [
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "InvalidIdentityToken",
    ]
    .iter()
    .any(|code| why.contains(code))
}

/// Decides whether to retry: always, unless the error is about the key or about the request itself.
fn verdict(error: &Error) -> RetryDecision {
    match error {
        Error::Generic { store, .. } if *store != "LocalFileSystem" && !is_bad_credential(&chain(error)) => {
            RetryDecision::Retry
        }
        _ => RetryDecision::GiveUp,
    }
}

#[async_trait]
impl Store for CloudStore {
    fn url(&self) -> &str {
        &self.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        let path = self.path(key)?;
        let read = || async { self.inner.get(&path).await?.bytes().await };
        match self.retry.run(verdict, read).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(key, error)),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let path = self.path(prefix)?;
        let list = || async {
            let stream = self.inner.list(Some(&path));
            stream.try_collect::<Vec<_>>().await
        };
        let found = match self.retry.run(verdict, list).await {
            Ok(found) => found,
            // A folder that was never written to does not exist, which is an empty listing.
            Err(Error::NotFound { .. }) if self.url.starts_with("file:") => Vec::new(),
            Err(error) => return Err(self.error(prefix, error)),
        };
        let names = found.iter().map(|object| object.location.as_ref());
        Ok(Key::listed_below(&self.prefix, names))
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let path = self.path(key)?;
        let write = || async {
            let options = PutOptions::from(PutMode::Create);
            self.inner.put_opts(&path, content.clone().into(), options).await
        };
        match self.retry.run(verdict, write).await {
            Ok(_) => Ok(Created::Created),
            // Some stores report an existing key as a failed precondition.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Exists),
            Err(error) => Err(self.error(key, error)),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let path = self.path(key)?;
        match self.retry.run(verdict, || self.inner.delete(&path)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(key, error)),
        }
    }

    async fn replace(&self, key: &Key, content: Bytes) -> Result<(), StoreError> {
        let path = self.path(key)?;
        let write = || async {
            let mut options = PutOptions::default();
            // A folder cannot store a content type.
            if let Some(kind) = media_type(key).filter(|_| !self.url.starts_with("file:")) {
                options.attributes.insert(Attribute::ContentType, kind.into());
            }
            self.inner.put_opts(&path, content.clone().into(), options).await
        };
        match self.retry.run(verdict, write).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(key, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_xml_is_told_by_its_code_and_its_message() {
        let s3 = "Client error with status 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied.</Message><Key>k</Key></Error>";
        assert_eq!(
            without_markup(s3),
            "Client error with status 403 Forbidden: AccessDenied: Access Denied."
        );
        let proxy = "Server error with status 502 Bad Gateway: <html><body>502</body></html>";
        assert_eq!(
            without_markup(proxy),
            "Server error with status 502 Bad Gateway: the response is an HTML page, not that of an object store"
        );
        assert_eq!(without_markup("no route to host"), "no route to host");
        assert!(is_bad_credential(&without_markup(
            "x: <Error><Code>ExpiredToken</Code></Error>"
        )));
    }
}
