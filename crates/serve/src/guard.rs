//! The middleware of every request: checks the host, identifies the sender, and sets the headers of the response.

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

/// The allowed intervals for reloading a page, in seconds.
const REFRESH: std::ops::RangeInclusive<u32> = 10..=3600;

/// Returns true for paths that reveal nothing about stacks and are needed before the sign-in.
fn is_public(path: &str) -> bool {
    is_for_platform(path) || ["/portal.css", "/portal.js", "/login", "/login/callback"].contains(&path)
}

/// Returns true for paths that the platform (health checks, Prometheus) requests with any host name.
fn is_for_platform(path: &str) -> bool {
    ["/healthz", "/metrics"].contains(&path)
}

/// Returns the client of a request, by its connection and the trusted proxies.
fn client(shared: &Shared, request: &Request) -> ClientAddress {
    let connection = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let trusted = shared.login().map(|login| &login.trusted_proxies[..]);
    ClientAddress::find(
        connection.map(|info| info.0),
        request.headers(),
        trusted.unwrap_or_default(),
    )
}

/// Parses the interval after which the page shall reload: `?refresh=60`.
fn wanted_refresh(query: &str) -> Option<HeaderValue> {
    let mut words = query.split('&').filter_map(|word| word.strip_prefix("refresh="));
    let seconds: u32 = words.next()?.parse().ok()?;
    REFRESH.contains(&seconds).then(|| HeaderValue::from(seconds))
}

/// Refuses requests for other hosts and senders without a role, counts requests, and sets the headers of every
/// response.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    // The head is copied, because identifying the sender may wait for the login provider, and a request with its
    // body cannot be shared across that wait.
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
            own_form(next.run(request).await, Form::from_path(&path))
        }
        Err(answer) => *answer,
    };
    shared
        .metrics
        .count_request(route_of(&path), answer.status().as_u16());
    let is_shown = [StatusCode::OK, StatusCode::NOT_MODIFIED].contains(&answer.status());
    let headers = answer.headers_mut();
    // With this header the browser reloads the page by itself, without a script.
    if let Some(seconds) = refresh.filter(|_| is_shown && matches!(Form::from_path(&path), Form::Page(_))) {
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

/// Converts error responses of the framework (wrong method, too long, path not UTF-8), which are plain text, to the
/// format of all other errors.
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

/// The head of a request, from which the sender is identified.
struct RequestHead {
    method: Method,
    /// The path with the query.
    page: String,
    headers: HeaderMap,
    client: ClientAddress,
}

/// Identifies the sender of a request; `None` for a public path. A handler that needs [`Access`] cannot run without
/// it, so a forgotten check shows nothing.
async fn admit(shared: &Shared, head: &RequestHead, path: &str) -> Result<Option<Access>, Box<Response>> {
    let headers = &head.headers;
    let Some(login) = shared.login() else {
        return if is_local(headers) {
            Ok(Some(Access::local()))
        } else {
            Err(Box::new(misdirected("127.0.0.1, [::1] and localhost")))
        };
    };
    // These paths come before the check of the host, because the platform may call the process by its IP address.
    if is_for_platform(path) {
        return Ok(None);
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // Protects against DNS rebinding: a page of another site whose name resolves to this server must not read
    // anything.
    if !host.is_some_and(|host| host.eq_ignore_ascii_case(login.host())) {
        return Err(Box::new(misdirected(login.host())));
    }
    if is_public(path) {
        return Ok(None);
    }
    let form = Form::from_path(path);
    let known = async {
        let roles = shared.roles().await?;
        let bearer = headers.get(header::AUTHORIZATION).filter(|_| form == Form::Json);
        match bearer {
            None => login.person(headers, &roles),
            // If a request has both a token and a cookie, the token counts.
            Some(sent) => {
                let token = sent.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
                let token =
                    token.ok_or_else(|| RequestError::signed_out("`Authorization` is not `Bearer TOKEN`"))?;
                login.script(token.trim(), &roles, &head.client.0).await
            }
        }
    };
    match known.await {
        Ok(signed_in) => Ok(Some(Access {
            signed_in: Some(signed_in),
        })),
        // Only reading a page leads to the login. A form would lose its content on the way, and a script cannot
        // sign in.
        Err(error)
            if error.status == StatusCode::UNAUTHORIZED
                && form != Form::Json
                && head.method == Method::GET =>
        {
            Err(Box::new(to_login(&head.page)))
        }
        Err(error) => Err(Box::new(error.answer(form))),
    }
}

/// Responds to a request for another host.
fn misdirected(own: &str) -> Response {
    plain(
        StatusCode::MISDIRECTED_REQUEST,
        "text/plain; charset=utf-8",
        format!("this server answers for {own} only\n"),
    )
}

/// Returns true if the `Host` header names this machine.
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

/// Returns the name of a route for the metrics.
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
