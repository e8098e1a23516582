//! How a job logs in to a Vault: the methods, namespaces, renewals, and the roles of the guide.

use serde_json::{Value, json};

use super::vault::{CANARY, Vaulted, changes, mark};
use crate::support::process::Outcome;

/// What the guides on OIDC and on secrets show: the job logs in at Vault by itself, with a role for previews and one
/// for applies.
#[tokio::test(flavor = "multi_thread")]
async fn the_login_of_the_guide_works() {
    let page = std::fs::read_to_string(crate::meta::docs::root().join("docs/guides/oidc.md")).unwrap();
    let section = page
        .split("## Vault\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    assert!(!section.contains("curl") && !section.contains("jq"), "{section}");
    let blocks = |text: &str| crate::meta::docs::blocks(text, "yaml");
    let secrets = std::fs::read_to_string(crate::meta::docs::root().join("docs/guides/secrets.md")).unwrap();
    let configs = blocks(&secrets);
    let config = configs.iter().find(|block| block.contains("audience:")).unwrap();
    let [config, workflow] =
        [config, &blocks(section)[0]].map(|block| konverge_base::yaml::from_str::<Value>(block).unwrap());
    assert_eq!(workflow["jobs"]["apply"]["permissions"]["id-token"], "write");
    let store = &config["secrets"]["stores"]["db"];
    assert_eq!(store["kind"], "vault");
    let vaulted = Vaulted::new("vault-guide", "").await;
    let mount = store["mount"].as_str().unwrap();
    vaulted.configure(&format!("auth: {}\n      mount: {mount}", store["auth"]));
    vaulted.vault.allow("konverge-preview", &["secret/metadata/pay/"]);
    vaulted
        .vault
        .allow("konverge-apply", &["secret/metadata/pay/", "secret/data/pay/"]);
    vaulted
        .vault
        .put("pay/db", json!({"password": format!("{CANARY}-1")}));
    let pay = vaulted.wants(json!({"password": "ref+db://pay/db#/password"}), json!({}));
    vaulted.preview().expect(0);
    vaulted.holds_no_value(&vaulted.apply().expect(0));
    assert_eq!(vaulted.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    let asked = vaulted.vault.requests();
    for role in ["konverge-preview", "konverge-apply"] {
        assert!(
            asked.contains(&(role.to_owned(), "auth/jwt/login".to_owned())),
            "{asked:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_login_works_and_its_credentials_are_masked() {
    let vaulted = Vaulted::new("vault-logins", "").await;
    let token = vaulted.vault.token("apply");
    let approle = [
        ("VAULT_ROLE_ID", "apply"),
        ("VAULT_SECRET_ID", "the-roles-secret"),
    ];
    let by_token = [("VAULT_TOKEN", token.as_str())];
    for (at, (store, variables, missing)) in [
        (
            "auth: {method: approle}",
            approle.as_slice(),
            "VAULT_ROLE_ID or VAULT_SECRET_ID is not set",
        ),
        ("mount: secret", by_token.as_slice(), "VAULT_TOKEN is not set"),
        (
            "auth: {method: token}",
            by_token.as_slice(),
            "VAULT_TOKEN is not set",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let value = format!("{CANARY}-{at}");
        vaulted.vault.put("pay/db", json!({"password": value}));
        vaulted.configure(store);
        let path = if store.starts_with("mount") {
            "pay/db"
        } else {
            "secret/pay/db"
        };
        let pay = vaulted.wants(
            json!({"password": format!("ref+vault://{path}#/password")}),
            json!({}),
        );
        let refused = vaulted.apply_with(&[]).expect(1);
        let error = refused.json()["stacks"][0]["error"].take();
        assert!(error["message"].as_str().unwrap().contains(missing), "{error}");
        assert!(
            error["hints"].to_string().contains("secrets.stores.db"),
            "{error}"
        );

        let applied = vaulted.apply_with(variables).expect(0);
        vaulted.holds_no_value(&applied);
        for (_, credential) in variables.iter().filter(|(_, credential)| *credential != "apply") {
            assert!(!applied.stderr.contains(credential), "{}", applied.stderr);
        }
        assert_eq!(vaulted.value(&pay, "password").await, Some(value), "{store}");
    }
    let denied = vaulted
        .apply_with(&[("VAULT_TOKEN", "hvs.nobodys-token-at-all")])
        .expect(1);
    assert!(
        denied.stdout.contains("was denied (HTTP 403)"),
        "{}",
        denied.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_named_at_the_login_and_at_every_read() {
    let vaulted = Vaulted::new("vault-namespace", "").await;
    vaulted.vault.put("pay/db", json!({"password": CANARY}));
    vaulted.vault.move_to_namespace("team/pay");
    let pay = vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db#/password"}),
        json!({}),
    );
    let refused = vaulted.apply().expect(1);
    assert!(
        refused.stdout.contains("no handler for route"),
        "{}",
        refused.stdout
    );
    vaulted.configure("auth: {method: jwt, role: apply, preview_role: preview}\n      namespace: team/pay");
    assert_eq!(
        changes(&vaulted.preview().expect(0))[0]["to"]["data"]["password"],
        mark("1")
    );
    vaulted.apply().expect(0);
    assert_eq!(vaulted.value(&pay, "password").await, Some(CANARY.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_be_used_twice_is_renewed_in_time() {
    let vaulted = Vaulted::new("vault-uses", "").await;
    vaulted.vault.limit_uses(2);
    let names: Vec<_> = (0..5).map(|at| format!("pay/{at}")).collect();
    let mut texts = json!({});
    for name in &names {
        vaulted.vault.put(name, json!({"password": CANARY}));
        texts[name.replace('/', "-")] = json!(format!("ref+vault://secret/{name}#/password"));
    }
    let pay = vaulted.wants(texts, json!({}));
    vaulted.apply().expect(0);
    assert_eq!(vaulted.value(&pay, "pay-4").await, Some(CANARY.to_owned()));
    let asked = vaulted.vault.requests();
    let logins = asked.iter().filter(|(_, path)| path.ends_with("login")).count();
    assert_eq!(logins, 3, "five reads with two uses each: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_logs_in_to_each_store_and_reads_no_secret() {
    let vaulted = Vaulted::new("vault-doctor", "").await;
    vaulted.vault.put("pay/db", json!({"password": CANARY}));
    let store = |outcome: &Outcome| {
        let findings = outcome.json()["findings"].as_array().unwrap().clone();
        let of_store = findings
            .into_iter()
            .find(|finding| finding["what"] == "secret store db");
        of_store.unwrap_or_else(|| panic!("{}", outcome.stdout))
    };
    let well = vaulted.run(&["doctor", "--output", "json"]);
    assert!(
        store(&well).to_string().contains("logged in; 2 rules"),
        "{}",
        well.stdout
    );
    let asked = vaulted.vault.requests();
    let paths: Vec<_> = asked
        .iter()
        .map(|(role, path)| (role.as_str(), path.as_str()))
        .collect();
    let lookup = "auth/token/lookup-self";
    assert_eq!(
        paths,
        [
            ("preview", "auth/jwt/login"),
            ("preview", lookup),
            ("apply", "auth/jwt/login"),
            ("apply", lookup),
        ]
    );
    let elsewhere = store(&vaulted.shop.konverge(&["doctor", "--output", "json"]).run());
    assert_eq!(elsewhere["verdict"], "unused", "no job, no token: {elsewhere}");
    vaulted.configure("auth: {method: jwt, role: unknown}");
    let refused = store(&vaulted.run(&["doctor", "--output", "json"])).to_string();
    assert!(
        refused.contains("role could not be found") && refused.contains("secrets.stores.db"),
        "{refused}"
    );
}

/// The roles that the guide shows let in the jobs that they are for, and no other that GitHub signs a token for.
#[test]
fn the_roles_of_the_guide_let_in_no_other_job() {
    use crate::meta::docs::{blocks, root};
    let guide = std::fs::read_to_string(root().join("docs/guides/secrets.md")).unwrap();
    let roles: Vec<Value> = blocks(&guide, "json")
        .iter()
        .map(|block| serde_json::from_str::<Value>(block).unwrap())
        .filter(|role| role["role_type"] == "jwt")
        .collect();
    let [apply, preview] = &roles[..] else {
        panic!("{roles:?}")
    };
    let config = blocks(&guide, "yaml");
    let config = config.iter().find(|block| block.contains("audience:")).unwrap();
    let auth = konverge_config::Config::parse(config).unwrap().secrets.stores["db"]
        .auth
        .clone()
        .unwrap();
    for (role, name) in [(apply, &auth.role), (preview, &auth.preview_role)] {
        let name = name.as_ref().unwrap();
        assert!(
            guide.contains(&format!("vault write auth/jwt/role/{name} @")),
            "{name}"
        );
        assert!(
            guide.contains(&format!("`{name}`")) || guide.contains(name),
            "{name}"
        );
        assert_eq!(role["token_policies"], json!([name]));
        assert_eq!(role["bound_audiences"], json!([auth.audience]));
        // A number of uses would end in the middle of an apply.
        assert!(role["token_num_uses"].is_null() && role["token_ttl"].is_string());
    }
    // As Vault decides for `bound_claims_type: string`: each claim is there and has exactly this value.
    let lets_in = |role: &Value, claims: &Value| {
        let audience = role["bound_audiences"]
            .as_array()
            .unwrap()
            .contains(&claims["aud"]);
        let bound = role["bound_claims"].as_object().unwrap();
        audience
            && bound
                .iter()
                .all(|(claim, value)| claims[claim.as_str()] == *value)
    };
    let own = json!({"aud": auth.audience, "repository": "acme/konfig", "ref": "refs/heads/main",
        "event_name": "push", "environment": "production"});
    let with = |changes: &[(&str, &str)]| {
        let mut claims = own.clone();
        for (claim, value) in changes {
            claims[*claim] = json!(value);
        }
        claims
    };
    let proposed = [("event_name", "pull_request"), ("ref", "refs/pull/7/merge")];
    let mut without_environment = own.clone();
    without_environment.as_object_mut().unwrap().remove("environment");
    for (job, claims, is_apply, is_preview) in [
        ("an apply", own.clone(), true, false),
        ("a preview", with(&proposed), false, true),
        (
            "another branch",
            with(&[("ref", "refs/heads/evil")]),
            false,
            false,
        ),
        (
            "a tag called main",
            with(&[("ref", "refs/tags/main")]),
            false,
            false,
        ),
        (
            "another repository",
            with(&[("repository", "acme/konfig-evil")]),
            false,
            false,
        ),
        ("a fork", with(&[("repository", "mallory/konfig")]), false, false),
        (
            "another environment",
            with(&[("environment", "staging")]),
            false,
            false,
        ),
        ("no environment", without_environment, false, false),
        (
            "a token for AWS",
            with(&[("aud", "sts.amazonaws.com")]),
            false,
            false,
        ),
        (
            "GitHub's own audience",
            with(&[("aud", "https://github.com/acme")]),
            false,
            false,
        ),
    ] {
        assert_eq!(
            (lets_in(apply, &claims), lets_in(preview, &claims)),
            (is_apply, is_preview),
            "{job}"
        );
    }
}
