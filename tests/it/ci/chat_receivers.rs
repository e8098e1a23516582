//! Chats that refuse a wrong signature, and a mail server of another make.

use konverge_base::error::UserError;
use konverge_notify::{NotifyError, NotifyEvent, NotifyKind, NotifyLanguage, NotifyTarget};
use serde_json::{Value, json};

use super::notifications::{message, sender, target};
use crate::support::{
    chats::{Chats, DINGTALK_KEY, FEISHU_KEY},
    mails::{MailServer, PASSWORD, USER},
};

fn chat(chats: &Chats, kind: NotifyKind) -> NotifyTarget {
    let key = match kind {
        NotifyKind::Dingtalk => Some(DINGTALK_KEY.to_owned()),
        NotifyKind::Feishu => Some(FEISHU_KEY.to_owned()),
        _ => None,
    };
    NotifyTarget {
        key,
        ..target(kind, &chats.url(kind.name()))
    }
}

const CHATS: [NotifyKind; 4] = [
    NotifyKind::Dingtalk,
    NotifyKind::Feishu,
    NotifyKind::Wecom,
    NotifyKind::Teams,
];

/// Every string in a document.
fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(keys) => keys.values().for_each(|value| strings(value, into)),
        _ => {}
    }
}

#[tokio::test]
async fn each_chat_takes_what_is_signed_and_holds_no_secret() {
    let chats = Chats::start();
    for kind in CHATS {
        sender().send(&chat(&chats, kind), &message()).await.unwrap();
    }
    let mut failing = message();
    failing.topic = NotifyEvent::Drift;
    for (topic, members) in [(NotifyEvent::Denied, true), (NotifyEvent::Drift, false)] {
        for (kind, member) in [
            (NotifyKind::Dingtalk, "13800001111"),
            (NotifyKind::Feishu, "all"),
            (NotifyKind::Wecom, "all"),
            (NotifyKind::Teams, "ada@acme.example"),
        ] {
            let mut target = chat(&chats, kind);
            target.mention = vec![member.to_owned()];
            target.language = NotifyLanguage::Zh;
            failing.topic = topic;
            sender().send(&target, &failing).await.unwrap();
            let (_, body) = chats.seen().await.pop().unwrap();
            let text = body.to_string();
            let mentions = match kind {
                NotifyKind::Dingtalk => {
                    body["at"]["atMobiles"] == json!([member]) && text.contains("@13800001111")
                }
                NotifyKind::Feishu => text.contains("<at id=all></at>"),
                NotifyKind::Wecom => body["text"]["mentioned_list"] == json!(["@all"]),
                _ => text.contains("<at>ada@acme.example</at>"),
            };
            assert_eq!(mentions, members, "{kind} {topic:?}: {text}");
            let words = match topic {
                NotifyEvent::Denied => "阻止",
                _ => "不一致",
            };
            assert!(text.contains(words), "{text}");
        }
    }
    let seen = chats.seen().await;
    assert_eq!(seen.len(), 12, "{seen:?}");
    for (kind, body) in &seen {
        let mut texts = Vec::new();
        strings(body, &mut texts);
        let text = texts.join("\n");
        assert!(text.contains("shop/prod"), "{kind}: {text}");
        assert!(
            text.contains("https://github.com/acme/konfig/actions/runs/1"),
            "{kind}: {text}"
        );
        for secret in ["hunter2", DINGTALK_KEY, FEISHU_KEY, "chat-token"] {
            assert!(!text.contains(secret), "{kind}: {text}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_refused_with_status_200_and_told() {
    let chats = Chats::start();
    for (kind, expected) in [
        (NotifyKind::Dingtalk, 310_000),
        (NotifyKind::Feishu, 19_021),
        (NotifyKind::Wecom, 93_000),
    ] {
        let mut target = chat(&chats, kind);
        target.key = target.key.map(|key| key + "x");
        if kind == NotifyKind::Wecom {
            target.url += "x";
        }
        let error = sender().send(&target, &message()).await.unwrap_err();
        let NotifyError::Rejected { code, hint, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*code, expected);
        assert!(hint.is_some(), "{error:?}");
        let said = error.to_string();
        assert!(
            !said.contains(&target.url) && !said.contains(DINGTALK_KEY),
            "{said}"
        );
    }
    assert!(chats.seen().await.is_empty());
}

#[tokio::test]
async fn a_limit_is_waited_for_and_an_unknown_outcome_is_not_repeated() {
    let chats = Chats::start();
    for (kind, limit) in [
        (
            NotifyKind::Dingtalk,
            r#"{"errcode": 130101, "errmsg": "send too fast", "wait": 0}"#,
        ),
        (
            NotifyKind::Wecom,
            r#"{"errcode": 45009, "errmsg": "api freq out of limit", "wait": 0}"#,
        ),
        (
            NotifyKind::Feishu,
            r#"{"code": 11232, "msg": "frequency limited", "wait": 0}"#,
        ),
    ] {
        let before = chats.seen().await.len();
        chats.answer_next(&[(200, limit)]).await;
        sender().send(&chat(&chats, kind), &message()).await.unwrap();
        assert_eq!(chats.seen().await.len(), before + 2, "{kind}");
    }
    for (status, answer) in [
        // A proxy answers for the chat, the chat fails on the way, a limit that no run can wait for.
        (200, "<html>log in</html>"),
        (502, ""),
        (200, r#"{"errcode": -1, "errmsg": "system busy"}"#),
        (
            200,
            r#"{"errcode": 130101, "errmsg": "send too fast", "wait": 18446744073709551615}"#,
        ),
    ] {
        let before = chats.seen().await.len();
        chats.answer_next(&[(status, answer)]).await;
        let error = sender()
            .send(&chat(&chats, NotifyKind::Dingtalk), &message())
            .await
            .unwrap_err();
        assert_eq!(chats.seen().await.len(), before + 1, "{answer}: {error}");
    }
    // What a chat says is one line, without what a terminal reads.
    chats
        .answer_next(&[(200, "{\"errcode\": 1, \"errmsg\": \"a\\u001b[31m\\nb\\u202e\"}")])
        .await;
    let error = sender()
        .send(&chat(&chats, NotifyKind::Dingtalk), &message())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the receiver in HOOK_URL answered code 1: a [31m b "
    );
}

#[tokio::test]
async fn what_may_not_be_sent_to_is_refused_before_anything_is_sent() {
    let chats = Chats::start();
    let with = |kind, url: &str| NotifyTarget {
        key: Some("key".into()),
        from: Some(USER.into()),
        to: vec![USER.into()],
        ..target(kind, url)
    };
    for (kind, url) in [
        (NotifyKind::Dingtalk, "http://oapi.dingtalk.com/robot/send"),
        (NotifyKind::Feishu, "http://127.0.0.1/hook"),
        (NotifyKind::Wecom, "ftp://qyapi.weixin.qq.com"),
        (NotifyKind::Teams, "not a url"),
    ] {
        let error = sender().send(&with(kind, url), &message()).await.unwrap_err();
        assert!(matches!(error, NotifyError::Address { .. }), "{url}: {error}");
    }
    for url in [
        "https://mail.acme.example",
        "smtps://ci:secret@mail.acme.example",
        "smtps:",
    ] {
        let error = sender()
            .send(&with(NotifyKind::Email, url), &message())
            .await
            .unwrap_err();
        assert!(matches!(error, NotifyError::MailServer { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let connector = with(NotifyKind::Teams, "https://acme.webhook.office.com/webhookb2/x");
    let error = sender().send(&connector, &message()).await.unwrap_err();
    assert!(matches!(error, NotifyError::Retired { .. }), "{error}");
    for kind in [NotifyKind::Dingtalk, NotifyKind::Feishu] {
        let mut unsigned = chat(&chats, kind);
        unsigned.key = None;
        let error = sender().send(&unsigned, &message()).await.unwrap_err();
        assert!(matches!(error, NotifyError::NoKey { .. }), "{error}");
    }
    assert!(chats.seen().await.is_empty());
}

fn mail_target(url: String) -> NotifyTarget {
    NotifyTarget {
        key: Some(PASSWORD.into()),
        from: Some(USER.into()),
        to: vec!["team@acme.example".into(), "oncall@acme.example".into()],
        ..target(NotifyKind::Email, &url)
    }
}

#[tokio::test]
async fn a_mail_arrives_once_as_it_was_written() {
    let server = MailServer::start("plain", &["451 later", "250 taken"]);
    let mut hostile = message();
    hostile.repository = "acme\r\nBcc: eve@evil.example\r\n\r\n.\r\nMAIL FROM:<eve@evil.example>".into();
    let target = mail_target(server.url("smtp", "127.0.0.1"));
    sender().send(&target, &hostile).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 3, "a server that says later took nothing: {seen:?}");
    let mail = &seen[1];
    assert_eq!(mail["from"], USER);
    let to = seen.iter().map(|mail| &mail["to"][0]).collect::<Vec<_>>();
    assert_eq!(
        to,
        ["team@acme.example", "team@acme.example", "oncall@acme.example"]
    );
    assert_eq!(mail["user"], USER);
    let headers = mail["headers"].as_array().unwrap();
    let names: Vec<_> = headers.iter().map(|header| header[0].as_str().unwrap()).collect();
    for name in ["From", "To", "Subject", "Message-ID", "Date", "Auto-Submitted"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.contains(&"Bcc"), "{names:?}");
    let of = |mail: &Value| {
        let headers = mail["headers"].as_array().unwrap().clone();
        headers.into_iter().find(|header| header[0] == "Message-ID")
    };
    assert_eq!(of(&seen[0]), of(&seen[1]));
    assert_eq!(of(&seen[1]), of(&seen[2]));
    let named = headers.iter().find(|header| header[0] == "To").unwrap();
    assert_eq!(named[1], "team@acme.example, oncall@acme.example");
    let text = mail["text"].as_str().unwrap();
    assert!(
        text.contains("- shop/prod\n") && !text.contains("hunter2"),
        "{text}"
    );
    assert!(
        text.contains("the run: https://github.com/acme/konfig/actions/runs/1"),
        "{text}"
    );
    assert!(!text.contains("evil.example"), "{text}");
}

#[tokio::test]
async fn a_mail_server_without_tls_or_with_another_password_gets_nothing() {
    let plain = MailServer::start("plain", &[]);
    let mut wrong = mail_target(plain.url("smtp", "127.0.0.1"));
    wrong.key = Some("another".into());
    let error = sender().send(&wrong, &message()).await.unwrap_err();
    assert!(
        matches!(error, NotifyError::Refused { status: 535, .. }),
        "{error:?}"
    );
    // Only the number of this machine is spoken to in clear text; a name is not.
    let failure = async |url: String| {
        let error = sender().send(&mail_target(url), &message()).await.unwrap_err();
        (error.clone(), UserError::from(error).hints.join("\n"))
    };
    let (error, hint) = failure(plain.url("smtp", "localhost")).await;
    assert!(matches!(error, NotifyError::NoStartTls { .. }), "{error:?}");
    assert!(hint.contains("`smtps://`"), "{hint}");
    let (error, _) = failure(plain.url("smtps", "localhost")).await;
    assert!(matches!(error, NotifyError::Unreachable { .. }), "{error:?}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (error, hint) = failure(format!("smtps://ci@localhost:{}", closed.port())).await;
    assert!(matches!(error, NotifyError::Closed { .. }), "{error:?}");
    assert!(hint.contains("587"), "{hint}");
    // An authority that nobody here knows.
    let secure = MailServer::start("smtps", &[]);
    let (error, hint) = failure(secure.url("smtps", "localhost")).await;
    assert!(matches!(error, NotifyError::Untrusted { .. }), "{error:?}");
    assert!(error.to_string().contains("is not trusted: "), "{error}");
    assert!(hint.contains("SSL_CERT_FILE"), "{hint}");
    assert!(plain.seen().is_empty() && secure.seen().is_empty());
}

#[tokio::test]
async fn a_refused_recipient_does_not_keep_the_mail_from_the_others() {
    let server = MailServer::start("plain", &[]);
    let mut target = mail_target(server.url("smtp", "127.0.0.1"));
    target.to = ["nobody@acme.example", "team@acme.example", "oncall@acme.example"]
        .map(Into::into)
        .into();
    let error = sender().send(&target, &message()).await.unwrap_err();
    let says = "refused nobody@acme.example (550); it accepted the mail for 2 of 3 recipients";
    assert!(error.to_string().ends_with(says), "{error}");
    let seen = server.seen();
    let to: Vec<_> = seen.iter().map(|mail| &mail["to"][0]).collect();
    assert_eq!(to, ["team@acme.example", "oncall@acme.example"]);
    // The only one.
    target.to.truncate(1);
    let error = sender().send(&target, &message()).await.unwrap_err();
    assert!(
        matches!(error, NotifyError::Refused { status: 550, .. }),
        "{error:?}"
    );
}
