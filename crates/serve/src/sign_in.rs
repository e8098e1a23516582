//! The routes of the sign-in: `/login`, `/login/callback`, the account page, and signing out.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Form as FormBody, Router,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
    routing::{get, post},
};
use jiff::Timestamp;
use konverge_base::error::{ErrorKind, UserError, chain};
use konverge_portal::html;
use serde::Deserialize;

use super::{
    access::{Access, role_word},
    answer::{Form, RequestError, plain},
    client_address::ClientAddress,
    documents::{Asked, Words},
    login::Login,
    provider::SignInError,
    session::{PendingSignIn, is_same_secret},
    shared::Shared,
};

/// The maximum length of the URL to return to.
const LONGEST_RETURN: usize = 1000;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/login", get(begin))
        .route("/login/callback", get(finish))
        .route("/account.html", get(account))
        .route("/logout", post(sign_out))
}

/// Returns the path if it is a page of this portal, or else the overview. A sign-in must never redirect to another
/// host.
fn own_page(to: &str) -> String {
    let is_own = to.starts_with('/')
        && to.len() <= LONGEST_RETURN
        && !to.starts_with("//")
        && !to.starts_with("/login")
        && to
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/._-~%@=?&+".contains(&byte));
    if is_own { to.to_owned() } else { "/".to_owned() }
}

/// Creates a redirect.
fn sent_to(address: &str) -> Response {
    let mut answer = plain(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "");
    // A URL that is invalid in a header becomes the overview.
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    answer.headers_mut().insert(header::LOCATION, location);
    answer
}

/// Creates the redirect to the login, for a page that was requested without a session.
pub(super) fn to_login(page: &str) -> Response {
    let page = url::form_urlencoded::byte_serialize(page.as_bytes()).collect::<String>();
    sent_to(&format!("/login?to={page}"))
}

fn login(shared: &Shared) -> Result<&Login, RequestError> {
    shared
        .login()
        .ok_or_else(|| RequestError::unknown("this address"))
}

fn not_signed_in(error: SignInError) -> RequestError {
    tracing::warn!(error = %chain(&error), "a sign-in failed");
    let (SignInError::Away(_) | SignInError::Refused(_) | SignInError::Token(_)) = &error;
    RequestError::from(
        UserError::from_error(ErrorKind::Config, error)
            .hint("open the overview to sign in again; people who are signed in are not affected"),
    )
}

async fn begin(
    State(shared): State<Arc<Shared>>,
    Extension(client): Extension<ClientAddress>,
    Query(words): Query<Words>,
) -> Response {
    let make = async {
        let login = login(&shared)?;
        login
            .attempts
            .take(&client.0, Instant::now())
            .map_err(RequestError::too_many)?;
        let to = own_page(words.get("to").map_or("/", String::as_str));
        let request = login
            .providers
            .begin(&login.config, login.secret.as_deref())
            .await
            .map_err(not_signed_in)?;
        let pending = PendingSignIn::begin(
            request.state,
            request.nonce,
            request.verifier,
            to,
            Timestamp::now(),
        );
        let mut answer = sent_to(&request.address);
        if let Some(cookie) = login.cookies.sign_in(&pending) {
            answer.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(answer)
    };
    make.await
        .unwrap_or_else(|error: RequestError| error.answer(Form::Page(0)))
}

async fn finish(
    State(shared): State<Arc<Shared>>,
    Extension(client): Extension<ClientAddress>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let made = finished(&shared, &client.0, &words, &headers).await;
    let mut answer = made.unwrap_or_else(|error| error.answer(Form::Page(1)));
    // The cookie is deleted after the first response of the provider, so that each sign-in can be used only once,
    // also after an error.
    if let Some(cookie) = shared.login().and_then(|login| login.cookies.without_sign_in()) {
        answer.headers_mut().append(header::SET_COOKIE, cookie);
    }
    answer
}

async fn finished(
    shared: &Shared,
    peer: &str,
    words: &Words,
    headers: &HeaderMap,
) -> Result<Response, RequestError> {
    let login = login(shared)?;
    login
        .attempts
        .take(peer, Instant::now())
        .map_err(RequestError::too_many)?;
    let begun = login.cookies.read_sign_in(headers, Timestamp::now());
    let word = |name: &str| words.get(name).map_or("", String::as_str);
    // The cookie binds the sign-in to this browser. Without it an attacker could sign somebody in with the
    // attacker's own account.
    let begun = begun.filter(|begun| is_same_secret(&begun.state, word("state")));
    let Some(begun) = begun else {
        return Err(RequestError::wrong(
            "this response of the login provider belongs to no sign-in of this browser, or came too late",
            "open the overview to sign in again",
        ));
    };
    // A provider that identifies itself in its response (RFC 9207) must be the configured one.
    if words
        .get("iss")
        .is_some_and(|issuer| *issuer != login.config.issuer)
    {
        return Err(RequestError::wrong(
            "this response is from another login provider",
            "open the overview to sign in again",
        ));
    }
    // Only now is the response known to belong to a sign-in of this browser, so its error may be shown.
    if let Some(error) = words.get("error") {
        let why = words.get("error_description").unwrap_or(error);
        let why = why.chars().take(300).collect();
        return Err(not_signed_in(SignInError::Refused(why)));
    }
    let token = login
        .providers
        .finish(
            &login.config,
            login.secret.as_deref(),
            word("code"),
            &begun.verifier,
            &begun.nonce,
        )
        .await
        .map_err(not_signed_in)?;
    let roles = shared.roles().await?;
    let session = login.session_of(token, &roles);
    let mut answer = sent_to(&begun.to);
    let cookie = login.cookies.session(&session).ok_or_else(|| {
        RequestError::forbidden(
            "the session is too large for a cookie",
            "fewer groups in `portal.roles` make it smaller",
        )
    })?;
    answer.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(answer)
}

async fn account(State(shared): State<Arc<Shared>>, Extension(access): Extension<Access>) -> Response {
    let page = access.signed_in.as_ref().and_then(|signed_in| {
        let roles: Vec<_> = signed_in
            .grants
            .roles()
            .map(|(role, glob)| (role_word(role), glob))
            .collect();
        let csrf = signed_in.csrf.as_deref()?;
        Some(html::account(&signed_in.person, &roles, csrf))
    });
    let form = Form::Page(0);
    match page.filter(|_| shared.login().is_some()) {
        Some(page) => plain(StatusCode::OK, form.media_type(), page),
        None => RequestError::unknown("this page").answer(form),
    }
}

#[derive(Deserialize)]
struct SignOut {
    #[serde(default)]
    csrf: String,
}

async fn sign_out(asked: Asked, FormBody(sent): FormBody<SignOut>) -> Response {
    let make = || {
        let login = login(&asked.shared)?;
        check_form(&asked, login, &sent.csrf)?;
        let mut answer = plain(StatusCode::OK, Form::Page(0).media_type(), html::signed_out());
        if let Some(cookie) = login.cookies.without_session() {
            answer.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(answer)
    };
    make().unwrap_or_else(|error: RequestError| error.answer(Form::Page(0)))
}

/// Refuses a form unless a page of this portal sent it in this session.
pub(super) fn check_form(asked: &Asked, login: &Login, csrf: &str) -> Result<(), RequestError> {
    let of_session = asked.access.csrf();
    if of_session.is_some_and(|of| is_same_secret(of, csrf)) && login.is_own_page(&asked.headers) {
        Ok(())
    } else {
        Err(RequestError::forbidden(
            "this form was not sent by a page of this portal, or the session is a new one",
            "load the page again and send its form",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for page in [
            "/",
            "/index.html?condition=failed&q=a+b",
            "/stacks/shop@prod/index.html",
            "/kinds/v1=3APod.html",
        ] {
            assert_eq!(own_page(page), page);
        }
        for foreign in [
            "https://evil.example/",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/ /evil.example",
            "evil",
            "",
            "/login?to=/",
            "/a\r\nset-cookie: x",
            "/\u{202e}x",
            "/a#b",
        ] {
            assert_eq!(own_page(foreign), "/", "{foreign}");
        }
        assert_eq!(own_page(&format!("/{}", "a".repeat(LONGEST_RETURN))), "/");
    }
}
