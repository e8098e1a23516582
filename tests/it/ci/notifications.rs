//! Notifications against a server of the test's own.

use konverge_notify::{
    Notification, NotifyDetail, NotifyError, NotifyEvent, NotifyKind, NotifyLanguage, NotifyTarget, Sender,
    signature,
};
use konverge_secrets::{HashKey, Secrets};
use serde_json::Value;

use crate::support::webhook_receiver::receiver;

pub(super) fn message() -> Notification {
    Notification {
        topic: NotifyEvent::ApplyFailed,
        detail: NotifyDetail::None,
        repository: "acme/konfig-hunter2-hunter2".into(),
        stacks: vec![
            "shop/prod".parse().unwrap(),
            "hunter2-hunter2/dev".parse().unwrap(),
        ],
        url: Some("https://github.com/acme/konfig/actions/runs/1".into()),
    }
}

pub(super) fn target(kind: NotifyKind, url: &str) -> NotifyTarget {
    NotifyTarget {
        kind,
        name: "HOOK_URL".into(),
        url: url.into(),
        key: (kind == NotifyKind::Webhook).then(|| "signing-key".into()),
        language: NotifyLanguage::En,
        mention: Vec::new(),
        from: None,
        to: Vec::new(),
    }
}

pub(super) fn sender() -> Sender {
    let secrets = Secrets::new(HashKey::derive("test"));
    secrets.learn("hunter2-hunter2");
    Sender::new(secrets).unwrap()
}

#[tokio::test]
async fn a_webhook_is_signed_repeated_under_its_id_and_holds_no_secret() {
    let (url, seen) = receiver(vec![503]).await;
    sender()
        .send(&target(NotifyKind::Webhook, &url), &message())
        .await
        .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    let (headers, body) = &seen[1];
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(
        text("x-konverge-signature-256"),
        signature("signing-key", &text("x-konverge-timestamp"), body)
    );
    assert_eq!(seen[0].0["x-konverge-delivery"], seen[1].0["x-konverge-delivery"]);
    assert!(!body.contains("hunter2"), "{body}");
    assert!(
        body.starts_with(r#"{"version":1,"topic":"apply-failed""#),
        "{body}"
    );
}

#[tokio::test]
async fn a_chat_message_is_repeated_only_where_it_did_not_arrive() {
    let (url, seen) = receiver(vec![429]).await;
    sender()
        .send(&target(NotifyKind::Slack, &url), &message())
        .await
        .unwrap();
    assert_eq!(seen.lock().unwrap().len(), 2);
    let (url, seen) = receiver(vec![500, 500]).await;
    let error = sender()
        .send(&target(NotifyKind::Slack, &url), &message())
        .await
        .unwrap_err();
    assert!(matches!(error, NotifyError::Refused { status: 500, .. }));
    assert!(!error.to_string().contains(&url), "the address is a secret");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    let body: Value = serde_json::from_str(&seen[0].1).unwrap();
    assert!(body["text"].as_str().unwrap().contains("`shop/prod`"));
}

#[tokio::test]
async fn an_unsafe_target_is_refused() {
    let plain = target(NotifyKind::Slack, "http://chat.example/hook");
    assert!(matches!(
        sender().send(&plain, &message()).await,
        Err(NotifyError::Address { .. })
    ));
    let mut unsigned = target(NotifyKind::Webhook, "https://hook.example");
    unsigned.key = None;
    assert!(matches!(
        sender().send(&unsigned, &message()).await,
        Err(NotifyError::NoKey { .. })
    ));
}

/// The expected text was made by Python's `hmac`.
#[test]
fn the_signature_is_hmac_sha256_of_timestamp_dot_body() {
    assert_eq!(
        signature("key", "1", "body"),
        "sha256=91b5374b153842ad05b2c4eab9349b8321b14703165bd3fb8b034dfb8be98ae5"
    );
}
