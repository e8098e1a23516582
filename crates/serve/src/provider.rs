//! An OpenID provider: its metadata, the sign-in, and the verification of its tokens.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use konverge_base::error::{SharedError, chain};
use konverge_config::PortalLogin;
use konverge_portal::PortalPerson;
use openidconnect::{
    AdditionalClaims, AsyncHttpClient, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest,
    HttpResponse, IdToken, IdTokenClaims, IdTokenVerifier, IssuerUrl, JsonWebKeySet, Nonce,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope, TokenResponse as _,
    core::{
        CoreAuthenticationFlow, CoreClient, CoreGenderClaim, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The time for which the provider's metadata and keys are cached.
const PUBLISHED: Duration = Duration::from_secs(3600);
/// The minimum time between two reads of the metadata, even if a token has an unknown key.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);
/// The maximum time for a response of the provider.
const DEADLINE: Duration = Duration::from_secs(10);
/// The maximum size of a response in bytes.
const LONGEST_ANSWER: usize = 1 << 20;
/// The number of seconds by which the provider's clock may be ahead.
const CLOCK_DIFFERENCE: i64 = 60;
/// The maximum length of a display name.
const LONGEST_NAME: usize = 200;

/// The accepted signature algorithms. All are asymmetric, so only the provider can sign.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The claims of a token that are not in the OpenID standard.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OtherClaims(HashMap<String, Value>);

impl AdditionalClaims for OtherClaims {}

type ProviderToken =
    IdToken<OtherClaims, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;

/// Reasons why a person or a script cannot be identified.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SignInError {
    /// The provider cannot be reached.
    #[error("the login provider does not answer")]
    Away(#[source] SharedError),
    /// The provider refused.
    #[error("the login provider refused: {0}")]
    Refused(String),
    /// A token is forged, expired, or issued for somebody else.
    #[error("the token is not accepted: {0}")]
    Token(String),
}

/// The content of a verified token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VerifiedToken {
    pub person: PortalPerson,
    pub lifetime: Duration,
    others: HashMap<String, Value>,
}

impl VerifiedToken {
    /// Returns the texts of a claim that is a list or a single text.
    pub(super) fn list(&self, claim: &str) -> Vec<String> {
        match self.others.get(claim) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many
                .iter()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// A sign-in that begins: the URL at the provider, and the values to check when the browser comes back.
pub(super) struct SignInRequest {
    pub address: String,
    pub state: String,
    pub nonce: String,
    pub verifier: String,
}

/// The HTTP client for the OpenID library.
struct ProviderHttp(reqwest::Client);

impl<'c> AsyncHttpClient<'c> for ProviderHttp {
    type Error = ProviderHttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, ProviderHttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let request = self.0.request(parts.method, parts.uri.to_string());
            let response = konverge_http::send(request.headers(parts.headers).body(body)).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut answer = HttpResponse::new(konverge_http::read_body(response, LONGEST_ANSWER).await?);
            *answer.status_mut() = status;
            *answer.headers_mut() = headers;
            Ok(answer)
        })
    }
}

/// The metadata of providers, by issuer.
pub(super) struct Providers {
    http: ProviderHttp,
    known: tokio::sync::Mutex<HashMap<String, (Instant, PublishedMetadata)>>,
}

/// The metadata of an issuer, or the error of reading it.
type PublishedMetadata = Result<Arc<CoreProviderMetadata>, SignInError>;

impl Providers {
    /// Creates the cache.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // No redirects: otherwise a provider could choose the hosts to which this process connects.
        let http = konverge_http::client().timeout(DEADLINE).build()?;
        Ok(Self {
            http: ProviderHttp(http),
            known: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the metadata of an issuer. `again` asks for newer metadata, because a token has an unknown key.
    async fn published(&self, issuer: &str, again: bool) -> PublishedMetadata {
        let mut known = self.known.lock().await;
        if let Some((read, published)) = known.get(issuer) {
            let is_fresh = match published {
                // A token with an invented key must not cause a request to the issuer each time.
                Ok(_) if again => read.elapsed() < AT_MOST_EVERY,
                Ok(_) => read.elapsed() < PUBLISHED,
                // An error is cached too, so that an issuer that is down is not queried for every reader.
                Err(_) => read.elapsed() < Duration::from_secs(5),
            };
            if is_fresh {
                return published.clone();
            }
        }
        let read = self.discover(issuer).await;
        let published = match (read, known.get(issuer)) {
            (Ok(read), _) => Ok(Arc::new(read)),
            // The issuer is down. Its earlier keys are still valid.
            (Err(error), Some((_, Ok(earlier)))) => {
                tracing::warn!(error = %chain(&error), "the login provider cannot be read again");
                Ok(Arc::clone(earlier))
            }
            (Err(error), _) => Err(error),
        };
        known.insert(issuer.to_owned(), (Instant::now(), published.clone()));
        published
    }

    async fn discover(&self, issuer: &str) -> Result<CoreProviderMetadata, SignInError> {
        let url = IssuerUrl::new(issuer.to_owned()).map_err(|error| SignInError::Away(error.into()))?;
        let read = CoreProviderMetadata::discover_async(url, &self.http).await;
        let read = read.map_err(|error| SignInError::Away(error.into()))?;
        let addresses = [
            Some(read.authorization_endpoint().as_str()),
            read.token_endpoint().map(|url| url.as_str()),
        ];
        // The code and the client secret are sent to these addresses, so they must use HTTPS. An issuer with plain
        // HTTP is on this machine.
        let is_secure = |address: &&str| address.starts_with("https://") || issuer.starts_with("http://");
        match addresses.iter().flatten().find(|address| !is_secure(address)) {
            Some(address) => Err(SignInError::Away(
                format!("it names `{address}`, which is not HTTPS").into(),
            )),
            None => Ok(read),
        }
    }

    /// Begins a sign-in. Returns the URL at the provider to which the person goes.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub(super) async fn begin(
        &self,
        login: &PortalLogin,
        secret: Option<&str>,
    ) -> Result<SignInRequest, SignInError> {
        let published = self.published(&login.issuer, false).await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let client = client(&published, login, secret)?;
        let request = client.authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            CsrfToken::new_random,
            Nonce::new_random,
        );
        let scopes = login.scopes.iter().map(|scope| Scope::new(scope.clone()));
        let (address, state, nonce) = request.add_scopes(scopes).set_pkce_challenge(challenge).url();
        Ok(SignInRequest {
            address: address.to_string(),
            state: state.secret().clone(),
            nonce: nonce.secret().clone(),
            verifier: verifier.secret().clone(),
        })
    }

    /// Exchanges the code from the provider for an ID token, and verifies the token.
    ///
    /// # Errors
    /// The provider cannot be reached or refuses; the token is not valid for this sign-in.
    pub(super) async fn finish(
        &self,
        login: &PortalLogin,
        secret: Option<&str>,
        code: &str,
        verifier: &str,
        nonce: &str,
    ) -> Result<VerifiedToken, SignInError> {
        let published = self.published(&login.issuer, false).await?;
        let client = client(&published, login, secret)?;
        let exchange = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| SignInError::Away(error.into()))?
            .set_pkce_verifier(PkceCodeVerifier::new(verifier.to_owned()));
        let answer = exchange
            .request_async(&self.http)
            .await
            .map_err(|error| match &error {
                openidconnect::RequestTokenError::ServerResponse(refused) => {
                    SignInError::Refused(refused.to_string())
                }
                _ => SignInError::Away(error.into()),
            })?;
        let token = answer
            .id_token()
            .ok_or_else(|| SignInError::Token("the provider sent no ID token".to_owned()))?;
        let token = token.to_string();
        self.verify(&login.issuer, &login.client_id, &token, Some(nonce))
            .await
    }

    /// Verifies a token: signature, issuer, audience, expiry, and, for a sign-in, the nonce.
    ///
    /// # Errors
    /// One of these checks fails, or the issuer's keys cannot be read.
    pub(super) async fn verify(
        &self,
        issuer: &str,
        audience: &str,
        token: &str,
        nonce: Option<&str>,
    ) -> Result<VerifiedToken, SignInError> {
        let token: ProviderToken = token.parse().map_err(|_| malformed())?;
        let published = self.published(issuer, false).await?;
        match verified(&published, issuer, audience, &token, nonce) {
            // The provider may have new keys since the last read.
            Err(TokenProblem::Key) => {
                let published = self.published(issuer, true).await?;
                verified(&published, issuer, audience, &token, nonce).map_err(TokenProblem::error)
            }
            other => other.map_err(TokenProblem::error),
        }
    }
}

/// An error of a request that the OpenID library makes.
#[derive(Debug, thiserror::Error)]
enum ProviderHttpError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error(transparent)]
    Body(#[from] konverge_http::BodyError),
}

enum TokenProblem {
    /// None of the provider's keys made the signature.
    Key,
    Other(String),
}

impl TokenProblem {
    fn error(self) -> SignInError {
        SignInError::Token(match self {
            Self::Key => "no key of the issuer made its signature".to_owned(),
            Self::Other(why) => why,
        })
    }
}

fn malformed() -> SignInError {
    SignInError::Token("it is not a token".to_owned())
}

type SignInClient = CoreClient<
    openidconnect::EndpointSet,
    openidconnect::EndpointNotSet,
    openidconnect::EndpointNotSet,
    openidconnect::EndpointNotSet,
    openidconnect::EndpointMaybeSet,
    openidconnect::EndpointMaybeSet,
>;

fn client(
    published: &CoreProviderMetadata,
    login: &PortalLogin,
    secret: Option<&str>,
) -> Result<SignInClient, SignInError> {
    let back = format!("{}/login/callback", login.url.trim_end_matches('/'));
    let back = RedirectUrl::new(back).map_err(|error| SignInError::Away(error.into()))?;
    let secret = secret.map(|secret| ClientSecret::new(secret.to_owned()));
    let client =
        CoreClient::from_provider_metadata(published.clone(), ClientId::new(login.client_id.clone()), secret);
    Ok(client.set_redirect_uri(back))
}

fn verified(
    published: &CoreProviderMetadata,
    issuer: &str,
    audience: &str,
    token: &ProviderToken,
    nonce: Option<&str>,
) -> Result<VerifiedToken, TokenProblem> {
    let keys: JsonWebKeySet<CoreJsonWebKey> = published.jwks().clone();
    let verifier = IdTokenVerifier::new_public_client(
        ClientId::new(audience.to_owned()),
        published.issuer().clone(),
        keys,
    )
    .set_allowed_algs(ALGORITHMS);
    // A script's token belongs to no sign-in, so it has no nonce to check.
    let check_nonce = |sent: Option<&Nonce>| match (nonce, sent) {
        (None, _) => Ok(()),
        (Some(asked), Some(sent)) if super::session::is_same_secret(asked, sent.secret()) => Ok(()),
        (Some(_), _) => Err("it does not belong to this sign-in".to_owned()),
    };
    let claims: &IdTokenClaims<OtherClaims, CoreGenderClaim> =
        token
            .claims(&verifier, check_nonce)
            .map_err(|error| match error {
                openidconnect::ClaimsVerificationError::SignatureVerification(
                    openidconnect::SignatureVerificationError::NoMatchingKey,
                ) => TokenProblem::Key,
                other => TokenProblem::Other(other.to_string()),
            })?;
    let others = &claims.additional_claims().0;
    check_begun(
        claims.issue_time().timestamp(),
        others.get("nbf"),
        Timestamp::now(),
    )?;
    let subject = claims.subject().as_str().to_owned();
    let name = claims
        .preferred_username()
        .map(|name| name.as_str())
        .or_else(|| claims.email().map(|email| email.as_str()))
        .unwrap_or(&subject);
    let lifetime = (claims.expiration() - claims.issue_time()).to_std();
    let name = name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME);
    Ok(VerifiedToken {
        person: PortalPerson {
            issuer: issuer.to_owned(),
            name: name.collect(),
            subject,
        },
        lifetime: lifetime.unwrap_or_default(),
        others: others.clone(),
    })
}

/// Checks that `iat` and `nbf` are not in the future. The library only checks the expiry.
fn check_begun(issued: i64, not_before: Option<&Value>, now: Timestamp) -> Result<(), TokenProblem> {
    let latest = now.as_second() + CLOCK_DIFFERENCE;
    let refused = |why: &str| Err(TokenProblem::Other(why.to_owned()));
    if issued > latest {
        return refused("it was issued in the future (`iat`): the clocks differ, or it is forged");
    }
    match not_before.map(Value::as_f64) {
        None => Ok(()),
        Some(Some(begins)) if begins <= latest as f64 => Ok(()),
        Some(_) => refused("it is not valid yet (`nbf`)"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_of_the_future_is_refused() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let begun =
            |issued: i64, not_before: Option<Value>| check_begun(issued, not_before.as_ref(), now).is_ok();
        assert!(begun(999_000, None) && begun(1_000_000, Some(json!(1_000_000))));
        // Small differences between two machines' clocks are allowed.
        assert!(begun(1_000_060, Some(json!(1_000_059.5))));
        assert!(!begun(1_000_061, None) && !begun(999_000, Some(json!(1_000_061))));
        for odd in [json!("1"), json!(null), json!([])] {
            assert!(!begun(999_000, Some(odd.clone())), "{odd}");
        }
    }
}
