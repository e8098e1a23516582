use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use axum::{body::Body as HttpBody, http::HeaderMap};
use http_body_util::BodyExt as _;
use konverge_base::model::{
    Digest, RepoPath, StackId,
    health::Health,
    plan::Action,
    review::ReviewUnit,
    rollout::RolloutPhase,
    stack_look::{HealthCounts, UnreadyObject},
    state::StackState,
    week_activity::{Week, WeekActivity},
};
use konverge_forge::{ForgeKind, RepositoryPages};
use konverge_portal::{
    AppliedState, BegunRollout, LookView, Overview, OverviewRow, Permission, PermissionSubject,
    PermissionsDocument, RolloutProgress, RolloutView, RolloutsDocument, SearchIndex, SearchNames,
    SeenDifference, SeenStack, StackCondition, StackDetails, StateDifference, Trends, WaveStanding, WaveView,
    WeekDrift, Writer,
};
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use konverge_portal::StackIndex;

/// A source with two stacks.
#[derive(Default)]
pub(super) struct TwoStacks {
    pub(super) reads: Arc<AtomicU64>,
    pub(super) fails: Arc<AtomicBool>,
    pub(super) roles: Arc<konverge_config::PortalConfig>,
}

fn id(text: &str) -> StackId {
    text.parse().unwrap()
}

fn row(stack: &str, condition: StackCondition) -> OverviewRow {
    OverviewRow {
        stack: RepoPath::normalize(&format!("apps/{stack}")).unwrap().into(),
        id: id(stack),
        conditions: vec![condition],
        applied: Some(AppliedState {
            serial: 7,
            written: "2026-11-21T10:00:00Z".parse().unwrap(),
            reason: "apply".to_owned(),
            writer: Writer {
                run: "https://ci.example/7".to_owned(),
                actor: "ada".to_owned(),
            },
            result: None,
            commit: None,
            attempted: None,
        }),
        resources: 1,
        stopped: None,
        drift: None,
        look: Some(LookView {
            checked: "2026-11-21T11:00:00Z".parse().unwrap(),
            health: Some(HealthCounts {
                ready: 1,
                ..HealthCounts::default()
            }),
        }),
        error: None,
    }
}

#[async_trait]
impl PortalSource for TwoStacks {
    async fn roles(&self) -> Result<Arc<konverge_config::PortalConfig>, UserError> {
        Ok(Arc::clone(&self.roles))
    }

    async fn index(&self) -> Result<StackIndex, UserError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(UserError::new(ErrorKind::Store, "the store is <away>"));
        }
        let stacks = vec![
            row("shop/prod", StackCondition::Failed),
            row("shop/dev", StackCondition::Applied),
        ];
        let mut search = SearchIndex::default();
        for row in &stacks {
            let names = BTreeMap::from([("v1:Service".to_owned(), vec!["shop:web".to_owned()])]);
            search.add(
                &row.id,
                SearchNames {
                    names,
                    ..SearchNames::default()
                },
            );
        }
        Ok(StackIndex {
            fingerprints: stacks
                .iter()
                .map(|row| (row.id.clone(), Digest::of_bytes(b"one")))
                .collect(),
            serials: stacks.iter().map(|row| (row.id.clone(), 7)).collect(),
            overview: Overview {
                version: 1,
                repository: "acme/infra".to_owned(),
                head: None,
                forge: RepositoryPages::parse(ForgeKind::Github, "https://github.com/acme/infra"),
                freeze: None,
                notices: Vec::new(),
                stacks,
            },
            search,
            activity: BTreeMap::from([
                (id("shop/prod"), vec![this_week(3)]),
                (id("shop/dev"), vec![this_week(4)]),
            ]),
        })
    }

    async fn stack(&self, index: &StackIndex, id: &StackId) -> Result<Option<StackDetails>, UserError> {
        Ok(index.overview.row(id).map(|row| StackDetails {
            version: 1,
            row: row.clone(),
            notices: Vec::new(),
            state: Some(StackState::empty(id.clone(), RepoPath::root())),
            pending: Vec::new(),
            seen: seen(id),
            forge: index.overview.forge.clone(),
            history: Vec::new(),
            lease: None,
        }))
    }

    async fn difference(
        &self,
        id: &StackId,
        from: u64,
        to: u64,
    ) -> Result<Option<StateDifference>, UserError> {
        let difference = StateDifference {
            version: 1,
            stack: id.clone(),
            from,
            to,
            resources: Vec::new(),
        };
        Ok((to == 7).then_some(difference))
    }

    async fn rollouts(&self) -> Result<RolloutsDocument, UserError> {
        let stacks = ["shop/prod", "shop/dev"];
        let folders = stacks.map(|stack| (id(stack), RepoPath::normalize(&format!("apps/{stack}")).unwrap()));
        let begun = BegunRollout {
            phase: RolloutPhase::Gate,
            paused: false,
            commit: "a".repeat(40).parse().unwrap(),
            wave: 1,
            waves: vec![WaveView {
                wave: 1,
                is: WaveStanding::Now,
                stacks: stacks.map(id).to_vec(),
                bake: Some("10m".to_owned()),
                gates: vec!["go".to_owned()],
            }],
            since: "2026-11-21T11:00:00Z".parse().unwrap(),
            until: None,
            why: "waits for people".to_owned(),
            overdue: false,
            gates: BTreeMap::from([("slo".to_owned(), "value is 0.002".to_owned())]),
            approve: BTreeMap::from([("go".to_owned(), None)]),
            approvers: BTreeMap::from([("go".to_owned(), vec!["acme/sre".to_owned()])]),
            unplanned: [id("shop/dev")].into(),
            held: [id("shop/prod")].into(),
            number: 4,
            writer: Writer {
                run: "https://ci.example/7".to_owned(),
                actor: "ada".to_owned(),
            },
            folders: folders.into(),
        };
        Ok(RolloutsDocument {
            version: 1,
            rollouts: vec![
                RolloutView {
                    rollout: "web".to_owned(),
                    configured: true,
                    progress: RolloutProgress::Begun(Box::new(begun)),
                },
                RolloutView {
                    rollout: "later".to_owned(),
                    configured: true,
                    progress: RolloutProgress::never_begun(),
                },
            ],
            notices: Vec::new(),
        })
    }

    async fn trends(&self, index: &StackIndex, of_all: bool) -> Result<Trends, UserError> {
        let week = this_week(0).week;
        let drift = WeekDrift {
            stacks: 2,
            oldest: 7200,
        };
        let drift = of_all.then_some((week, drift)).into_iter().collect();
        Ok(Trends::new(week, index.activity.values().flatten(), &drift))
    }

    async fn permissions(&self) -> Result<Option<PermissionsDocument>, UserError> {
        Ok(Some(PermissionsDocument {
            version: 1,
            commit: Some("c".repeat(40).parse().unwrap()),
            permissions: vec![Permission {
                subject: PermissionSubject::Approvals,
                who: vec!["acme/sre".to_owned()],
                may: "one of those named must approve".to_owned(),
                stacks: vec!["**".to_owned()],
                key: "policy.reviewers".to_owned(),
            }],
        }))
    }
}

fn this_week(applies: u32) -> WeekActivity {
    WeekActivity {
        applies,
        merged: 1,
        lead: 600,
        ..WeekActivity::none(Week::from_timestamp("2026-11-21T11:00:00Z".parse().unwrap()))
    }
}

fn seen(stack: &StackId) -> SeenStack {
    let difference = SeenDifference {
        run: "https://github.com/acme/infra/actions/runs/9".to_owned(),
        issue: Some(12),
        pull_request: None,
        head: None,
        units: vec![ReviewUnit {
            stack: stack.clone(),
            resource: "v1:ConfigMap:shop:web".parse().unwrap(),
            action: Action::Update,
            path: "/data/level".into(),
            to: Some(serde_json::json!("info")),
            from: Some(serde_json::json!("debug")),
        }],
        more: 3,
    };
    SeenStack {
        pending_differences: vec![SeenDifference {
            issue: None,
            pull_request: Some(7),
            head: Some("d".repeat(40).parse().unwrap()),
            ..difference.clone()
        }],
        drift_difference: Some(difference),
        unready: vec![UnreadyObject {
            id: "apps/v1:Deployment:shop:web".parse().unwrap(),
            cluster: None,
            health: Health::Failed,
            message: "no such image".to_owned(),
        }],
    }
}

async fn ask(router: &Router, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::builder().uri(path).header("host", "localhost:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router
        .clone()
        .oneshot(request.body(HttpBody::empty()).unwrap())
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

#[tokio::test]
async fn each_page_has_its_json_twin_and_both_are_guarded() {
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    for path in [
        "/",
        "/index.html",
        "/search.html?q=web",
        "/kinds/v1=3AService.html",
        "/by-project.html",
        "/by-drift.html",
        "/rollouts.html",
        "/trends.html",
        "/permissions.html",
        "/api/v1/rollouts",
        "/api/v1/trends",
        "/api/v1/permissions",
        "/stacks/shop@prod/index.html",
        "/stacks/shop@prod/3-7.html",
        "/stacks/shop@prod/difference.html?from=3&to=7",
        "/api/v1/overview",
        "/api/v1/search?q=web",
        "/api/v1/stacks/shop%2Fprod",
        "/api/v1/stacks/shop%2Fprod/diff?from=3&to=7",
        "/api/v1/openapi.json",
        "/portal.css",
        "/portal.js",
        "/healthz",
        "/metrics",
    ] {
        let (status, headers, body) = ask(&router, path, &[]).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert!(
            headers["content-security-policy"]
                .to_str()
                .unwrap()
                .starts_with("default-src 'none'")
        );
        if path.starts_with("/api/") {
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{path}");
        }
    }
    let (_, _, metrics) = ask(&router, "/metrics", &[]).await;
    assert!(
        metrics.contains("konverge_portal_requests_total{route=\"overview\",status=\"200\"} 4"),
        "{metrics}"
    );
}

#[tokio::test]
async fn every_document_is_as_the_openapi_document_says() {
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    for (path, schema) in [
        ("/api/v1/overview", "Overview"),
        ("/api/v1/search?q=web", "SearchResult"),
        ("/api/v1/stacks/shop%2Fprod", "Stack"),
        ("/api/v1/stacks/shop%2Fprod/diff?from=3&to=7", "Difference"),
        ("/api/v1/rollouts", "Rollouts"),
        ("/api/v1/trends", "Trends"),
        ("/api/v1/permissions", "Permissions"),
        ("/api/v1/stacks/none%2Fprod", "Failure"),
    ] {
        let (_, _, body) = ask(&router, path, &[]).await;
        let schema = serde_json::json!({
            "$ref": format!("#/components/schemas/{schema}"), "components": openapi()["components"],
        });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let document = serde_json::from_str(&body).unwrap();
        let wrong: Vec<_> = validator
            .iter_errors(&document)
            .map(|error| error.to_string())
            .collect();
        assert!(wrong.is_empty(), "{path}: {wrong:?} {body}");
    }
}

/// What the document requires of an operation, the server requires.
#[test]
fn the_openapi_document_says_what_an_operation_needs() {
    let document = openapi();
    let required = |path: &str| {
        let body = &document["paths"][path]["post"]["requestBody"];
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        let schema = document
            .pointer(schema.as_str().unwrap().trim_start_matches('#'))
            .unwrap();
        let validator = jsonschema::validator_for(schema).unwrap();
        let example = &body["content"]["application/json"]["example"];
        assert!(validator.is_valid(example), "{path}: {example}");
        (body["required"] == true, schema["required"].to_string())
    };
    for (operation, needs) in [
        ("freeze", r#"["reason"]"#),
        ("unfreeze", r#"["reason"]"#),
        ("stacks/{id}/unlock", r#"["reason","lease"]"#),
        ("stacks/{id}/approve", r#"["digest"]"#),
        ("stacks/{id}/rollback", r#"["serial"]"#),
        ("stacks/{id}/restore", "null"),
        ("stacks/{id}/retry", "null"),
        ("stacks/{id}/drift-check", "null"),
    ] {
        let found = required(&format!("/api/v1/{operation}"));
        assert_eq!(found, (needs != "null", needs.to_owned()), "{operation}");
    }
}

#[tokio::test]
async fn a_wrong_address_is_told() {
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    for (path, expected) in [
        ("/?condition=worst", StatusCode::BAD_REQUEST),
        ("/stacks/none/index.html", StatusCode::NOT_FOUND),
        ("/stacks/shop@prod/..%2Fx", StatusCode::NOT_FOUND),
        ("/stacks/shop@prod/difference.html", StatusCode::BAD_REQUEST),
        ("/kinds/none.html", StatusCode::NOT_FOUND),
        ("/api/v1/stacks/shop", StatusCode::BAD_REQUEST),
        ("/api/v1/stacks/none%2Fprod", StatusCode::NOT_FOUND),
        (
            "/api/v1/stacks/shop%2Fprod/diff?from=3&to=9",
            StatusCode::NOT_FOUND,
        ),
        (
            "/api/v1/stacks/shop%2Fprod/diff?from=x&to=9",
            StatusCode::BAD_REQUEST,
        ),
        ("/api/v1/search", StatusCode::BAD_REQUEST),
        ("/api/v1/nothing", StatusCode::NOT_FOUND),
        ("/<script>alert(1)</script>", StatusCode::NOT_FOUND),
    ] {
        let path = path.replace('<', "%3C").replace('>', "%3E");
        let (status, _, body) = ask(&router, &path, &[]).await;
        assert_eq!(status, expected, "{path}: {body}");
        assert!(!body.contains("alert(1)"), "{body}");
        if path.starts_with("/api/") {
            let document: Value = serde_json::from_str(&body).unwrap();
            assert!(document["error"]["message"].is_string(), "{body}");
        }
    }
    // What the framework refuses by itself has the form of every other error.
    for (method, path, status, form) in [
        (
            "POST",
            "/api/v1/overview",
            StatusCode::METHOD_NOT_ALLOWED,
            "application/json",
        ),
        (
            "GET",
            "/api/v1/stacks/%FF%2Fprod",
            StatusCode::BAD_REQUEST,
            "application/json",
        ),
        (
            "POST",
            "/index.html",
            StatusCode::METHOD_NOT_ALLOWED,
            "text/html; charset=utf-8",
        ),
        (
            "GET",
            "/stacks/%FF/index.html",
            StatusCode::BAD_REQUEST,
            "text/html; charset=utf-8",
        ),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(HttpBody::empty())
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.headers()["content-type"], form, "{path}");
        let allows = answer.headers().contains_key("allow");
        assert_eq!(allows, status == StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains("the server refuses this request"), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_reader_that_has_the_answer_gets_none_and_the_tag_is_the_serial() {
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    for path in [
        "/api/v1/stacks/shop%2Fprod",
        "/stacks/shop@prod/index.html",
        "/api/v1/overview",
        "/",
    ] {
        let (_, headers, _) = ask(&router, path, &[]).await;
        let tag = headers["etag"].to_str().unwrap().to_owned();
        assert_eq!(tag.starts_with("\"7-"), path.contains("shop"), "{path}: {tag}");
        let weak = format!("\"other\", W/{tag}");
        let (status, _, body) = ask(&router, path, &[("if-none-match", &weak)]).await;
        assert_eq!((status, body.as_str()), (StatusCode::NOT_MODIFIED, ""), "{path}");
        let (status, _, _) = ask(&router, path, &[("if-none-match", "\"other\"")]).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
}

/// A page comes again after the seconds that its address names, by a header: no script, and no element that takes the
/// page away from who reads it with a screen reader unasked.
#[tokio::test]
async fn a_page_comes_again_only_if_its_reader_asks_for_it() {
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    for (path, wanted) in [
        ("/?refresh=60", Some("60")),
        ("/rollouts.html?q=x&refresh=10", Some("10")),
        ("/stacks/shop@prod/index.html?refresh=3600", Some("3600")),
        ("/", None),
        ("/?refresh=9", None),
        ("/?refresh=3601", None),
        ("/?refresh=60;url=https://evil.example", None),
        ("/?refresh=", None),
        ("/none.html?refresh=60", None),
        ("/api/v1/overview?refresh=60", None),
    ] {
        let (_, headers, body) = ask(&router, path, &[]).await;
        let found = headers.get("refresh").map(|value| value.to_str().unwrap());
        assert_eq!(found, wanted, "{path}");
        assert!(!body.contains("http-equiv=\"refresh\""), "{path}");
    }
}

#[tokio::test]
async fn many_readers_cost_one_reading_of_the_index() {
    let source = TwoStacks::default();
    let reads = Arc::clone(&source.reads);
    let router = Portal::new(Box::new(source)).into_router();
    let asked = (0..50).map(|_| {
        let router = router.clone();
        tokio::spawn(async move { ask(&router, "/", &[]).await.0 })
    });
    for answer in asked.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), StatusCode::OK);
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_store_that_is_away_is_told() {
    let source = TwoStacks::default();
    source.fails.store(true, Ordering::SeqCst);
    let router = Portal::new(Box::new(source)).into_router();
    let (status, _, body) = ask(&router, "/", &[]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("the store is &lt;away&gt;"), "{body}");
    let (status, _, body) = ask(&router, "/api/v1/overview", &[]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["error"]["kind"],
        "store"
    );
    assert_eq!(ask(&router, "/healthz", &[]).await.0, StatusCode::OK);
}

/// A page of another site may bind its name to this address, and its script may then ask.
#[tokio::test]
async fn a_name_of_elsewhere_reads_nothing() {
    for (host, is_local) in [
        ("localhost", true),
        ("LOCALHOST:80", true),
        ("127.0.0.1:8080", true),
        ("127.1.2.3", true),
        ("[::1]:8080", true),
        ("evil.example:8080", false),
        ("localhost.evil.example", false),
        ("10.0.0.1", false),
        ("[2001:db8::1]", false),
        ("", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("host", host.parse().unwrap());
        assert_eq!(crate::guard::is_local(&headers), is_local, "{host}");
    }
    assert!(!crate::guard::is_local(&HeaderMap::new()));
    let router = Portal::new(Box::new(TwoStacks::default())).into_router();
    let request = Request::get("/api/v1/overview")
        .header("host", "evil.example")
        .body(HttpBody::empty())
        .unwrap();
    let answer = router.oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("acme"));
}
