//! Copies of a file that SOPS encrypted for another team: whatever else the pull request does to the copy and to the
//! original, the stack gets no value of it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::sops::{CANARY, Encrypted, fixture};
use crate::support::{
    ci_stage::{Ran, Stage, everything_in},
    process::Outcome,
    tiny_monorepo,
};

/// The lines of the armoured data key.
fn armour(file: &str) -> &str {
    let after = file.split_once("-----BEGIN AGE ENCRYPTED FILE-----\n").unwrap().1;
    after.split_once("-----END").unwrap().0
}

/// The same file with its data key wrapped again, as a key service does for who may not read it.
fn rewrapped(file: &str) -> String {
    let identity: age::x25519::Identity = fixture("identity.txt").lines().last().unwrap().parse().unwrap();
    let joined: String = armour(file).split_whitespace().collect();
    let key = age::decrypt(&identity, &STANDARD.decode(joined).unwrap()).unwrap();
    let wrapped = STANDARD.encode(age::encrypt(&identity.to_public(), &key).unwrap());
    let lines: Vec<_> = wrapped
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let indent = "            ";
    file.replace(
        armour(file),
        &format!("{indent}{}\n{indent}", lines.join(&format!("\n{indent}"))),
    )
}

fn says(outcome: &Outcome, what: &str) {
    let told = format!("{} {}", outcome.stdout, outcome.stderr);
    assert!(told.contains(what), "{what}: {told}");
}

/// The keys of the job open every copy of a file, so the rules of its path would say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_file_that_the_stack_may_not_read_gives_nothing() {
    let encrypted = Encrypted::new("sops-copy", "", "").await;
    let identity = fixture("identity.txt");
    let apply = || encrypted.apply().env("SOPS_AGE_KEY", &identity).run();
    let of_others = fixture("db-1.yaml");
    let monorepo = &encrypted.shop.monorepo;
    monorepo.write("other/pay.yaml", &of_others);
    let as_json = konverge_base::yaml::from_str::<Value>(&of_others)
        .unwrap()
        .to_string();
    let armour = armour(&of_others);
    let joined = armour.split_whitespace().collect::<String>();
    let (left, right) = joined.split_at(51);
    let copies = [
        of_others.clone(),
        // JSON is YAML.
        as_json,
        // Other lines, another list of recipients, a part of the values.
        of_others.replace(
            armour,
            &format!("            {left}\n            {right}\n            "),
        ),
        of_others.replace("sops:\n", "sops:\n    pgp:\n        - enc: x\n"),
        of_others.lines().skip(1).collect::<Vec<_>>().join("\n"),
    ];
    for copy in copies {
        encrypted.commit(&copy);
        for refused in [encrypted.preview(), apply()] {
            let refused = refused.expect(1);
            encrypted.holds_no_value(&refused);
            assert!(
                refused
                    .stdout
                    .contains("`secrets/db.yaml` has the same data key as `other/pay.yaml`"),
                "{copy}: {} {}",
                refused.stdout,
                refused.stderr
            );
        }
    }
    assert_eq!(encrypted.password().await, None);

    // A copy beside it, which the same stack may read; and a file that says its own path.
    monorepo.write("secrets/pay.yaml", fixture("db-2.yaml"));
    encrypted.commit(&fixture("db-2.yaml"));
    apply().expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-2")));
    monorepo.write("other/pay.yaml", fixture("own.yaml"));
    encrypted.commit(&fixture("own.yaml"));
    apply().expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-3")));
}

/// By hand: the commit that brings the copy takes the original away, or changes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_original_is_gone_gives_nothing() {
    let identity = fixture("identity.txt");
    let original = fixture("db-1.yaml");
    let moved = "`secrets/db.yaml` has the same data key as `other/pay.yaml` of commit ";
    let rows: [(&str, String, Option<String>, &str); 4] = [
        ("removed", original.clone(), None, moved),
        (
            "with a data key of its own",
            original.clone(),
            Some(fixture("db-2.yaml")),
            moved,
        ),
        (
            "wrapped again",
            rewrapped(&original),
            Some(original.clone()),
            "`secrets/db.yaml` has the same encrypted value as `other/pay.yaml`, which",
        ),
        (
            "wrapped again and removed",
            rewrapped(&original),
            None,
            "`secrets/db.yaml` has the same encrypted value as `other/pay.yaml` of commit ",
        ),
    ];
    for (at, (row, copy, left, why)) in rows.iter().enumerate() {
        let encrypted = Encrypted::new(&format!("sops-gone-{at}"), "", "").await;
        let monorepo = &encrypted.shop.monorepo;
        encrypted.commit(&fixture("own.yaml"));
        monorepo
            .write("other/pay.yaml", &original)
            .commit("of another team");
        match left {
            Some(left) => monorepo.write("other/pay.yaml", left),
            None => monorepo.remove("other/pay.yaml"),
        };
        // First in the working tree alone, then committed, then with commits after it.
        monorepo.write("secrets/db.yaml", copy);
        for step in ["not committed", "committed", "later"] {
            match step {
                "committed" => drop(monorepo.commit("copied")),
                "later" => drop(monorepo.write("README.md", "more").commit("more")),
                _ => {}
            }
            let applied = encrypted.apply().env("SOPS_AGE_KEY", &identity).run();
            for refused in [encrypted.preview(), applied] {
                assert_eq!(
                    refused.code,
                    Some(1),
                    "{row}, {step}: {} {}",
                    refused.stdout,
                    refused.stderr
                );
                encrypted.holds_no_value(&refused);
                says(&refused, why);
            }
        }
        assert_eq!(encrypted.password().await, None, "{row}");
    }
}

/// What a shallow clone does not have cannot be compared: then nothing is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_clone_reads_only_files_that_say_their_own_path() {
    let identity = fixture("identity.txt");
    let encrypted = Encrypted::new("sops-shallow", "", "").await;
    let monorepo = &encrypted.shop.monorepo;
    monorepo
        .write("other/pay.yaml", fixture("db-1.yaml"))
        .commit("of another team");
    monorepo.remove("other/pay.yaml");
    encrypted.commit(&fixture("db-1.yaml"));
    let apply = |clone: &crate::support::git::Repository| {
        encrypted
            .apply()
            .dir(clone.path())
            .env("SOPS_AGE_KEY", &identity)
            .run()
    };
    let clone = monorepo.clone_with(&["--depth=1"]);
    let refused = apply(&clone).expect(1);
    for part in [
        "`secrets/db.yaml` cannot be compared",
        "the checkout is shallow",
        "fetch-depth: 0",
    ] {
        says(&refused, part);
    }
    encrypted.commit(&fixture("own.yaml"));
    let clone = monorepo.clone_with(&["--depth=1"]);
    apply(&clone).expect(0);
    assert_eq!(encrypted.password().await, Some(format!("{CANARY}-3")));
}

/// A stack of the project `mine` with a Secret that refers to the file.
fn refer(stage: &Stage, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
        "stringData": {"password": "ref+sops://secrets/mine/db.yaml#/password"}});
    let resource =
        json!({"id": format!("v1:Secret:default:{name}"), "type": "Kubernetes", "attributes": object});
    tiny_monorepo::write_program(
        &stage.monorepo,
        "mine/dev",
        &format!("resources = [{resource}]\n"),
    );
}

/// In a job, from a fork and from somebody who may push: the preview says it, and after the merge nothing is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_gets_no_value_by_a_copy() {
    for (at, from) in ["acme/konfig", "mallory/konfig"].into_iter().enumerate() {
        let config = "secrets:\n  stores:\n    files:\n      kind: sops\n      allow: [{stacks: 'appops/mine/*', paths: 'secrets/mine/*'}]\n";
        let mut stage = Stage::small(config).await;
        stage.env = vec![("SOPS_AGE_KEY", fixture("identity.txt"))];
        stage
            .monorepo
            .checkout("main")
            .write("secrets/theirs/db.yaml", fixture("db-1.yaml"));
        stage.monorepo.commit("of another team");
        // Each step is a commit, as a rebase would leave them.
        stage
            .monorepo
            .branch("copy")
            .remove("secrets/theirs/db.yaml")
            .commit("tidy up");
        stage
            .monorepo
            .write("secrets/mine/db.yaml", fixture("db-1.yaml"))
            .commit("our password");
        let secret = format!("sops-copy-{at}");
        refer(&stage, &secret);
        stage.monorepo.commit("use it");
        let number = 70 + at as u64;
        let (payload, trial) = stage.opened(number, "copy", "opened", from);
        let previewed = stage.preview(number, &payload, &trial);
        // Of a fork only the Specs are compared: no reference is followed, so none is checked.
        check(&stage, &previewed, from, at == 0);
        let applied = stage.merge(number, "copy");
        check(&stage, &applied, from, true);
        let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
            kube::Api::namespaced(stage.cluster.client().await, "default");
        assert!(secrets.get_opt(&secret).await.unwrap().is_none(), "{from}");
    }
}

/// No value is anywhere; the run failed and told why, if it looked.
fn check(stage: &Stage, ran: &Ran, from: &str, is_refused: bool) {
    let comments: String = stage.comments().into_iter().map(|(_, text)| text).collect();
    let told = format!(
        "{}{}{}{comments}",
        ran.outcome.stdout, ran.outcome.stderr, ran.summary
    );
    if is_refused {
        assert_ne!(ran.outcome.code, Some(0), "{from}: {told}");
        assert!(told.contains("has the same data key as"), "{from}: {told}");
    }
    let kept = everything_in(&stage.scratch.path().join("store"));
    assert!(!told.contains(CANARY) && !kept.contains(CANARY), "{from}: {told}");
}
