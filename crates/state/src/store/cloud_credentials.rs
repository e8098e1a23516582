//! Credentials of object stores from the identity of the job, renewed before they expire.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use object_store::{
    CredentialProvider, Error, aws::AwsCredential, azure::AzureCredential, gcp::GcpCredential,
};
use tokio::{sync::Mutex, time::Instant};

use konverge_cloud::{AwsLogin, AzureLogin, CloudError, GoogleLogin};

/// Credentials are renewed if less than this is left.
const MARGIN: Duration = Duration::from_secs(120);

const GCS_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
const AZURE_SCOPE: &str = "https://storage.azure.com/.default";

/// The future of a login: credentials and their lifetime; `None` if they do not expire.
type Login<C> = Pin<Box<dyn Future<Output = Result<(C, Option<Duration>), CloudError>> + Send>>;

/// Logs in when credentials are needed, and caches them while they are valid.
pub(super) struct CloudCredentials<C> {
    store: &'static str,
    log_in: Box<dyn Fn() -> Login<C> + Send + Sync>,
    kept: Mutex<Option<(Arc<C>, Option<Instant>)>>,
}

impl<C> fmt::Debug for CloudCredentials<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudCredentials")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl<C> CloudCredentials<C> {
    fn new(store: &'static str, log_in: impl Fn() -> Login<C> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            store,
            log_in: Box::new(log_in),
            kept: Mutex::default(),
        })
    }
}

pub(super) fn aws(login: AwsLogin) -> Arc<CloudCredentials<AwsCredential>> {
    CloudCredentials::new("S3", move || {
        let login = login.clone();
        Box::pin(async move {
            let (keys, lifetime) = login.keys().await?;
            let credential = AwsCredential {
                key_id: keys.access_key,
                secret_key: keys.secret_key.to_string(),
                token: keys.session_token.map(|token| token.to_string()),
            };
            Ok((credential, lifetime))
        })
    })
}

pub(super) fn google(login: GoogleLogin) -> Arc<CloudCredentials<GcpCredential>> {
    CloudCredentials::new("GCS", move || {
        let login = login.clone();
        Box::pin(async move {
            let token = login.token(GCS_SCOPE).await?;
            let credential = GcpCredential { bearer: token.bearer };
            Ok((credential, Some(token.lifetime)))
        })
    })
}

pub(super) fn azure(login: AzureLogin) -> Arc<CloudCredentials<AzureCredential>> {
    CloudCredentials::new("MicrosoftAzure", move || {
        let login = login.clone();
        Box::pin(async move {
            let token = login.token(AZURE_SCOPE).await?;
            Ok((AzureCredential::BearerToken(token.bearer), Some(token.lifetime)))
        })
    })
}

#[async_trait]
impl<C: fmt::Debug + Send + Sync + 'static> CredentialProvider for CloudCredentials<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let mut kept = self.kept.lock().await;
        if let Some((credential, end)) = kept.as_ref()
            && end.is_none_or(|end| end > Instant::now() + MARGIN)
        {
            return Ok(Arc::clone(credential));
        }
        let (credential, lifetime) = (self.log_in)().await.map_err(|error| match error {
            CloudError::Unavailable { .. } => Error::Generic {
                store: self.store,
                source: error.into(),
            },
            refused => Error::Unauthenticated {
                path: self.store.to_owned(),
                source: refused.into(),
            },
        })?;
        let credential = Arc::new(credential);
        *kept = Some((
            Arc::clone(&credential),
            lifetime.map(|lifetime| Instant::now() + lifetime),
        ));
        Ok(credential)
    }
}
