//! A name mentions nobody, links nowhere and breaks out of nothing, in any kind.

use konverge_base::model::{NotifyEvent, NotifyKind, NotifyLanguage};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    dingtalk, email,
    escape::inert,
    feishu,
    message::{Notification, Rendering},
    slack,
    target::NotifyTarget,
    teams, wecom,
    wording::NotifyDetail,
};

const RUN: &str = "https://github.com/acme/konfig/actions/runs/1";

/// What formats, links, mentions or hides in one chat or another.
const HOSTILE: [&str; 34] = [
    "<!channel>",
    "<!here|x>",
    "<@U1>",
    "<@all>",
    "@all",
    "@everyone",
    "@13800001111",
    "<at id=all></at>",
    "<at>ada@acme.example</at>",
    "<https://evil.example|run>",
    "[run](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "https://evil.example/a",
    "www.evil.example",
    "evil.example",
    "mailto:eve@evil.example",
    "<font color=\"warning\">",
    "*b*",
    "_i_",
    "~s~",
    "`c`",
    "```",
    "\n# h\n",
    "\r\n\r\n.\r\n",
    "\r\nBcc: eve@evil.example",
    "\u{202e}",
    "\u{200b}",
    "\\",
    "&lt;",
    "&#64;",
    "| a |",
    ":smile:",
    "\"}]}",
    "\0",
];

fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        proptest::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        "[a-z0-9._/-]{0,6}",
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// The stacks of a notification of hostile names; those that are no identities are left out.
fn notification(repository: String, stacks: &[String]) -> Notification {
    Notification {
        topic: NotifyEvent::ApplyFailed,
        detail: NotifyDetail::None,
        repository,
        stacks: stacks.iter().filter_map(|name| name.parse().ok()).collect(),
        url: Some(RUN.to_owned()),
    }
}

/// The same with harmless names.
fn harmless(message: &Notification) -> Notification {
    let mut same = message.clone();
    same.repository = "acme/konfig".to_owned();
    for (at, stack) in same.stacks.iter_mut().enumerate() {
        *stack = format!("p{at}/dev").parse().expect("an identity");
    }
    same
}

fn body(kind: NotifyKind, message: &Notification, mention: &str) -> String {
    let mention = [mention.to_owned()];
    let rendering = Rendering {
        language: NotifyLanguage::En,
        mention: &mention,
        mask: &str::to_owned,
    };
    match kind {
        NotifyKind::Slack => slack::body(message, &rendering),
        NotifyKind::Dingtalk => dingtalk::body(message, &rendering),
        NotifyKind::Feishu => feishu::body(message, &rendering, "key", 1_599_360_473),
        NotifyKind::Wecom => wecom::body(message, &rendering),
        NotifyKind::Teams => teams::body(message, &rendering),
        NotifyKind::Webhook | NotifyKind::Email => unreachable!("these are no chats"),
    }
}

/// Every string of a document, by its path.
fn strings(at: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => into.push((at.to_owned(), text.clone())),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| strings(&format!("{at}/{index}"), item, into));
        }
        Value::Object(keys) => keys
            .iter()
            .for_each(|(key, value)| strings(&format!("{at}/{key}"), value, into)),
        _ => {}
    }
}

fn leaves(body: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let document = serde_json::from_str(body).expect("the body is JSON");
    strings("", &document, &mut found);
    found
}

/// The characters of a text that mean something somewhere, in their order: what is ours is the same for all names.
fn markup(text: &str) -> String {
    let chars: Vec<_> = text.chars().collect();
    let means = |(at, c): (usize, &char)| {
        let after = chars.get(at + 1).copied().unwrap_or(' ');
        let is_domain = *c == '.' && after.is_alphanumeric();
        (is_domain || "<>@[]()`*~#&:|\\!\n\r".contains(*c)).then_some(*c)
    };
    chars.iter().enumerate().filter_map(means).collect()
}

/// The texts that a chat searches for markup. Others are shown as they are.
fn is_searched(kind: NotifyKind, path: &str) -> bool {
    match kind {
        NotifyKind::Feishu | NotifyKind::Teams => false,
        _ => !path.is_empty(),
    }
}

proptest! {
    #[test]
    fn a_name_mentions_links_and_breaks_nothing(repository in name(), stacks in proptest::collection::vec(name(), 0..4)) {
        let message = notification(repository, &stacks);
        let harmless = harmless(&message);
        for (kind, mention) in [
            (NotifyKind::Slack, "U024BE7LH"),
            (NotifyKind::Dingtalk, "13900002222"),
            (NotifyKind::Feishu, "ou_1"),
            (NotifyKind::Wecom, "wang"),
            (NotifyKind::Teams, "grace@acme.example"),
        ] {
            let (shown, expected) = (leaves(&body(kind, &message, mention)), leaves(&body(kind, &harmless, mention)));
            let paths = |leaves: &[(String, String)]| -> Vec<_> {
                leaves.iter().map(|(path, _)| path.clone()).collect()
            };
            prop_assert_eq!(paths(&shown), paths(&expected), "{}", kind);
            for ((path, text), (_, ours)) in shown.iter().zip(&expected) {
                let lines = |text: &str| text.lines().count();
                prop_assert_eq!(lines(text), lines(ours), "{} {}: {:?}", kind, path, text);
                prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{} {}: {:?}", kind, path, text);
                if is_searched(kind, path) && kind == NotifyKind::Slack {
                    // In a span of code only these count.
                    let counted = |text: &str| text.chars().filter(|c| "<>@`".contains(*c)).collect::<String>();
                    prop_assert_eq!(counted(text), counted(ours), "{} {}: {:?}", kind, path, text);
                    let first = |text: &str| markup(text.lines().next().unwrap_or_default());
                    prop_assert_eq!(first(text), first(ours), "{} {}: {:?}", kind, path, text);
                } else if is_searched(kind, path) {
                    prop_assert_eq!(markup(text), markup(ours), "{} {}: {:?}", kind, path, text);
                } else {
                    // Names stand in texts without markup, and cannot name somebody who is mentioned.
                    let named = |text: &str| text.chars().filter(|c| "<>".contains(*c)).collect::<String>();
                    prop_assert_eq!(named(text), named(ours), "{} {}: {:?}", kind, path, text);
                    let is_plain = path.ends_with("/inlines/0/text") || path.ends_with("content") || text == ours;
                    prop_assert!(is_plain, "{} {}: {:?}", kind, path, text);
                }
            }
        }
    }

    #[test]
    fn a_name_adds_nothing_to_a_mail(repository in name(), stacks in proptest::collection::vec(name(), 0..4)) {
        let message = notification(repository, &stacks);
        let rendering = Rendering { language: NotifyLanguage::Zh, mention: &[], mask: &str::to_owned };
        let target = NotifyTarget {
            kind: NotifyKind::Email,
            name: "MAIL_URL".into(),
            url: "smtps://mail.acme.example".into(),
            key: None,
            language: NotifyLanguage::Zh,
            mention: Vec::new(),
            from: Some("ci@acme.example".into()),
            to: vec!["team@acme.example".into()],
        };
        let headers = |message: &Notification| -> Vec<String> {
            let mail = email::mail(&target, message, &rendering).expect("a mail");
            let text = String::from_utf8(mail.formatted()).expect("ASCII");
            let (headers, _) = text.split_once("\r\n\r\n").expect("headers and a text");
            let lines = headers.split("\r\n").filter(|line| !line.starts_with(' '));
            lines.map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
        };
        prop_assert_eq!(headers(&message), headers(&harmless(&message)));
        let markup_of = |message: &Notification| markup(&email::text(message, &rendering));
        prop_assert_eq!(markup_of(&message), markup_of(&harmless(&message)));
    }

    #[test]
    fn an_inert_name_has_no_markup(name in name()) {
        prop_assert_eq!(markup(&inert(&name)), "");
    }
}

#[test]
fn a_common_name_is_shown_as_it_is() {
    for name in ["shop/prod", "acme/konfig_infra-2", "a/b_c/dev"] {
        assert_eq!(inert(name), name);
    }
}

#[test]
fn a_long_message_is_cut_at_a_stack() {
    let stacks: Vec<_> = (0..60).map(|at| format!("{}{at}/dev", "长".repeat(40))).collect();
    let mut message = notification("acme/konfig".to_owned(), &stacks);
    let count = message.stacks.len();
    for (kind, limit) in [
        (NotifyKind::Slack, 4_000),
        (NotifyKind::Dingtalk, 5_000),
        (NotifyKind::Feishu, 20_000),
        (NotifyKind::Wecom, 2_300),
        (NotifyKind::Teams, 28_000),
    ] {
        let text = body(kind, &message, "x");
        assert!(text.len() <= limit, "{kind}: {}", text.len());
        let named = text.matches("/dev").count();
        assert!(
            named > 0 && text.contains(&format!("and {} more", count - named)),
            "{kind}: {text}"
        );
    }
    // Nothing fits, and it is sent nevertheless.
    message.repository = "长".repeat(4_000);
    message.stacks.truncate(1);
    let text: Value = serde_json::from_str(&body(NotifyKind::Wecom, &message, "x")).expect("JSON");
    assert!(
        text["text"]["content"]
            .as_str()
            .is_some_and(|text| text.len() <= 2_048)
    );
}

#[test]
fn a_link_that_a_chat_would_read_otherwise_is_left_out() {
    let mut message = notification("acme/konfig".to_owned(), &[]);
    assert_eq!(message.link(), Some(RUN));
    for url in [
        "javascript:alert(1)",
        "https://x/)[a](b",
        "https://x/>|<!here>",
        "https://x y",
        "a@b (process 1)",
    ] {
        message.url = Some(url.to_owned());
        assert_eq!(message.link(), None, "{url}");
    }
}
