//! `konverge notify test` and what `doctor` says of receivers.

use crate::support::{
    chats::{Chats, DINGTALK_KEY},
    git::Repository,
    mails::{MailServer, PASSWORD, USER},
    process::Konverge,
};

fn repository(config: &str) -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n")
        .write("konverge.yaml", format!("version: 1\n{config}"))
        .commit("Receivers");
    repository
}

const RECEIVERS: &str = "notify:
- {kind: dingtalk, url_env: DING_URL, key_env: DING_KEY, mention: [all], match: 'appops/*/prod'}
- {kind: wecom, url_env: WECOM_URL, on: [drift], lang: zh}
- {kind: email, url_env: MAIL_URL, key_env: MAIL_PASSWORD, from: ci@acme.example, to: [team@acme.example]}
";

#[tokio::test(flavor = "multi_thread")]
async fn each_receiver_gets_one_message_and_its_answer_is_printed() {
    let (chats, mails) = (Chats::start(), MailServer::start("starttls", &[]));
    let repository = repository(RECEIVERS);
    let run = |arguments: &[&str], key: &str| {
        Konverge::new(arguments)
            .dir(repository.path())
            .env("DING_URL", chats.url("dingtalk"))
            .env("DING_KEY", key)
            .env("WECOM_URL", chats.url("wecom"))
            .env("MAIL_URL", mails.url("smtp", "localhost"))
            .env("MAIL_PASSWORD", PASSWORD)
            .env("SSL_CERT_FILE", mails.authority())
            .run()
    };
    let all = run(&["notify", "test"], DINGTALK_KEY).expect(0);
    for line in [
        "ok      dingtalk in DING_URL: the receiver took the message",
        "ok      wecom in WECOM_URL: the receiver took the message",
        "ok      email in MAIL_URL: the receiver took the message",
    ] {
        assert!(all.stdout.contains(line), "{}", all.stdout);
    }
    let seen = chats.seen().await;
    let kinds: Vec<_> = seen.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["dingtalk", "wecom"]);
    // A test is no failure: it mentions nobody.
    assert_eq!(seen[0].1["at"]["isAtAll"], false, "{}", seen[0].1);
    assert!(seen[1].1.to_string().contains("测试消息"), "{}", seen[1].1);
    let mail = &mails.seen()[0];
    assert_eq!(
        (&mail["tls"], &mail["user"]),
        (&true.into(), &USER.into()),
        "{mail}"
    );
    assert!(
        mail["text"].as_str().unwrap().contains("a test message"),
        "{mail}"
    );

    let one = run(&["notify", "test", "--kind", "dingtalk"], "another-key-90").expect(1);
    assert!(
        one.stdout
            .starts_with("FAILED  dingtalk in DING_URL: the receiver in DING_URL answered code 310000"),
        "{}",
        one.stdout
    );
    assert!(
        one.stdout.contains("hint: ") && !one.stdout.contains("wecom"),
        "{}",
        one.stdout
    );
    for said in [&all, &one] {
        let said = format!("{}{}", said.stdout, said.stderr);
        for secret in [
            DINGTALK_KEY,
            "another-key-90",
            "chat-token",
            "wecom-key",
            PASSWORD,
        ] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let doctor = run(&["doctor"], DINGTALK_KEY);
    for line in [
        "ok       receiver dingtalk in DING_URL: ",
        "ok       receiver email in MAIL_URL: ",
    ] {
        assert!(doctor.stdout.contains(line), "{}", doctor.stdout);
    }
    assert_eq!(chats.seen().await.len(), 2, "doctor sends nothing");
    assert_eq!(mails.seen().len(), 1, "doctor sends nothing");
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let none = repository("kcl: {workers: 1}\n");
    let run = |repository: &Repository, arguments: &[&str]| Konverge::new(arguments).dir(repository.path());
    let said = run(&none, &["notify", "test"]).run().expect(1);
    assert!(
        said.stderr.contains("has no receiver of notifications"),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("hint: add one under `notify`"),
        "{}",
        said.stderr
    );
    run(&none, &["notify"]).run().expect(64);
    let unknown = run(&none, &["notify", "test", "--kind", "pager"])
        .run()
        .expect(64);
    assert!(
        unknown.stderr.contains("possible values: slack, webhook, teams"),
        "{}",
        unknown.stderr
    );

    let some = repository(RECEIVERS);
    let said = run(&some, &["notify", "test", "--kind", "slack"]).run().expect(1);
    assert!(
        said.stderr.contains("no receiver of kind `slack`"),
        "{}",
        said.stderr
    );
    let said = run(&some, &["notify", "test"]).run().expect(1);
    assert!(
        said.stdout
            .contains("FAILED  dingtalk in DING_URL: DING_URL is not set"),
        "{}",
        said.stdout
    );
    // An address in clear text, and a key that is not there.
    let said = run(&some, &["notify", "test"])
        .env(
            "DING_URL",
            "http://oapi.dingtalk.com/robot/send?access_token=needle-77",
        )
        .env("DING_KEY", "k")
        .env("MAIL_URL", "smtps://ci@mail.acme.example")
        .run()
        .expect(1);
    for words in [
        "DING_URL is not a URL that starts with https://",
        "email in MAIL_URL: MAIL_PASSWORD is not set",
    ] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("needle"), "{}", said.stdout);
    let machine = run(&some, &["doctor"]).run();
    assert!(
        machine
            .stdout
            .contains("unused   receiver dingtalk in DING_URL: DING_URL is not set here"),
        "{}",
        machine.stdout
    );
    let job = run(&some, &["doctor"]).env("GITHUB_ACTIONS", "true").run();
    assert!(
        job.stdout
            .contains("MISSING  receiver dingtalk in DING_URL: DING_URL is not set"),
        "{}",
        job.stdout
    );

    let unsigned = repository("notify: [{kind: feishu, url_env: LARK_URL}]\n");
    let said = run(&unsigned, &["config", "check"]).run().expect(1);
    for words in [
        "the feishu receiver in LARK_URL has no `key_env`",
        "konverge.yaml",
        "hint: switch on the signature",
    ] {
        assert!(said.stderr.contains(words), "{words}: {}", said.stderr);
    }
}
