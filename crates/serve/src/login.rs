//! [`Login`]: identifies the sender of a request by a session cookie (a person) or by a bearer token (a script).
//! There is no other way.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use jiff::Timestamp;
use konverge_base::error::{ErrorKind, UserError, chain};
use konverge_config::{PortalConfig, PortalLogin, ProxyRange};
use serde::Deserialize;

use super::{
    access::SignedIn,
    actions::PortalActions,
    answer::RequestError,
    provider::{Providers, SignInError, VerifiedToken},
    rate_limit::RateLimit,
    session::{CookieSealer, PORTAL_KEY_VARIABLE, PersonSession},
};

/// The maximum lifetime of a script's token, because a stolen token can be used until it expires.
const LONGEST_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// The settings of a login.
#[derive(Debug, Clone)]
pub struct LoginSettings {
    /// The configured login provider.
    pub login: PortalLogin,
    /// The OAuth client secret, if there is one.
    pub client_secret: Option<String>,
    /// The key that encrypts cookies. Without it each process generates its own.
    pub cookie_key: Option<String>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<ProxyRange>,
}

/// The login of a server, with the actions for signed-in people.
pub(super) struct Login {
    /// Performs the operations of people with a role.
    pub actions: Box<dyn PortalActions>,
    pub config: PortalLogin,
    pub secret: Option<String>,
    pub cookies: CookieSealer,
    pub providers: Providers,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<ProxyRange>,
    /// Limits sign-ins and wrong tokens, by client address.
    pub attempts: RateLimit,
    /// Limits requests for operations, by person.
    pub requests: RateLimit,
}

impl Login {
    /// Creates the login.
    ///
    /// # Errors
    /// The key of the cookies is too short, or the HTTP client cannot be created.
    pub(super) fn new(settings: LoginSettings, actions: Box<dyn PortalActions>) -> Result<Self, UserError> {
        let is_secure = settings.login.url.starts_with("https://");
        let cookies = CookieSealer::new(settings.cookie_key.as_deref(), is_secure).map_err(|error| {
            UserError::from_error(ErrorKind::Config, error).hint(format!(
                "set {PORTAL_KEY_VARIABLE} to the output of `openssl rand -hex 32`, the same for every replica"
            ))
        })?;
        let providers = Providers::new().map_err(|error| {
            UserError::from_error(ErrorKind::Config, error)
                .context("cannot build an HTTP client")
                .hint("check the proxy variables and the certificates of the system")
        })?;
        Ok(Self {
            actions,
            config: settings.login,
            secret: settings.client_secret,
            trusted_proxies: settings.trusted_proxies,
            cookies,
            providers,
            attempts: RateLimit::new(60, Duration::from_secs(2)),
            requests: RateLimit::new(20, Duration::from_secs(3)),
        })
    }

    /// Identifies the person who sent a request, by the session cookie.
    pub(super) fn person(&self, headers: &HeaderMap, roles: &PortalConfig) -> Result<SignedIn, RequestError> {
        let session = self.cookies.read_session(headers, Timestamp::now());
        // A session of a former issuer is refused, because there the same id may belong to another person.
        let session = session.filter(|session| session.person.issuer == self.config.issuer);
        let Some(session) = session else {
            return Err(RequestError::signed_out("there is no session, or it has expired"));
        };
        let PersonSession {
            person, groups, csrf, ..
        } = session;
        let grants = roles.grants_of_groups(&groups);
        with_role(SignedIn {
            person,
            grants,
            csrf: Some(csrf),
        })
    }

    /// Identifies the script that sent a request, by its token.
    pub(super) async fn script(
        &self,
        token: &str,
        roles: &PortalConfig,
        peer: &str,
    ) -> Result<SignedIn, RequestError> {
        let verified = self.verify_script(token, roles).await;
        let (verified, audience) = match verified {
            Ok(verified) => verified,
            Err(error) => {
                // Only refused tokens count, so a script with a valid token may call as often as it needs.
                self.attempts
                    .take(peer, Instant::now())
                    .map_err(RequestError::too_many)?;
                tracing::warn!(error = %chain(&error), peer, "a token was refused");
                return Err(match error {
                    SignInError::Away(_) => RequestError::from(
                        UserError::from_error(ErrorKind::Config, error).hint("try again later"),
                    ),
                    _ => RequestError::signed_out(chain(&error)),
                });
            }
        };
        let person = verified.person;
        let grants = roles.grants_of_workload(&person.issuer, &audience, &person.subject);
        with_role(SignedIn {
            person,
            grants,
            csrf: None,
        })
    }

    async fn verify_script(
        &self,
        token: &str,
        roles: &PortalConfig,
    ) -> Result<(VerifiedToken, String), SignInError> {
        let refused = |why: &str| SignInError::Token(why.to_owned());
        // The unverified claims only select a configured issuer and audience. Everything else is read from the
        // verified token.
        let named = NamedAudience::of(token).ok_or_else(|| refused("it is not a token"))?;
        let mut workloads = roles.workloads.iter();
        let workload = workloads
            .find(|workload| workload.issuer == named.iss && named.names(&workload.audience))
            .ok_or_else(|| refused("`portal.workloads` has no such issuer and audience"))?;
        let verified = self
            .providers
            .verify(&workload.issuer, &workload.audience, token, None)
            .await?;
        if verified.lifetime > LONGEST_TOKEN {
            Err(refused("it is valid for longer than a day"))
        } else {
            Ok((verified, workload.audience.clone()))
        }
    }

    /// Creates the session of a person who signed in. It has only those groups that a role mentions.
    pub(super) fn session_of(&self, token: VerifiedToken, roles: &PortalConfig) -> PersonSession {
        // A cookie is limited to 4 KB, and a group that no role mentions has no effect.
        let mut groups = token.list(self.config.groups_claim());
        groups.retain(|group| roles.knows_group(group));
        PersonSession::begin(token.person, groups, Timestamp::now())
    }

    /// Returns true if a page of this portal sent the request.
    pub(super) fn is_own_page(&self, headers: &HeaderMap) -> bool {
        // Older browsers do not send these headers. Such a form still needs the CSRF token.
        let is = |name: &str, expected: &str| {
            headers
                .get(name)
                .is_none_or(|sent: &HeaderValue| sent.as_bytes() == expected.as_bytes())
        };
        is("sec-fetch-site", "same-origin")
            && is(header::ORIGIN.as_str(), self.config.url.trim_end_matches('/'))
    }

    /// Returns the host that requests must name.
    pub(super) fn host(&self) -> &str {
        let url = self.config.url.trim_end_matches('/');
        url.split_once("://").map_or(url, |(_, host)| host)
    }
}

fn with_role(signed_in: SignedIn) -> Result<SignedIn, RequestError> {
    if signed_in.grants.is_empty() {
        Err(RequestError::forbidden(
            format!("`{}` has no role here", signed_in.person.name),
            "a rule of `portal.roles` or `portal.workloads` on the default branch grants a role; after a change of groups, sign in again at /login",
        ))
    } else {
        Ok(signed_in)
    }
}

/// The issuer and the audience in a token, before it is verified. They only select the provider whose keys verify
/// the token.
#[derive(Deserialize)]
struct NamedAudience {
    iss: String,
    aud: Audiences,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl NamedAudience {
    fn of(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload);
        serde_json::from_slice(&bytes.ok()?).ok()
    }

    fn names(&self, audience: &str) -> bool {
        match &self.aud {
            Audiences::One(one) => one == audience,
            Audiences::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}
