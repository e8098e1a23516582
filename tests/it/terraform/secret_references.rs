//! References to secrets in Terraform's resources: in write-only attributes and in the configuration of a provider.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{cli_fixture::Place, runtime_fixture};
use crate::support::{
    process::{Konverge, Outcome},
    vault::FakeVault,
};

/// What nobody but the provider may see.
const VALUE: &str = "canary-horse\"battery\\staple";
const NEXT: &str = "another-canary-of-the-vault";
const TOKEN: &str = "canary-token-of-the-provider";

struct World {
    place: Place,
    vault: FakeVault,
    token: String,
}

impl World {
    async fn new(binary: PathBuf) -> Self {
        let vault = FakeVault::start().await;
        vault.put("pay/db", json!({"password": VALUE}));
        vault.put("pay/api", json!({"token": TOKEN}));
        vault.allow("job", &["secret/"]);
        let token = vault.token("job");
        let secrets = json!({"secrets": {"stores": {"db": {
            "kind": "vault", "address": vault.address(), "mount": "secret",
            "allow": [{"stacks": "**", "paths": "pay/*"}],
        }}}});
        let place = Place::with(&binary, secrets);
        Self { place, vault, token }
    }

    fn run(&self, arguments: &[&str]) -> Konverge {
        let spec = ["--spec", "spec.json", "--stack", "shop/prod"];
        let run = self.place.command(&[arguments, &spec[..]].concat());
        run.env("VAULT_TOKEN", &self.token)
            .env("KONVERGE_LOG", "trace")
            .env("TF_LOG", "TRACE")
            .env("TF_LOG_PATH", self.place.home.path().join("terraform.log"))
    }

    /// An object with a write-only secret, of a provider that logs in with another.
    fn want(&self, more: Value) {
        let mut attributes = json!({
            "secret_wo": "ref+db://pay/db#/password",
            "secret_wo_version": "ref+db://pay/db?as=version",
        });
        let more = more.as_object().unwrap().clone();
        attributes.as_object_mut().unwrap().extend(more);
        let mut object = self.place.trace("one", attributes, &[]);
        object["extensions"]["providerMeta"] = json!({"token": "ref+db://pay/api#/token"});
        let text = object["attributes"]["secret_wo"].as_str().unwrap();
        let other = text
            .contains("$kusion_path")
            .then(|| Place::data("other", json!("x"), &[]));
        let all: Vec<_> = other.into_iter().chain([object]).collect();
        self.place.want(&all);
    }

    fn preview(&self) -> Value {
        let outcome = self.run(&["preview", "--output", "json"]).run().expect(0);
        self.found_nowhere(&outcome, "a preview");
        outcome.json()["stacks"][0].clone()
    }

    fn apply(&self) -> Outcome {
        let outcome = self.run(&["apply", "--yes", "--output", "json"]).run().expect(0);
        self.found_nowhere(&outcome, "an apply");
        outcome
    }

    /// What the provider was given for the object.
    fn object(&self) -> Value {
        let files = runtime_fixture::walk_all(self.place.outside.path());
        let of_object = |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("one.");
        let text = std::fs::read_to_string(files.iter().find(of_object).unwrap()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn found_nowhere(&self, outcome: &Outcome, what: &str) {
        clean(what, &outcome.stdout);
        clean(what, &outcome.stderr);
        let mut files = Vec::new();
        for folder in [&self.place.store, &self.place.temporary, &self.place.home] {
            runtime_fixture::walk(folder.path(), &mut files);
        }
        for file in files {
            let bytes = std::fs::read(&file).unwrap_or_default();
            clean(&file.display().to_string(), &String::from_utf8_lossy(&bytes));
        }
    }
}

fn clean(what: &str, text: &str) {
    use base64::Engine as _;
    for secret in [VALUE, NEXT, TOKEN] {
        let quoted = Value::String(secret.to_owned()).to_string();
        let encoded = base64::engine::general_purpose::STANDARD.encode(secret);
        for form in [secret, &quoted[1..quoted.len() - 1], encoded.as_str()] {
            assert!(!text.contains(form), "{what} holds `{form}`: {text}");
        }
    }
}

/// The values of requests to a Vault, not the versions.
fn reads_of(vault: &FakeVault) -> usize {
    let requests = vault.requests();
    requests
        .iter()
        .filter(|(_, path)| path.contains("/data/"))
        .count()
}

pub async fn a_value_reaches_the_provider_alone(binary: PathBuf) {
    let world = World::new(binary).await;
    world.want(json!({}));
    let plan = world.preview();
    assert_eq!(reads_of(&world.vault), 0, "a preview reads no value");
    let change = &plan["resources"][0]["changes"][0]["to"];
    assert_eq!(
        change["secret_wo"],
        json!({"$secret": {"ref": "db:pay/db#/password", "version": "1"}}),
        "{plan}"
    );
    world.apply();
    let object = world.object();
    assert_eq!(
        (&object["Secret"], &object["Version"], &object["Token"]),
        (&json!(VALUE), &json!("1"), &json!(TOKEN))
    );
    let book = world.place.book().await;
    clean("Terraform's state, opened", &book.to_string());
    let plan = world.preview();
    assert_eq!(plan["summary"]["unchanged"], 1, "{plan}");

    // Another version of the secret updates the attribute, and needs no review of its own.
    world.vault.put("pay/db", json!({"password": NEXT}));
    let plan = world.preview();
    let changes = plan["resources"][0]["changes"].as_array().unwrap();
    for path in ["/secret_wo", "/secret_wo_version"] {
        let change = changes.iter().find(|change| change["path"] == path);
        assert_eq!(change.unwrap()["origin"], "rotation", "{plan}");
    }
    world.apply();
    assert_eq!(world.object()["Secret"], NEXT);
    assert_eq!(world.object()["Version"], "2");

    // What a removed object was made with is read again, to log in for its deletion.
    world.vault.requests();
    world.place.want(&[]);
    world.preview();
    assert_eq!(reads_of(&world.vault), 0, "a preview reads no value");
    let outcome = world
        .run(&["apply", "--yes", "--allow-empty", "--output", "json"])
        .run()
        .expect(0);
    world.found_nowhere(&outcome, "a deletion");
    assert_eq!(reads_of(&world.vault), 1);
    assert_eq!(world.place.calls().last().unwrap(), "delete one");
    let left: Vec<_> = std::fs::read_dir(world.place.temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A value in a plan or a state can be read by anyone who has the key of the state, for as long as the state is kept.
pub async fn a_place_that_terraform_keeps_is_refused(binary: PathBuf) {
    let world = World::new(binary).await;
    for (more, says, hint) in [
        (
            json!({"key": "ref+db://pay/db#/password"}),
            "`/key`",
            "write-only attribute",
        ),
        (
            json!({"value": "x ref+db://pay/db#/password"}),
            "`/value`",
            "write-only attribute",
        ),
        (
            json!({"secret_wo": "ref+db://pay/db#/password+ $kusion_path.terraform:builtin:terraform_data:other.input"}),
            "refers to a secret and to another resource",
            "alone",
        ),
        (
            json!({"secret_wo": "ref+db://other/db#/password"}),
            "may not read `other/db`",
            "allow",
        ),
        (
            json!({"secret_wo": "ref+generated://a#/b"}),
            "cannot be kept for Terraform",
            "random_password",
        ),
    ] {
        world.want(more.clone());
        for command in [&["preview"][..], &["apply", "--yes"]] {
            let outcome = world.run(command).run().expect(1);
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(said.contains(says) && said.contains(hint), "{more}: {said}");
            world.found_nowhere(&outcome, "a refusal");
        }
    }
    assert_eq!(world.place.calls(), Vec::<String>::new());
    assert!(
        world.place.book().await["resources"]
            .as_object()
            .is_none_or(|all| all.is_empty())
    );
}

/// A write-only attribute alone is no change for Terraform: the version beside it is.
pub async fn another_reference_waits_for_its_version(binary: PathBuf) {
    let world = World::new(binary).await;
    world.vault.put("pay/other", json!({"password": NEXT}));
    world.want(json!({"secret_wo_version": "1"}));
    world.apply();
    world.want(json!({"secret_wo_version": "1", "secret_wo": "ref+db://pay/other#/password"}));
    let plan = world.preview();
    assert_eq!(plan["summary"]["unchanged"], 1, "{plan}");
    world.apply();
    assert_eq!(world.object()["Secret"], VALUE);
    world.want(json!({"secret_wo_version": "2", "secret_wo": "ref+db://pay/other#/password"}));
    let plan = world.preview();
    let changes = plan["resources"][0]["changes"].as_array().unwrap();
    let change = changes
        .iter()
        .find(|change| change["path"] == "/secret_wo")
        .unwrap();
    assert_eq!(change["from"]["$secret"]["ref"], "db:pay/db#/password");
    assert_eq!(change["to"]["$secret"]["ref"], "db:pay/other#/password");
    assert_eq!(change["origin"], "change");
    world.apply();
    assert_eq!(world.object()["Secret"], NEXT);
}
