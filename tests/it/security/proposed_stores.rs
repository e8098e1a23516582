//! A pull request that edits the secret stores: previews use those of the default branch, whatever it proposes.

use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage},
    tiny_monorepo,
    vault::FakeVault,
};

/// In every value.
const CANARY: &str = "c4nary-Wq3v!Rb";

fn config(address: &str, more: &str) -> String {
    format!(
        "secrets:\n  stores:\n    db: {{kind: vault, address: '{address}', mount: secret, auth: {{method: jwt, role: apply, preview_role: preview}}, allow: [{{stacks: '**', paths: 'pay/**'}}{more}]}}\n"
    )
}

/// A stack with an object that has this text.
fn program(stage: &Stage, kind: &str, data: &str, text: &str) {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "pay", "namespace": "default"}, data: {"password": text}});
    let resource =
        json!({"id": format!("v1:{kind}:default:pay"), "type": "Kubernetes", "attributes": object});
    tiny_monorepo::write_program(&stage.monorepo, "pay/dev", &format!("resources = [{resource}]\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_edits_the_stores_gets_nothing() {
    let (vault, evil) = (FakeVault::start().await, FakeVault::start().await);
    for (server, value) in [(&vault, "own"), (&evil, "theirs")] {
        for path in ["pay/db", "root/key"] {
            server.put(path, json!({"password": format!("{CANARY}-{value}")}));
        }
        server.allow("preview", &["secret/metadata/"]);
        server.allow("apply", &["secret/"]);
    }
    let own = config(vault.address(), "");
    let mut stage = Stage::small(&own).await;
    stage.env = vault.job().into();
    let file = stage.monorepo.read("konverge.yaml");
    let mine = format!(
        "    mine: {{kind: vault, address: '{}', allow: [{{stacks: '**', paths: '**'}}]}}\n",
        evil.address()
    );
    let pay = "ref+db://pay/db#/password";
    let rows = [
        ("another server", config(evil.address(), ""), "Secret", pay),
        (
            "another store",
            format!("{own}{mine}"),
            "Secret",
            "ref+mine://secret/pay/db#/password",
        ),
        (
            "another path",
            config(vault.address(), ", {stacks: '**', paths: '**'}"),
            "Secret",
            "ref+db://root/key#/password",
        ),
        (
            "a plain place",
            own.replace("mount: secret", "into: any, mount: secret"),
            "ConfigMap",
            pay,
        ),
    ];
    for (at, (row, proposed, kind, text)) in rows.into_iter().enumerate() {
        let number = 30 + 2 * at as u64;
        let branch = format!("edit-{at}");
        stage.monorepo.checkout("main").branch(&branch);
        let edited = file.replace(&own, &proposed);
        assert_ne!(edited, file, "{row}");
        stage.monorepo.write("konverge.yaml", edited);
        let data = if kind == "Secret" { "stringData" } else { "data" };
        program(&stage, kind, data, text);
        stage.monorepo.commit(row);
        vault.requests();
        let ran = stage.pull_request(number, &branch, "opened");
        check(&stage, &ran, row);
        let asked = vault.requests();
        let allowed = |(role, path): &(String, String)| {
            role == "preview" && (path == "secret/metadata/pay/db" || path.starts_with("auth/"))
        };
        assert!(asked.iter().all(allowed), "{row}: {asked:?}");
        // The store of the default branch is asked where its rules allow the reference.
        let is_asked = asked.iter().any(|(_, path)| path == "secret/metadata/pay/db");
        assert_eq!(is_asked, at == 0, "{row}: {asked:?}");
        // From a fork not even that.
        let (payload, trial) = stage.opened(number + 1, &branch, "opened", "mallory/konfig");
        let ran = stage.preview(number + 1, &payload, &trial);
        check(&stage, &ran, row);
        assert_eq!(vault.requests(), [], "{row}, from a fork");
        assert_eq!(evil.requests(), [], "{row}");
    }
}

fn check(stage: &Stage, ran: &Ran, row: &str) {
    let comments: String = stage.comments().into_iter().map(|(_, text)| text).collect();
    for text in [&ran.outcome.stdout, &ran.outcome.stderr, &ran.summary, &comments] {
        assert!(!text.contains(CANARY), "{row}: {text}");
    }
}
