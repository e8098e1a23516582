//! What a person asks for in the portal, and does at GitHub: the audit of the portal and the apply record agree, and
//! the record names GitHub's actor.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::visitor::{KEY, Served, Visitor, csrf};
use crate::support::{ci_stage::Stage, openid::OpenIdProvider, s3::S3};

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_and_the_apply_record_agree() {
    let provider = OpenIdProvider::start();
    let portal = format!(
        "portal:\n  login: {{issuer: '{}', client_id: portal, url: 'http://{}', scopes: [profile, groups]}}\n  \
         workflow: 'https://github.com/acme/konfig/actions/workflows/konverge.yml'\n  \
         roles: [{{groups: [sre], role: operator, match: '**'}}]\n",
        provider.issuer(),
        provider.portal()
    );
    let mut stage = Stage::small(&portal).await;
    stage.reviewed(7, "agree", |stage| {
        stage.stack("agree/dev", &[("agree-map", "one")])
    });
    stage.merge(7, "agree").outcome.check(0);
    stage.by_hand("agree-map", Some("two")).await;
    stage.schedule().outcome.check(0);

    let home = tempfile::tempdir().unwrap();
    let env = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
    ];
    let folder = stage.monorepo.path();
    let served = Served::start_in(folder, home.path(), &provider.portal(), Some(KEY), &env);
    let root = &served.root;
    let mut ada = Visitor::new();
    let overview = ada.sign_in(root, "ada").await.text;
    assert!(overview.contains("data-conditions=\"drifted\""), "{overview}");
    let token = csrf(&ada.get(&format!("{root}/account.html")).await.text);
    let asked = ada
        .send(
            Method::POST,
            &format!("{root}/stacks/agree@dev/operations/restore"),
            &[],
            Some(format!("csrf={token}&reason=nobody+remembers+it")),
        )
        .await;
    assert_eq!(asked.status, StatusCode::ACCEPTED, "{}", asked.text);
    assert_eq!(
        stage.value("agree-map").await.as_deref(),
        Some("two"),
        "it is asked for"
    );
    let (_, digest) = asked.text.split_once("-f approve=").expect("a command");
    let digest: String = digest.chars().take_while(char::is_ascii_hexdigit).collect();

    let ran = stage.approve(&digest);
    ran.outcome.check(0);
    assert_eq!(stage.value("agree-map").await.as_deref(), Some("one"));
    let audit = async |ada: &mut Visitor| -> Value {
        let seen = ada.get(&format!("{root}/api/v1/audit")).await.text;
        serde_json::from_str::<Value>(&seen).unwrap()["entries"][0].clone()
    };
    let entry = audit(&mut ada).await;
    assert_eq!(
        (&entry["operation"], &entry["stack"], &entry["outcome"]),
        (&json!("restore"), &json!("agree/dev"), &json!("asked"))
    );
    assert_eq!(entry["input"]["digest"], json!(digest), "{entry}");
    assert_eq!(entry["input"]["reason"], "nobody remembers it");
    assert_eq!(entry["person"]["subject"], "ada");
    // GitHub's actor is on record, and the person of the portal approves nothing.
    let record = stage.receipt("agree/dev");
    assert_eq!(record["agreedBy"], json!(["dev"]), "{record}");
    assert_eq!(record["reconciled"], json!(true), "{record}");
    // A hash may have these three digits.
    let mut said = record.clone();
    said["digest"].take();
    said["commit"].take();
    assert!(!said.to_string().contains("ada"), "{record}");
    // The stack shows the record as soon as what was read before is not fresh any more.
    let started = std::time::Instant::now();
    loop {
        let page = ada.get(&format!("{root}/stacks/agree@dev/index.html")).await.text;
        if page.contains("Digest approved by") && page.contains("restored") {
            break;
        }
        assert!(started.elapsed().as_secs() < 60, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}
