//! A GitHub App that logs in with its own key.

use konverge_base::error::UserError;
use konverge_forge::{Checks as _, ForgeError, Publishing as _, StickyComments as _};
use konverge_github::{Client, Login};
use konverge_secrets::{HashKey, Secrets};
use serde_json::json;

use super::{body, marker};
use crate::support::github::{Act, FakeGithub, Recorded, World};

fn app_client(fake: &FakeGithub, id: u64, secrets: &Secrets) -> Client {
    let key = fake.world(|world| world.app.as_ref().unwrap().key.clone());
    let login = Login::App { id, key: &key };
    Client::new(&fake.api_url(), "acme/konfig", login, secrets.clone()).unwrap()
}

/// On github.com and on a server of one's own, whose API lies below a path.
#[tokio::test]
async fn an_app_writes_under_its_own_name_and_its_token_is_masked() {
    for prefix in ["", "/api/v3"] {
        let world = World::new().with_installed_app("konverge[bot]", 1234);
        let fake = FakeGithub::start_at(world, prefix).await;
        let secrets = Secrets::new(HashKey::random());
        let github = app_client(&fake, 1234, &secrets);
        github
            .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
            .await
            .unwrap();
        github
            .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
            .await
            .unwrap();
        let written = fake.world(|world| world.comments.clone());
        assert_eq!(written.len(), 1, "the second one replaces the first");
        assert_eq!(written[0].login, "konverge[bot]");
        assert_eq!(
            fake.world(|world| world.app.as_ref().unwrap().tokens),
            1,
            "one token for all"
        );
        assert!(!secrets.mask("a ghs_app b").contains("ghs_app"));
        assert!(!format!("{github:?}").contains("ghs_app"));
    }
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used() {
    let mut world = World::new().with_installed_app("konverge[bot]", 1234);
    world.app.as_mut().unwrap().token_seconds = 20;
    let fake = FakeGithub::start(world).await;
    let github = app_client(&fake, 1234, &Secrets::new(HashKey::random()));
    let head = super::sha('a');
    github.statuses(&head).await.unwrap();
    fake.world(|world| world.app.as_mut().unwrap().token_seconds = 3600);
    let before = fake.world(|world| world.app.as_ref().unwrap().tokens);
    github.statuses(&head).await.unwrap();
    github.statuses(&head).await.unwrap();
    let after = fake.world(|world| world.app.as_ref().unwrap().tokens);
    assert_eq!(
        after,
        before + 1,
        "the token of 20 seconds is renewed, that of an hour is kept"
    );
}

#[tokio::test]
async fn an_app_that_gets_no_token_says_which_variables_are_wrong() {
    let fake = FakeGithub::start(World::new().with_installed_app("konverge[bot]", 1234)).await;
    let secrets = Secrets::new(HashKey::random());
    let said = |error: ForgeError| {
        let error = UserError::from(error);
        format!("{error:?}")
    };
    let other = app_client(&fake, 99, &secrets);
    let text = said(other.statuses(&super::sha('a')).await.unwrap_err());
    for word in [
        "App 99",
        "acme/konfig",
        "401",
        "KONVERGE_GITHUB_APP_ID",
        "KONVERGE_GITHUB_APP_KEY",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert_eq!(fake.requests().len(), 1, "what cannot succeed is not repeated");

    let elsewhere = Login::App {
        id: 1234,
        key: &fake.world(|world| world.app.as_ref().unwrap().key.clone()),
    };
    let elsewhere = Client::new(&fake.api_url(), "acme/other", elsewhere, secrets.clone()).unwrap();
    let text = said(elsewhere.statuses(&super::sha('a')).await.unwrap_err());
    assert!(
        text.contains("404") && text.contains("installed on the repository"),
        "{text}"
    );

    let no_key = Login::App {
        id: 1,
        key: "-----BEGIN RSA PRIVATE KEY-----\nMIIno",
    };
    let text = said(Client::new(&fake.api_url(), "acme/konfig", no_key, secrets).unwrap_err());
    assert!(
        text.contains("KONVERGE_GITHUB_APP_KEY is not a private key"),
        "{text}"
    );
    assert!(!text.contains("MIIno"), "the key itself is not shown: {text}");
}

/// Nothing was sent while there was no token: what must not be sent twice is sent when there is one.
#[tokio::test]
async fn limits_and_failures_of_the_login_are_waited_for() {
    let fake = FakeGithub::start(World::new().with_installed_app("konverge[bot]", 1234)).await;
    let limited = vec![("retry-after", "0".to_owned())];
    let said = json!({"message": "You have exceeded a secondary rate limit."});
    fake.next("POST", "/access_tokens", Act::Answer(403, limited, said));
    fake.next("POST", "/access_tokens", Act::Answer(502, vec![], json!({})));
    fake.next("GET", "/installation", Act::Answer(500, vec![], json!({})));
    let github = app_client(&fake, 1234, &Secrets::new(HashKey::random()));
    let check = super::check(60);
    github
        .create_check(&super::sha('a'), &check, "run-1", None)
        .await
        .unwrap();
    let sent = fake.requests();
    let of = |method: &str, end: &str| {
        let of = |request: &&Recorded| request.method == method && request.path.ends_with(end);
        sent.iter().filter(of).count()
    };
    assert_eq!((of("GET", "/installation"), of("POST", "/access_tokens")), (2, 3));
    assert_eq!(of("POST", "/check-runs"), 1);
}
