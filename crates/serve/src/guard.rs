//! What every request passes: its host, who it is of, the headers of its answer.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::Response,
};
use konverge_portal::html;

use super::{
    access::Access,
    answer::{Form, RequestError, plain},
    client_address::ClientAddress,
    shared::Shared,
    sign_in::to_login,
};

/// The seconds after which a page may be wanted again.
const REFRESH: std::ops::RangeInclusive<u32> = 10..=3600;

/// The form of the errors of an address.
pub(super) fn form_of(path: &str) -> Form {
    if path.starts_with("/api/") {
        Form::Json
    } else {
        Form::Page(path.matches('/').count().saturating_sub(1))
    }
}

/// Addresses that show nothing of a stack, and that are needed before anybody is known.
fn is_public(path: &str) -> bool {
    is_for_platform(path) || ["/portal.css", "/portal.js", "/login", "/login/callback"].contains(&path)
}

/// Addresses that the platform asks by whichever name it has for the process.
fn is_for_platform(path: &str) -> bool {
    ["/healthz", "/metrics"].contains(&path)
}

/// Whose a request is, by its connection and the proxies that the login trusts.
fn client(shared: &Shared, request: &Request) -> ClientAddress {
    let connection = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let trusted = shared.login().map(|login| &login.trusted_proxies[..]);
    ClientAddress::find(
        connection.map(|info| info.0),
        request.headers(),
        trusted.unwrap_or_default(),
    )
}

/// After how many seconds a reader wants the page again: `?refresh=60`.
fn wanted_refresh(query: &str) -> Option<HeaderValue> {
    let mut words = query.split('&').filter_map(|word| word.strip_prefix("refresh="));
    let seconds: u32 = words.next()?.parse().ok()?;
    REFRESH.contains(&seconds).then(|| HeaderValue::from(seconds))
}

/// Refuses names that lead here from elsewhere and who has no role, counts, and sets the headers of every answer.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    // The body of a request cannot be shared with what waits for a provider, so its head is.
    let head = RequestHead {
        method: request.method().clone(),
        page: request
            .uri()
            .path_and_query()
            .map_or("/", |page| page.as_str())
            .to_owned(),
        headers: request.headers().clone(),
        client: client(&shared, &request),
    };
    let refresh = request.uri().query().and_then(wanted_refresh);
    request.extensions_mut().insert(head.client.clone());
    let mut answer = match admit(&shared, &head, &path).await {
        Ok(access) => {
            if let Some(access) = access {
                request.extensions_mut().insert(access);
            }
            own_form(next.run(request).await, form_of(&path))
        }
        Err(answer) => *answer,
    };
    shared
        .metrics
        .count_request(route_of(&path), answer.status().as_u16());
    let is_shown = [StatusCode::OK, StatusCode::NOT_MODIFIED].contains(&answer.status());
    let headers = answer.headers_mut();
    // The browser asks for the same address again, without a script and without a word in the page.
    if let Some(seconds) = refresh.filter(|_| is_shown && matches!(form_of(&path), Form::Page(_))) {
        headers.insert(header::REFRESH, seconds);
    }
    let policy = HeaderValue::try_from(format!("{}; frame-ancestors 'none'", html::SECURITY));
    if let Ok(policy) = policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, html::REFERRER),
        (header::CACHE_CONTROL, "private, no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    if shared.login().is_some() {
        headers.insert(header::VARY, HeaderValue::from_static("cookie, authorization"));
        if shared
            .login()
            .is_some_and(|login| login.config.url.starts_with("https://"))
        {
            headers.insert(
                header::STRICT_TRANSPORT_SECURITY,
                HeaderValue::from_static("max-age=31536000"),
            );
        }
    }
    answer
}

/// The framework's refusals (a method, a length, a path that is not UTF-8) are plain text. They get the form of all others.
fn own_form(answer: Response, form: Form) -> Response {
    let (status, media_type) = (answer.status(), answer.headers().get(header::CONTENT_TYPE));
    let is_own = media_type.is_some_and(|is| is == form.media_type());
    if is_own || !status.is_client_error() {
        return answer;
    }
    let reason = status.canonical_reason().unwrap_or("refused").to_lowercase();
    let refusal = RequestError::wrong(
        format!("the server refuses this request: {reason}"),
        "`/api/v1/openapi.json` has every address with its method and its body",
    );
    let mut own = refusal.answer(form);
    *own.status_mut() = status;
    if let Some(methods) = answer.headers().get(header::ALLOW) {
        own.headers_mut().insert(header::ALLOW, methods.clone());
    }
    own
}

/// The head of a request, which decides who it is of.
struct RequestHead {
    method: Method,
    /// The path with what follows the question mark.
    page: String,
    headers: HeaderMap,
    client: ClientAddress,
}

/// Who a request is of; `None` for an address that is public. An address without [`Access`] shows nothing: its handler
/// cannot run.
async fn admit(shared: &Shared, head: &RequestHead, path: &str) -> Result<Option<Access>, Box<Response>> {
    let headers = &head.headers;
    let Some(login) = shared.login() else {
        return if is_local(headers) {
            Ok(Some(Access::local()))
        } else {
            Err(Box::new(misdirected("127.0.0.1, [::1] and localhost")))
        };
    };
    // Before the host is checked: the platform may call the process by its address.
    if is_for_platform(path) {
        return Ok(None);
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // A page of another site whose name was bound to this address must not read anything.
    if !host.is_some_and(|host| host.eq_ignore_ascii_case(login.host())) {
        return Err(Box::new(misdirected(login.host())));
    }
    if is_public(path) {
        return Ok(None);
    }
    let form = form_of(path);
    let known = async {
        let roles = shared.roles().await?;
        let bearer = headers.get(header::AUTHORIZATION).filter(|_| form == Form::Json);
        match bearer {
            None => login.person(headers, &roles),
            // A token that is sent is the one that counts, also beside a cookie.
            Some(sent) => {
                let token = sent.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
                let token = token.ok_or_else(|| {
                    RequestError::SignedOut("`Authorization` is not `Bearer TOKEN`".to_owned())
                })?;
                login.script(token.trim(), &roles, &head.client.0).await
            }
        }
    };
    match known.await {
        Ok(signed_in) => Ok(Some(Access {
            signed_in: Some(signed_in),
        })),
        // Only a page that is read goes to the login: a form would be lost on the way, and a script cannot sign in.
        Err(RequestError::SignedOut(_)) if form != Form::Json && head.method == Method::GET => {
            Err(Box::new(to_login(&head.page)))
        }
        Err(error) => Err(Box::new(error.answer(form))),
    }
}

/// Refuses a request for another host.
fn misdirected(own: &str) -> Response {
    plain(
        StatusCode::MISDIRECTED_REQUEST,
        "text/plain; charset=utf-8",
        format!("this server answers for {own} only\n"),
    )
}

/// Returns true if the request names this machine.
pub(super) fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |name: &str| {
        name.parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    };
    name.eq_ignore_ascii_case("localhost") || is_loopback(name)
}

/// The name of a route for the counters.
fn route_of(path: &str) -> &'static str {
    match path {
        "/" | "/index.html" => "overview",
        "/search.html" => "search",
        "/rollouts.html" => "rollouts",
        "/trends.html" => "trends",
        "/permissions.html" => "permissions",
        _ if path.starts_with("/by-") => "overview",
        "/login" | "/login/callback" | "/logout" => "login",
        _ if path.starts_with("/stacks/") => "stack",
        _ if path.starts_with("/kinds/") => "kind",
        _ if path.starts_with("/api/v1/") => "api",
        _ => "other",
    }
}
