//! Who may see and ask for what, by sessions that this test seals itself.

use std::sync::Mutex;

use async_trait::async_trait;
use axum::{
    body::Body as HttpBody,
    http::{HeaderMap, Method},
};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use konverge_base::model::StackId;
use konverge_config::{Config, PortalConfig};
use konverge_portal::{AuditDocument, OperationAnswer, PortalOperation, PortalPerson};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{tests::TwoStacks, *};
use crate::{
    actions::{PortalRequest, UnlockResult},
    operations::carry_out,
    session::{CookieSealer, PersonSession},
};

const KEY: &str = "0123456789abcdef0123456789abcdef";

const CONFIG: &str = "
portal:
  login: {issuer: 'https://id.example', client_id: portal, url: 'https://portal.example'}
  workflow: 'https://github.com/acme/infra/actions/workflows/konverge.yml'
  roles:
  - {groups: [sre], role: operator, match: '**'}
  - {groups: [shop], role: viewer, match: 'apps/shop/prod'}
  - {groups: [dev], role: operator, match: 'apps/shop/dev'}
";

#[derive(Clone, Default)]
struct Recorded {
    requests: Arc<Mutex<Vec<PortalRequest>>>,
    writes: Arc<Mutex<Vec<String>>>,
    fails: bool,
}

#[async_trait]
impl PortalActions for Recorded {
    async fn record(&self, request: &PortalRequest) -> Result<String, UserError> {
        if self.fails {
            return Err(UserError::new(ErrorKind::Store, "the store is away"));
        }
        self.requests.lock().unwrap().push(request.clone());
        Ok("entry".to_owned())
    }

    async fn record_outcome(&self, _: &str, error: Option<&str>) -> Result<(), UserError> {
        self.writes
            .lock()
            .unwrap()
            .push(format!("outcome {}", error.unwrap_or("done")));
        Ok(())
    }

    async fn unlock(
        &self,
        by: &PortalPerson,
        stack: &StackId,
        lease: &str,
        reason: &str,
    ) -> Result<UnlockResult, UserError> {
        if lease != "1-a" {
            return Ok(UnlockResult::OtherLease("another lease".to_owned()));
        }
        let write = format!("unlock {stack} {lease} {reason} {}", by.subject);
        self.writes.lock().unwrap().push(write);
        Ok(UnlockResult::Ended)
    }

    async fn freeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError> {
        self.writes
            .lock()
            .unwrap()
            .push(format!("freeze {reason} {}", by.subject));
        Ok(())
    }

    async fn unfreeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError> {
        self.writes
            .lock()
            .unwrap()
            .push(format!("unfreeze {reason} {}", by.subject));
        Ok(())
    }

    async fn audit(&self, _: usize) -> Result<AuditDocument, UserError> {
        Ok(AuditDocument {
            version: 1,
            entries: Vec::new(),
            notices: Vec::new(),
        })
    }
}

struct Visited {
    router: Router,
    recorded: Recorded,
}

impl Visited {
    fn new(recorded: Recorded) -> Self {
        let config: PortalConfig = Config::parse(CONFIG).unwrap().portal;
        let settings = LoginSettings {
            login: config.login.clone().unwrap(),
            client_secret: None,
            cookie_key: Some(KEY.to_owned()),
            trusted_proxies: config.trusted_proxies.clone(),
        };
        let source = TwoStacks {
            roles: Arc::new(config),
            ..TwoStacks::default()
        };
        let portal = Portal::with_login(Box::new(source), Box::new(recorded.clone()), settings).unwrap();
        Self {
            router: portal.into_router(),
            recorded,
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "portal.example");
        }
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/x-www-form-urlencoded");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self
            .router
            .clone()
            .oneshot(request.body(HttpBody::from(body.to_owned())).unwrap())
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (
            parts.status,
            parts.headers,
            String::from_utf8(bytes.to_vec()).unwrap(),
        )
    }

    async fn get(&self, path: &str, cookie: &str) -> (StatusCode, HeaderMap, String) {
        self.send(Method::GET, path, &[("cookie", cookie)], "").await
    }

    async fn post(&self, path: &str, person: &(String, String), rest: &str) -> (StatusCode, String) {
        let body = format!("csrf={}&{rest}", person.1);
        let (status, _, text) = self
            .send(Method::POST, path, &[("cookie", &person.0)], &body)
            .await;
        (status, text)
    }
}

/// The cookie of a person, and the token of the forms.
fn person(groups: &[&str]) -> (String, String) {
    let person = PortalPerson {
        issuer: "https://id.example".to_owned(),
        subject: "42".to_owned(),
        name: "<i>Ada".to_owned(),
    };
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let session = PersonSession::begin(person, groups, Timestamp::now());
    let sealer = CookieSealer::new(Some(KEY), true).unwrap();
    let header = sealer.session(&session).unwrap();
    let cookie = header.to_str().unwrap().split(';').next().unwrap().to_owned();
    (cookie, session.csrf)
}

#[tokio::test]
async fn nobody_sees_anything_without_a_session() {
    let visited = Visited::new(Recorded::default());
    for path in [
        "/",
        "/index.html",
        "/search.html?q=web",
        "/audit.html",
        "/audit.csv",
        "/by-project.html",
        "/rollouts.html",
        "/trends.html",
        "/permissions.html",
        "/freeze.html",
        "/account.html",
        "/kinds/v1=3AService.html",
        "/stacks/shop@prod/index.html",
        "/stacks/shop@prod/operations.html",
        "/nothing",
    ] {
        for cookie in [
            "",
            "__Host-konverge-session=",
            "konverge-session=x",
            "__Host-konverge-session=AAAA",
        ] {
            let (status, headers, body) = visited.get(path, cookie).await;
            assert_eq!(status, StatusCode::SEE_OTHER, "{path}");
            assert!(
                headers["location"].to_str().unwrap().starts_with("/login?to=%2F"),
                "{headers:?}"
            );
            assert!(!body.contains("shop"), "{body}");
        }
    }
    for path in [
        "/api/v1/overview",
        "/api/v1/search?q=web",
        "/api/v1/audit",
        "/api/v1/rollouts",
        "/api/v1/trends",
        "/api/v1/permissions",
        "/api/v1/stacks/shop%2Fprod",
        "/api/v1/nothing",
    ] {
        let (status, headers, body) = visited.get(path, "").await;
        assert_eq!(
            (status, &headers["www-authenticate"]),
            (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap())
        );
        assert!(
            serde_json::from_str::<Value>(&body).is_ok() && !body.contains("acme"),
            "{body}"
        );
    }
    for path in [
        "/freeze",
        "/logout",
        "/stacks/shop@prod/operations/unlock",
        "/api/v1/freeze",
    ] {
        let (status, ..) = visited.send(Method::POST, path, &[], "reason=x&csrf=x").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let (status, _, metrics) = visited
        .send(Method::GET, "/metrics", &[("host", "10.0.0.7:8080")], "")
        .await;
    assert!(
        status == StatusCode::OK && !metrics.contains("portal_stacks"),
        "{metrics}"
    );
    assert!(visited.recorded.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn somebody_without_a_role_or_of_another_host_sees_nothing() {
    let visited = Visited::new(Recorded::default());
    let (status, _, body) = visited.get("/", &person(&["strangers"]).0).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(body.contains("&lt;i&gt;Ada") && !body.contains("shop/"), "{body}");
    let sre = person(&["sre"]);
    // With `no-referrer` a browser would send its own forms with the origin `null`.
    let (_, headers, page) = visited.get("/freeze.html", &sre.0).await;
    assert_eq!(headers["referrer-policy"], "same-origin");
    assert!(
        page.contains("name=\"referrer\" content=\"same-origin\""),
        "{page}"
    );
    for host in [
        "evil.example",
        "portal.example.evil.example",
        "portal.example:1",
        "localhost",
    ] {
        let (status, _, body) = visited
            .send(Method::GET, "/", &[("host", host), ("cookie", &sre.0)], "")
            .await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        assert!(!body.contains("shop"));
    }
}

#[tokio::test]
async fn a_viewer_sees_some_stacks_and_nothing_of_the_others() {
    let visited = Visited::new(Recorded::default());
    let viewer = person(&["shop"]).0;
    for path in [
        "/",
        "/api/v1/overview",
        "/search.html?q=web",
        "/api/v1/search?q=web",
        "/kinds/v1=3AService.html",
        "/by-project.html",
        "/by-drift.html",
        "/rollouts.html",
        "/api/v1/rollouts",
    ] {
        let (status, _, body) = visited.get(path, &viewer).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(
            body.contains("shop/prod") && !body.contains("shop/dev") && !body.contains("shop@dev"),
            "{path}: {body}"
        );
    }
    let (_, _, overview) = visited.get("/", &viewer).await;
    assert!(
        overview.contains("1 stack ") && !overview.contains("2 stacks"),
        "{overview}"
    );
    for path in [
        "/stacks/shop@dev/index.html",
        "/stacks/shop@dev/3-7.html",
        "/stacks/shop@dev/operations.html",
        "/stacks/shop@dev/difference.html?from=3&to=7",
        "/api/v1/stacks/shop%2Fdev",
        "/api/v1/stacks/shop%2Fdev/diff?from=3&to=7",
    ] {
        let (status, _, body) = visited.get(path, &viewer).await;
        let (unknown, _, text) = visited.get(&path.replace("dev", "none"), &viewer).await;
        assert_eq!(
            (status, unknown),
            (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
            "{path}"
        );
        assert_eq!(body, text, "a hidden stack answers as one that does not exist");
    }
    // Reasons, gates and approvals of a rollout speak of all its stacks, and so do numbers of all together.
    let (_, _, rollouts) = visited.get("/api/v1/rollouts", &viewer).await;
    for word in ["waits for people", "0.002", "acme/sre", "\"later\""] {
        assert!(!rollouts.contains(word), "{word}: {rollouts}");
    }
    let (_, _, trends) = visited.get("/api/v1/trends", &viewer).await;
    assert!(
        trends.contains("\"applies\":3") && !trends.contains("drifted"),
        "{trends}"
    );
    for path in ["/permissions.html", "/api/v1/permissions"] {
        let (status, _, body) = visited.get(path, &viewer).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(
            !body.contains("acme/sre") && body.contains("every stack"),
            "{body}"
        );
    }
    let all = person(&["sre"]).0;
    for (path, words) in [
        ("/api/v1/rollouts", "waits for people"),
        ("/api/v1/trends", "\"applies\":7"),
        ("/api/v1/trends", "\"drifted\":2"),
        ("/api/v1/permissions", "acme/sre"),
        ("/audit.csv", "\"id\",\"time\""),
    ] {
        let (status, headers, body) = visited.get(path, &all).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        assert!(body.contains(words), "{path}: {words}: {body}");
        let is_file = headers["content-type"] == "text/csv; charset=utf-8";
        assert_eq!(is_file, path == "/audit.csv", "{path}");
    }
    // What somebody who sees all of it read before is not shown.
    let sre = person(&["sre"]).0;
    for (cookie, sees) in [(&sre, true), (&viewer, false), (&sre, true)] {
        let (_, _, body) = visited.get("/", cookie).await;
        assert_eq!(body.contains("shop/dev"), sees);
        let (status, ..) = visited.get("/stacks/shop@dev/index.html", cookie).await;
        assert_eq!(status == StatusCode::OK, sees);
    }
}

#[tokio::test]
async fn each_operation_needs_its_role_and_is_recorded() {
    let visited = Visited::new(Recorded::default());
    let (sre, shop, dev) = (person(&["sre"]), person(&["shop"]), person(&["dev"]));
    for (operation, rest) in [
        ("drift-check", ""),
        ("approve", "digest=0123456789ab"),
        ("rollback", "serial=3"),
        ("unlock", "lease=1-a&reason=dead"),
    ] {
        let on = |stack: &str| format!("/stacks/shop@{stack}/operations/{operation}");
        assert_eq!(
            visited.post(&on("prod"), &shop, rest).await.0,
            StatusCode::FORBIDDEN,
            "{operation}"
        );
        assert_eq!(
            visited.post(&on("prod"), &dev, rest).await.0,
            StatusCode::NOT_FOUND,
            "{operation}"
        );
        let before = visited.recorded.requests.lock().unwrap().len();
        let (status, body) = visited.post(&on("prod"), &sre, rest).await;
        assert!(status.is_success(), "{operation}: {body}");
        assert_eq!(status == StatusCode::ACCEPTED, operation != "unlock");
        assert_eq!(
            body.contains("https://github.com/acme/infra"),
            operation != "unlock",
            "{body}"
        );
        assert!(
            visited.post(&on("dev"), &dev, rest).await.0.is_success(),
            "{operation}"
        );
        let requests = visited.recorded.requests.lock().unwrap();
        assert_eq!(requests.len(), before + 2);
        assert_eq!(
            (
                requests[before].operation.key(),
                requests[before].person.subject.as_str()
            ),
            (operation, "42")
        );
    }
    for (path, expected) in [("/freeze", "freeze r 42"), ("/unfreeze", "unfreeze r 42")] {
        for nobody in [&shop, &dev] {
            assert_eq!(
                visited.post(path, nobody, "reason=r").await.0,
                StatusCode::FORBIDDEN
            );
        }
        assert_eq!(
            visited.post(path, &sre, "reason=+").await.0,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(visited.post(path, &sre, "reason=r").await.0, StatusCode::OK);
        let writes = visited.recorded.writes.lock().unwrap();
        assert_eq!(
            writes[writes.len() - 2..],
            [expected.to_owned(), "outcome done".to_owned()]
        );
    }
    for (path, rest, status) in [
        (
            "/stacks/shop@prod/operations/unlock",
            "lease=2-b&reason=x",
            StatusCode::CONFLICT,
        ),
        (
            "/stacks/shop@prod/operations/unlock",
            "lease=1-a",
            StatusCode::BAD_REQUEST,
        ),
        (
            "/stacks/shop@prod/operations/approve",
            "digest=%24(id)",
            StatusCode::CONFLICT,
        ),
        (
            "/stacks/shop@prod/operations/rollback",
            "serial=x",
            StatusCode::BAD_REQUEST,
        ),
        ("/stacks/shop@prod/operations/restore", "", StatusCode::CONFLICT),
        ("/stacks/shop@prod/operations/apply", "", StatusCode::NOT_FOUND),
        ("/stacks/none/operations/retry", "", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(visited.post(path, &sre, rest).await.0, status, "{path} {rest}");
    }
}

#[tokio::test]
async fn a_request_of_another_site_does_nothing() {
    let visited = Visited::new(Recorded::default());
    let (cookie, csrf) = person(&["sre"]);
    let other = person(&["sre"]).1;
    let good = format!("csrf={csrf}&reason=r");
    for (headers, body) in [
        (vec![], "reason=r".to_owned()),
        (vec![], "csrf=&reason=r".to_owned()),
        (vec![], format!("csrf={other}&reason=r")),
        (vec![("origin", "https://evil.example")], good.clone()),
        (vec![("origin", "null")], good.clone()),
        (vec![("sec-fetch-site", "cross-site")], good.clone()),
        (vec![("sec-fetch-site", "same-site")], good.clone()),
    ] {
        let headers: Vec<_> = headers.into_iter().chain([("cookie", cookie.as_str())]).collect();
        for path in ["/freeze", "/logout", "/stacks/shop@prod/operations/drift-check"] {
            let (status, headers, _) = visited.send(Method::POST, path, &headers, &body).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {body}");
            assert!(!headers.contains_key("set-cookie"));
        }
    }
    // A JSON call with the cookie of a browser.
    for path in ["/api/v1/freeze", "/api/v1/stacks/shop%2Fprod/drift-check"] {
        let headers = [("cookie", cookie.as_str()), ("content-type", "application/json")];
        let (status, ..) = visited
            .send(Method::POST, path, &headers, "{\"reason\":\"r\"}")
            .await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    // What was sent as a token counts, and not the cookie beside it.
    for token in [
        "Basic YTpi",
        "Bearer ",
        "Bearer a.b.c",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
    ] {
        let headers = [("cookie", cookie.as_str()), ("authorization", token)];
        let (status, ..) = visited.send(Method::GET, "/api/v1/overview", &headers, "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{token}");
    }
    assert!(
        visited.recorded.requests.lock().unwrap().is_empty()
            && visited.recorded.writes.lock().unwrap().is_empty()
    );
    let headers = [
        ("cookie", cookie.as_str()),
        ("origin", "https://portal.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(
        visited.send(Method::POST, "/freeze", &headers, &good).await.0,
        StatusCode::OK
    );
    let (status, headers, _) = visited.send(Method::POST, "/logout", &headers, &good).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"),
        "{headers:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done_and_too_much_is_refused() {
    let away = Visited::new(Recorded {
        fails: true,
        ..Recorded::default()
    });
    let sre = person(&["sre"]);
    let (status, body) = away.post("/freeze", &sre, "reason=r").await;
    assert!(
        status == StatusCode::SERVICE_UNAVAILABLE && body.contains("the store is away"),
        "{body}"
    );
    assert!(away.recorded.writes.lock().unwrap().is_empty());
    let visited = Visited::new(Recorded::default());
    let mut last = StatusCode::OK;
    for _ in 0..25 {
        last = visited
            .post("/stacks/shop@prod/operations/drift-check", &sre, "")
            .await
            .0;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    assert!(visited.recorded.requests.lock().unwrap().len() < 25);
    let long = format!("reason={}", "x".repeat(20_000));
    assert_eq!(
        visited.post("/freeze", &sre, &long).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let long = format!("reason={}", "x".repeat(501));
    assert_eq!(
        visited.post("/freeze", &sre, &long).await.0,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn an_answer_of_the_provider_needs_the_sign_in_of_this_browser() {
    let visited = Visited::new(Recorded::default());
    let sre = person(&["sre"]).0;
    for path in [
        "/login/callback",
        "/login/callback?state=x&code=y",
        "/login/callback?state=&code=y",
        "/login/callback?error=access_denied",
    ] {
        for cookie in ["", sre.as_str(), "__Host-konverge-sign-in=AAAA"] {
            let (status, headers, body) = visited.get(path, cookie).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
            assert!(
                !headers["set-cookie"].to_str().unwrap().contains("session"),
                "{headers:?}"
            );
        }
    }
}

#[test]
fn an_answer_has_the_next_step_beside_its_other_keys() {
    let answer = OperationAnswer {
        version: 1,
        operation: PortalOperation::DriftCheck,
        stack: None,
        audit: "x".to_owned(),
        outcome: konverge_portal::RequestOutcome::Done,
        next: None,
    };
    let text = serde_json::to_string(&answer).unwrap();
    assert_eq!(
        text,
        r#"{"version":1,"operation":"drift-check","audit":"x","outcome":"done"}"#
    );
}

#[tokio::test]
async fn an_operation_that_the_portal_does_not_do_itself_lifts_no_freeze_and_ends_no_lease() {
    let stack: StackId = "shop/prod".parse().unwrap();
    for operation in PortalOperation::OF_A_STACK {
        for stack in [None, Some(stack.clone())] {
            if (operation, stack.is_some()) == (PortalOperation::Unlock, true) {
                continue;
            }
            let request = PortalRequest {
                operation,
                stack,
                folder: None,
                input: konverge_portal::OperationInput {
                    lease: Some("1-a".to_owned()),
                    ..Default::default()
                },
                person: PortalPerson {
                    issuer: "https://id.example".to_owned(),
                    subject: "42".to_owned(),
                    name: "Ada".to_owned(),
                },
                address: String::new(),
                forwarded_for: None,
            };
            let recorded = Recorded::default();
            assert!(
                carry_out(&recorded, &request).await.is_err(),
                "{}",
                operation.key()
            );
            assert_eq!(*recorded.writes.lock().unwrap(), [""; 0]);
        }
    }
}
