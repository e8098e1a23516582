//! The login of `konverge serve`, with a real OpenID provider: each operation as each role, and what must be refused.

use konverge_base::model::{StackId, apply_result::StackResult};
use konverge_state::LeaseOptions;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    recorded::{RecordedStacks, config_map},
    visitor::{KEY, Served, Visitor, csrf},
};
use crate::support::openid::OpenIdProvider;

const ROLES: &str = "  roles:
  - {groups: [sre], role: operator, match: '**'}
  - {groups: [shop], role: viewer, match: 'apps/shop/*'}
";

async fn two_stacks() -> RecordedStacks {
    let recorded = RecordedStacks::new().await;
    for (stack, name) in [("shop/prod", "web"), ("bank/prod", "vault")] {
        for level in ["1", "2"] {
            let resources = vec![config_map(name, &json!({"level": level}))];
            recorded.apply(stack, resources, StackResult::Applied).await;
        }
    }
    recorded
}

#[tokio::test(flavor = "multi_thread")]
async fn each_person_sees_and_does_what_the_role_says_and_the_audit_has_it() {
    let recorded = two_stacks().await;
    let provider = OpenIdProvider::start();
    Served::configure(&recorded, &provider, ROLES);
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let root = served.root.clone();

    let (mut ada, mut grace, mut eve) = (Visitor::new(), Visitor::new(), Visitor::new());
    let overview = ada.sign_in(&format!("{root}/index.html?q=prod"), "ada").await;
    assert_eq!(overview.status, StatusCode::OK);
    assert!(
        overview.text.contains("shop/prod") && overview.text.contains("bank/prod"),
        "{}",
        overview.text
    );
    let account = ada.get(&format!("{root}/account.html")).await.text;
    assert!(
        account.contains("Ada &lt;b&gt;Lovelace") && account.contains("operator"),
        "{account}"
    );

    let some = grace.sign_in(&root, "grace").await;
    assert!(
        some.text.contains("shop/prod") && !some.text.contains("bank"),
        "{}",
        some.text
    );
    for path in [
        "/api/v1/overview",
        "/api/v1/search?q=configmap",
        "/search.html?q=configmap",
        "/audit.html",
    ] {
        let seen = grace.get(&format!("{root}{path}")).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        assert!(
            !seen.text.contains("bank") && !seen.text.contains("vault"),
            "{path}: {}",
            seen.text
        );
    }
    for path in [
        "/stacks/bank@prod/index.html",
        "/stacks/bank@prod/1-2.html",
        "/api/v1/stacks/bank%2Fprod",
    ] {
        assert_eq!(
            grace.get(&format!("{root}{path}")).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    let nothing = eve.sign_in(&root, "eve").await;
    assert_eq!(nothing.status, StatusCode::FORBIDDEN);
    assert!(!nothing.text.contains("shop/"), "{}", nothing.text);

    let held: StackId = "shop/prod".parse().unwrap();
    let lease = recorded
        .states()
        .acquire(&held, LeaseOptions::default())
        .await
        .unwrap();
    let tokens = [
        csrf(&ada.get(&format!("{root}/account.html")).await.text),
        csrf(&grace.get(&format!("{root}/account.html")).await.text),
    ];
    let unlock = format!("lease={}&reason=it+is+dead", lease.id());
    for (operation, rest, expected) in [
        ("drift-check", "", StatusCode::ACCEPTED),
        ("restore", "", StatusCode::CONFLICT),
        ("approve", "digest=0123456789ab", StatusCode::ACCEPTED),
        ("rollback", "serial=1", StatusCode::ACCEPTED),
        ("retry", "", StatusCode::ACCEPTED),
        ("unlock", unlock.as_str(), StatusCode::OK),
    ] {
        let address = format!("{root}/stacks/shop@prod/operations/{operation}");
        let body = |token: &str| Some(format!("csrf={token}&{rest}"));
        let refused = grace.send(Method::POST, &address, &[], body(&tokens[1])).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{operation}");
        let done = ada
            .send(
                Method::POST,
                &address,
                &[("x-forwarded-for", "203.0.113.9")],
                body(&tokens[0]),
            )
            .await;
        assert_eq!(done.status, expected, "{operation}: {}", done.text);
    }
    assert!(recorded.states().holder(&held).await.unwrap().is_none());
    for (operation, is_frozen) in [("freeze", true), ("unfreeze", false)] {
        let address = format!("{root}/{operation}");
        let body = |token: &str| Some(format!("csrf={token}&reason=the+move"));
        let refused = grace.send(Method::POST, &address, &[], body(&tokens[1])).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        let done = ada.send(Method::POST, &address, &[], body(&tokens[0])).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.text);
        let freeze = recorded.states().freeze().await.unwrap();
        assert_eq!(freeze.is_some(), is_frozen);
        if let Some(freeze) = freeze {
            assert_eq!(freeze.reasons[0].reason, "the move");
            assert!(
                freeze.reasons[0].writer.to_string().contains("the portal (Ada"),
                "{}",
                freeze.reasons[0].writer
            );
            let shown = grace.get(&root).await.text;
            assert!(
                shown.contains("Applies are frozen") && shown.contains("the move"),
                "{shown}"
            );
        }
    }
    let audit: Value = serde_json::from_str(&ada.get(&format!("{root}/api/v1/audit")).await.text).unwrap();
    let entries = audit["entries"].as_array().unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            assert_eq!(
                (&entry["person"]["subject"], &entry["address"]),
                (&json!("ada"), &json!("127.0.0.1"))
            );
            format!(
                "{} {}",
                entry["operation"].as_str().unwrap(),
                entry["outcome"].as_str().unwrap()
            )
        })
        .collect();
    let expected = [
        "unfreeze done",
        "freeze done",
        "unlock done",
        "retry asked",
        "rollback asked",
        "approve asked",
        "drift-check asked",
    ];
    assert_eq!(told, expected);
    assert_eq!(entries[2]["forwardedFor"], "203.0.113.9");
    let page = ada.get(&format!("{root}/audit.html")).await.text;
    assert!(
        page.contains("it is dead") && page.contains("Ada &lt;b&gt;"),
        "{page}"
    );
    let file = ada.get(&format!("{root}/audit.csv")).await.text;
    let rows: Vec<_> = file.split_terminator("\r\n").collect();
    assert_eq!(rows.len(), 1 + expected.len(), "{file}");
    assert!(
        rows[3].contains("\"unlock\"") && rows[3].contains("\"it is dead\""),
        "{file}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_replayed_foreign_or_forged_signs_nobody_in() {
    let recorded = two_stacks().await;
    let mut provider = OpenIdProvider::start();
    Served::configure(&recorded, &provider, ROLES);
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let root = served.root.clone();

    let mut ada = Visitor::new();
    let back = ada.way_back(&root, "ada").await;
    // Of another browser, and with another state.
    let stolen = Visitor::new().get(&back).await;
    assert_eq!(stolen.status, StatusCode::BAD_REQUEST, "{}", stolen.text);
    let cookies = ada.cookies.clone();
    let other = back.replace("state=", "state=x");
    assert_eq!(ada.get(&other).await.status, StatusCode::BAD_REQUEST);
    ada.cookies.clone_from(&cookies);
    let foreign = back.replace(
        &provider.issuer().replace(':', "%3A").replace('/', "%2F"),
        "https%3A%2F%2Fevil.example",
    );
    assert_ne!(foreign, back);
    assert_eq!(ada.get(&foreign).await.status, StatusCode::BAD_REQUEST);
    ada.cookies.clone_from(&cookies);
    let first = ada.get(&back).await;
    assert_eq!(
        first.location.as_deref(),
        Some(format!("{root}/").as_str()),
        "{}",
        first.text
    );
    // Replayed: by the same browser, and with the cookie of the sign-in, which was copied.
    assert_eq!(ada.get(&back).await.status, StatusCode::BAD_REQUEST);
    let mut copied = Visitor::new();
    copied.cookies.clone_from(&cookies);
    let replayed = copied.get(&back).await;
    assert_eq!(
        replayed.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        replayed.text
    );
    assert!(
        !copied
            .cookies
            .keys()
            .any(|(_, name)| name.contains("konverge-session"))
    );
    assert_eq!(copied.get(&root).await.status, StatusCode::SEE_OTHER);

    // A name of elsewhere, and a way out.
    let hosted = ada
        .send(Method::GET, &root, &[("host", "evil.example")], None)
        .await;
    assert_eq!(hosted.status, StatusCode::MISDIRECTED_REQUEST);
    let mut led = Visitor::new();
    let back = led
        .way_back(&format!("{root}/login?to=https%3A%2F%2Fevil.example"), "ada")
        .await;
    assert_eq!(
        led.get(&back).await.location.as_deref(),
        Some(format!("{root}/").as_str())
    );

    // Another replica knows the session by the key, and one of another key does not.
    let session = |port: &str, ada: &Visitor| {
        let mut visitor = Visitor::new();
        for ((_, name), value) in &ada.cookies {
            visitor
                .cookies
                .insert((port.to_owned(), name.clone()), value.clone());
        }
        visitor
    };
    let host = provider.portal();
    for (key, status) in [(Some(KEY), StatusCode::OK), (None, StatusCode::SEE_OTHER)] {
        let replica = Served::start(&recorded, &provider.replica(), key);
        let mut visitor = session(&provider.replica(), &ada);
        let seen = visitor
            .send(Method::GET, &replica.root, &[("host", &host)], None)
            .await;
        assert_eq!(seen.status, status);
    }

    // The provider is away: who is signed in sees everything, and nobody else signs in.
    let fresh = Served::start(&recorded, &provider.replica(), Some(KEY));
    provider.stop();
    let away = Visitor::new()
        .send(
            Method::GET,
            &format!("{}/login", fresh.root),
            &[("host", &host)],
            None,
        )
        .await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        away.text.contains("the login provider does not answer"),
        "{}",
        away.text
    );
    assert_eq!(ada.get(&root).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_known_by_its_token_alone() {
    let recorded = two_stacks().await;
    let provider = OpenIdProvider::start();
    let issuer = provider.issuer();
    let workloads = format!(
        "{ROLES}  workloads:\n  - {{issuer: '{issuer}', audience: scripts, subjects: ['repo:acme/infra:ref:refs/heads/main'], role: viewer, match: 'apps/shop/*'}}\n  \
         - {{issuer: '{issuer}', audience: scripts, subjects: [operator], role: operator, match: '**'}}\n"
    );
    Served::configure(&recorded, &provider, &workloads);
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let root = &served.root;
    let client = reqwest::Client::new();
    let sign = async |query: &str| {
        client
            .get(format!("{issuer}/sign?{query}"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    let send = async |method: Method, path: &str, token: &str| {
        let request = client.request(method, format!("{root}{path}")).bearer_auth(token);
        let answer = request.json(&json!({"reason": "a script"})).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let main = "sub=repo:acme/infra:ref:refs/heads/main&aud=scripts";
    let good = sign(main).await;
    for token in [&good, &sign(&format!("{main}&nbf=-1")).await] {
        let (status, _) = send(Method::GET, "/api/v1/overview", token).await;
        assert_eq!(status, StatusCode::OK);
    }
    let (status, text) = send(Method::GET, "/api/v1/overview", &good).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains("shop/prod") && !text.contains("bank"), "{text}");
    for query in [
        "sub=repo:acme/infra:ref:refs/heads/main&aud=portal".to_owned(),
        "sub=repo:acme/infra:ref:refs/heads/main&aud=other".to_owned(),
        format!("{main}&iss=https://evil.example"),
        format!("{main}&alg=none"),
        format!("{main}&alg=HS256"),
        format!("{main}&key=other"),
        format!("{main}&seconds=-60"),
        format!("{main}&seconds=200000"),
        format!("{main}&issued=200"),
        format!("{main}&nbf=200"),
    ] {
        let token = sign(&query).await;
        let (status, text) = send(Method::GET, "/api/v1/overview", &token).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{query}: {text}");
        assert!(!text.contains("shop"), "{text}");
    }
    let altered = format!("{}x", good);
    assert_eq!(
        send(Method::GET, "/api/v1/overview", &altered).await.0,
        StatusCode::UNAUTHORIZED
    );
    let stranger = sign("sub=repo:evil/infra:ref:refs/heads/main&aud=scripts").await;
    assert_eq!(
        send(Method::GET, "/api/v1/overview", &stranger).await.0,
        StatusCode::FORBIDDEN
    );
    // A token opens no page, and a viewer asks for nothing.
    let page = client.get(root).bearer_auth(&good).send().await.unwrap();
    assert!(!page.text().await.unwrap().contains("shop/prod"));
    assert_eq!(
        send(Method::POST, "/api/v1/stacks/shop%2Fprod/drift-check", &good)
            .await
            .0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        send(Method::POST, "/api/v1/freeze", &good).await.0,
        StatusCode::FORBIDDEN
    );
    let operator = sign("sub=operator&aud=scripts").await;
    let (status, text) = send(Method::POST, "/api/v1/stacks/bank%2Fprod/drift-check", &operator).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        answer["address"],
        "https://github.com/acme/infra/actions/workflows/konverge.yml"
    );
    assert_eq!(
        answer["command"],
        "gh workflow run konverge.yml --repo github.com/acme/infra"
    );
    assert_eq!(
        send(Method::POST, "/api/v1/freeze", &operator).await.0,
        StatusCode::OK
    );
    assert_eq!(
        recorded.states().freeze().await.unwrap().unwrap().reasons[0].reason,
        "a script"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_those_of_the_default_branch_as_it_is_now() {
    let recorded = two_stacks().await;
    let provider = OpenIdProvider::start();
    Served::configure(&recorded, &provider, ROLES);
    let text = std::fs::read_to_string(recorded.repository.path().join("konverge.yaml")).unwrap();
    // The checkout grants everything to everybody; nobody reviewed that.
    recorded.repository.git(["checkout", "-q", "-b", "topic"]);
    let open = text
        .replace("groups: [shop]", "groups: [shop, strangers]")
        .replace("'apps/shop/*'", "'**'");
    recorded.repository.write("konverge.yaml", &open);
    recorded.repository.commit("roles for everybody");
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let (mut grace, mut eve) = (Visitor::new(), Visitor::new());
    let seen = grace.sign_in(&served.root, "grace").await;
    assert!(
        seen.text.contains("shop/prod") && !seen.text.contains("bank"),
        "{}",
        seen.text
    );
    assert_eq!(
        eve.sign_in(&served.root, "eve").await.status,
        StatusCode::FORBIDDEN
    );
    // A role that the default branch takes away is gone, also for who is signed in.
    recorded.repository.git(["checkout", "-q", "main"]);
    recorded.repository.write(
        "konverge.yaml",
        text.replace("groups: [shop]", "groups: [nobody]"),
    );
    recorded.repository.commit("no role for the shop");
    let started = std::time::Instant::now();
    while grace.get(&served.root).await.status != StatusCode::FORBIDDEN {
        assert!(started.elapsed().as_secs() < 60, "the role stays");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // A file that cannot be read grants nothing.
    recorded.repository.write("konverge.yaml", "portal: [");
    recorded.repository.commit("a mistake");
    let started = std::time::Instant::now();
    while grace.get(&served.root).await.status != StatusCode::SERVICE_UNAVAILABLE {
        assert!(started.elapsed().as_secs() < 60, "the roles stay");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_login_only_this_machine_is_listened_on() {
    let recorded = two_stacks().await;
    for arguments in [
        ["serve", "--listen", "0.0.0.0:0"],
        ["serve", "--listen", "[::]:0"],
    ] {
        let outcome = recorded.konverge(&arguments).run().expect(64);
        assert!(outcome.stderr.contains("there is no login"), "{}", outcome.stderr);
    }
    let provider = OpenIdProvider::start();
    Served::configure(&recorded, &provider, ROLES);
    let short = recorded
        .konverge(&["serve", "--listen", "127.0.0.1:0"])
        .env("KONVERGE_PORTAL_KEY", "short");
    let outcome = short.run().expect(1);
    assert!(
        outcome.stderr.contains("fewer than 32 characters"),
        "{}",
        outcome.stderr
    );
}
