//! A command by hand in the checkout of somebody's pull request: no credentials go to an address that only it names.

use serde_json::json;

use crate::support::{process::Konverge, vault::FakeVault};

use super::vault::Vaulted;

const TOKEN: &str = "hvs.token-of-a-person-9Kq";

/// Whatever logs in.
const COMMANDS: [&[&str]; 7] = [
    &["doctor"],
    &["preview", "--all"],
    &["apply", "--all", "--yes"],
    &["drift"],
    &["destroy", "shop/prod", "--yes"],
    &["state", "list"],
    &["state", "rollback", "shop/prod", "--to", "1", "--yes"],
];

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_the_checkout_alone_gets_no_credentials() {
    let vaulted = Vaulted::new("checkout-address", "").await;
    vaulted.configure("auth: {method: token}");
    vaulted.vault.put("pay/db", json!({"password": "hunter2-own"}));
    vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db#/password"}),
        json!({}),
    );
    let evil = FakeVault::start().await;
    let monorepo = &vaulted.shop.monorepo;
    let own = monorepo.read("konverge.yaml");
    let theirs = own.replace(vaulted.vault.address(), evil.address());
    let run = |arguments: &[&str]| -> Konverge { vaulted.shop.konverge(arguments).env("VAULT_TOKEN", TOKEN) };
    let refused = |why: &str| {
        for arguments in COMMANDS {
            let outcome = run(arguments).run();
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(
                said.contains("sends credentials to") && said.contains(evil.address()) && said.contains(why),
                "{arguments:?}: {said}"
            );
            assert_ne!(outcome.code, Some(0), "{arguments:?}");
        }
        assert_eq!(evil.requests(), []);
        assert_eq!(vaulted.vault.requests(), []);
    };

    // On a branch of its own, also by its commit, and where the default branch is unknown.
    monorepo
        .branch("proposed")
        .write("konverge.yaml", &theirs)
        .commit("another server");
    refused("`main` does not have it");
    monorepo.git(["branch", "--quiet", "--move", "main", "trunk"]);
    refused("the default branch of this clone is unknown");
    monorepo.git(["branch", "--quiet", "--move", "trunk", "main"]);
    monorepo.git(["checkout", "--quiet", "main"]);
    let of_commit = run(&["preview", "--all", "--rev", "proposed"]).run().expect(1);
    assert!(
        of_commit.stderr.contains("sends credentials to"),
        "{}",
        of_commit.stderr
    );
    assert_eq!(evil.requests(), []);
    monorepo.checkout("proposed");

    // A person trusts it, or wrote it; and it is the default branch's.
    let trusted = run(&["doctor"])
        .env("KONVERGE_TRUSTED_ADDRESSES", evil.address())
        .run();
    assert!(
        !trusted.stdout.contains("sends credentials to"),
        "{}",
        trusted.stdout
    );
    assert!(!evil.requests().is_empty());
    monorepo.checkout("main");
    let trusted = run(&["doctor"]).run();
    assert!(
        !trusted.stdout.contains("sends credentials to"),
        "{}",
        trusted.stdout
    );
    assert!(!vaulted.vault.requests().is_empty() && evil.requests().is_empty());
    monorepo.write("konverge.yaml", &theirs);
    let own = run(&["doctor"]).run();
    assert!(!own.stdout.contains("sends credentials to"), "{}", own.stdout);
    assert!(!evil.requests().is_empty());
}
