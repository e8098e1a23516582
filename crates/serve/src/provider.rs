//! An OpenID provider: what it publishes, the way to it and back, and the check of its tokens.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use konverge_base::error::{SharedError, chain};
use konverge_config::PortalLogin;
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

/// How long what a provider published is used.
const PUBLISHED: Duration = Duration::from_secs(3600);
/// How long after a reading it is not read again, whatever a token says.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);
/// How long a provider may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest answer of a provider.
const LONGEST_ANSWER: usize = 1 << 20;
/// How far the clock of a provider may be ahead of ours, in seconds.
const CLOCK_DIFFERENCE: i64 = 60;
/// The longest name that is shown.
const LONGEST_NAME: usize = 200;

/// The algorithms of which only the provider has the secret half.
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

/// The claims beside those of the standard.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OtherClaims(HashMap<String, Value>);

impl AdditionalClaims for OtherClaims {}

type ProviderToken =
    IdToken<OtherClaims, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;

/// Why an answer of a provider or a browser identifies no person.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SignInError {
    /// The provider cannot be asked.
    #[error("the login provider does not answer")]
    Away(#[source] SharedError),
    /// The provider refused.
    #[error("the login provider refused: {0}")]
    Refused(String),
    /// A token is of somebody else, for somebody else, altered or expired.
    #[error("the token is not accepted: {0}")]
    Token(String),
}

/// Who a verified token is of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VerifiedToken {
    pub issuer: String,
    pub subject: String,
    pub name: String,
    pub lifetime: Duration,
    others: HashMap<String, Value>,
}

impl VerifiedToken {
    /// The texts of a claim that is a list, or a single text.
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

/// The way to the provider, and what must come back.
pub(super) struct SignInRequest {
    pub address: String,
    pub state: String,
    pub nonce: String,
    pub verifier: String,
}

/// Sends the requests of the library by our own client.
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

/// The providers that were asked, by issuer.
pub(super) struct Providers {
    http: ProviderHttp,
    known: tokio::sync::Mutex<HashMap<String, (Instant, PublishedMetadata)>>,
}

/// The metadata of an issuer, or why it was not read.
type PublishedMetadata = Result<Arc<CoreProviderMetadata>, SignInError>;

impl Providers {
    /// # Errors
    /// The HTTP client cannot be built.
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // A provider that redirects would choose what this process connects to.
        let http = konverge_http::client().timeout(DEADLINE).build()?;
        Ok(Self {
            http: ProviderHttp(http),
            known: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the metadata of an issuer. `again` asks for it anew, because a token has a key that is unknown.
    async fn published(&self, issuer: &str, again: bool) -> PublishedMetadata {
        let mut known = self.known.lock().await;
        if let Some((read, published)) = known.get(issuer) {
            let is_fresh = match published {
                // A token with an invented key must not make this process ask the issuer each time.
                Ok(_) if again => read.elapsed() < AT_MOST_EVERY,
                Ok(_) => read.elapsed() < PUBLISHED,
                // An issuer that is away is not asked again for each reader.
                Err(_) => read.elapsed() < Duration::from_secs(5),
            };
            if is_fresh {
                return published.clone();
            }
        }
        let read = self.discover(issuer).await;
        let published = match (read, known.get(issuer)) {
            (Ok(read), _) => Ok(Arc::new(read)),
            // The issuer is away, and its keys of before are still valid.
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
        // The code and the secret go to these addresses. An issuer without HTTPS is on this machine.
        let is_secure = |address: &&str| address.starts_with("https://") || issuer.starts_with("http://");
        match addresses.iter().flatten().find(|address| !is_secure(address)) {
            Some(address) => Err(SignInError::Away(
                format!("it names `{address}`, which is not HTTPS").into(),
            )),
            None => Ok(read),
        }
    }

    /// The address at the provider where a person signs in.
    ///
    /// # Errors
    /// The provider cannot be asked.
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

    /// Exchanges the code that came back, and verifies the ID token.
    ///
    /// # Errors
    /// The provider is away or refuses; the token is not the one that was asked for.
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

    /// Verifies a token: signature, issuer, audience, expiry, and the nonce of a sign-in.
    ///
    /// # Errors
    /// One of them is wrong; the issuer cannot be asked for its keys.
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
            // The provider may have a new key.
            Err(TokenProblem::Key) => {
                let published = self.published(issuer, true).await?;
                verified(&published, issuer, audience, &token, nonce).map_err(TokenProblem::error)
            }
            other => other.map_err(TokenProblem::error),
        }
    }
}

/// A request of the library that failed.
#[derive(Debug, thiserror::Error)]
enum ProviderHttpError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error(transparent)]
    Body(#[from] konverge_http::BodyError),
}

enum TokenProblem {
    /// No published key made the signature.
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
    Ok(VerifiedToken {
        issuer: issuer.to_owned(),
        name: name
            .chars()
            .filter(|c| !c.is_control())
            .take(LONGEST_NAME)
            .collect(),
        subject,
        lifetime: lifetime.unwrap_or_default(),
        others: others.clone(),
    })
}

/// Checks that a token was issued, and is valid by now: `iat` and `nbf` are not in the future. The library checks only its
/// end.
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
        // The clocks of two machines are not one.
        assert!(begun(1_000_060, Some(json!(1_000_059.5))));
        assert!(!begun(1_000_061, None) && !begun(999_000, Some(json!(1_000_061))));
        for odd in [json!("1"), json!(null), json!([])] {
            assert!(!begun(999_000, Some(odd.clone())), "{odd}");
        }
    }
}
