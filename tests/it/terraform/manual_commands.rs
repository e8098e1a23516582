//! What holds for a person with the command line: protection, guardrails, stacks that no code knows, and how often an
//! error is said.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::cli_fixture::Place;
use crate::support::process::Outcome;

fn said(outcome: &Outcome) -> String {
    format!("{}\n{}", outcome.stdout, outcome.stderr)
}

fn says(outcome: &Outcome, words: &[&str]) {
    let said = said(outcome);
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

fn objects(place: &Place, names: &[&str]) -> Vec<Value> {
    names
        .iter()
        .map(|name| place.trace(name, json!({}), &[]))
        .collect()
}

pub async fn what_is_protected_is_not_destroyed(binary: PathBuf) {
    let place = Place::new(&binary);
    let protected = |value: bool| place.trace("kept", json!({"lifecycle": {"prevent_destroy": value}}), &[]);
    place.want(&[protected(true), place.trace("other", json!({}), &[])]);
    place.run("apply").arg("--yes").run().expect(0);
    let id = Place::trace_id("kept");

    place.want(&objects(&place, &["other"]));
    let refused = place.run("apply").arg("--yes").run().expect(3);
    says(
        &refused,
        &[
            &id,
            "prevent_destroy",
            "prevent_destroy: false",
            "konverge state forget shop/prod",
        ],
    );
    let refused = place.command(&["destroy", "shop/prod", "--yes"]).run().expect(3);
    says(&refused, &[&id, "prevent_destroy"]);
    assert_eq!(place.calls().len(), 2, "nothing was deleted: {:?}", place.calls());

    // The way out.
    place.want(&[protected(false), place.trace("other", json!({}), &[])]);
    place.run("apply").arg("--yes").run().expect(0);
    place.command(&["destroy", "shop/prod", "--yes"]).run().expect(0);
    let mut deleted = place.calls().split_off(2);
    deleted.sort();
    assert_eq!(deleted, ["delete kept", "delete other"]);
}

/// A replacement that `prevent_destroy` forbids, beside what has nothing to do with it.
pub async fn what_a_protection_forbids(binary: PathBuf) {
    let place = Place::new(&binary);
    let kept = |again: u32| {
        let mut kept = Place::data("kept", json!("x"), &[]);
        kept["attributes"]["triggers_replace"] = json!(again);
        kept["attributes"]["lifecycle"] = json!({"prevent_destroy": true});
        kept
    };
    let (kept_id, other_id) = (
        "terraform:builtin:terraform_data:kept",
        "terraform:builtin:terraform_data:other",
    );
    place.want(&[kept(1)]);
    place.run("apply").arg("--yes").run().expect(0);

    place.want(&[
        kept(2),
        Place::data("other", json!("y"), &[]),
        Place::data("waits", json!("z"), &[kept_id]),
    ]);
    let preview = place.run("preview").run();
    says(
        &preview,
        &[
            kept_id,
            "would be replaced, but `lifecycle.prevent_destroy` is set on it",
        ],
    );
    let applied = place.run("apply").arg("--yes").run();
    assert!(applied.code.is_some_and(|code| code != 0), "{applied:?}");
    says(
        &applied,
        &[
            &format!("`{kept_id}` would be replaced, but `lifecycle.prevent_destroy` is set on it"),
            "prevent_destroy: false",
        ],
    );
    assert!(
        !said(&applied).contains(&format!("`{other_id}`: ")),
        "{applied:?}"
    );
    let book = place.book().await;
    let held: Vec<_> = book["resources"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(held, [kept_id, other_id]);
}

/// The same file under another name of the resource: its creation comes before the deletion of the old one.
pub async fn a_rename_without_its_old_id(binary: PathBuf) {
    let place = Place::new(&binary);
    let file = |name: &str, at: &str| {
        let mut file = place.local("local_file", name, "hello", &[]);
        file["attributes"]["filename"] = json!(place.path(at));
        file
    };
    let (old, new) = ("hashicorp:local:local_file:old", "hashicorp:local:local_file:new");
    place.want(&[file("old", "f"), file("beside", "g")]);
    place.run("apply").arg("--yes").run().expect(0);

    // Another file is another object.
    place.want(&[file("other", "h"), file("beside", "g")]);
    let preview = place.run("preview").run().expect(0);
    assert!(!said(&preview).contains("moved-from"), "{preview:?}");

    place.want(&[file("new", "f"), file("beside", "g")]);
    let line = format!("write `konverge/moved-from: {old}` into the `extensions` of `{new}`");
    let preview = place.run("preview").run().expect(0);
    says(
        &preview,
        &[
            "warning: it seems to be the object of",
            "has the same `filename`",
            &line,
        ],
    );

    place.run("apply").arg("--yes").run().expect(0);
    assert!(!place.path("f").exists(), "the warning was true");
    let preview = place.run("preview").run().expect(0);
    says(
        &preview,
        &[&format!(
            "the deletion of `{old}`, which was the same object, has deleted it"
        )],
    );
    assert!(!said(&preview).contains("outside Konverge"), "{preview:?}");
    place.run("apply").arg("--yes").run().expect(0);
    assert!(place.path("f").exists());
    std::fs::remove_file(place.path("f")).unwrap();
    says(
        &place.run("preview").run().expect(0),
        &["it was deleted outside Konverge"],
    );

    // With the line, nothing is created and nothing goes.
    let mut renamed = file("newest", "f");
    renamed["extensions"]["konverge/moved-from"] = json!(new);
    place.run("apply").arg("--yes").run().expect(0);
    place.want(&[renamed, file("beside", "g")]);
    let preview = place.run("preview").run().expect(0);
    assert!(!said(&preview).contains("warning: it seems"), "{preview:?}");
    place.run("apply").arg("--yes").run().expect(0);
    assert!(place.path("f").exists());
}

pub async fn guardrails_hold_by_hand(binary: PathBuf) {
    let place = Place::with(
        &binary,
        json!({"policy": {"max_destructive": 1, "drift": "stop"}}),
    );
    place.want(&objects(&place, &["one", "two", "three"]));
    place.run("apply").arg("--yes").run().expect(0);
    place.want(&objects(&place, &["one"]));
    let refused = place.run("apply").arg("--yes").run().expect(3);
    says(
        &refused,
        &[
            "policy.max_destructive",
            "2 resources",
            "at most 1 is allowed",
            "terminal",
        ],
    );
    place.want(&objects(&place, &["one", "two"]));
    place.run("apply").arg("--yes").run().expect(0);
    // A person at a terminal is warned, and decides.
    place.want(&objects(&place, &["four"]));
    let by_hand = ["apply", "--spec", "spec.json", "--stack", "shop/prod"];
    let agreed = place.at_terminal(&by_hand).run().expect(0);
    says(
        &agreed,
        &["warning: shop/prod: policy.max_destructive: 2 resources"],
    );
    place.want(&objects(&place, &["one"]));
    place.run("apply").arg("--yes").run().expect(0);

    // Somebody changes an object, and then deletes it.
    let object = std::fs::read_dir(place.outside.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("one."))
        .unwrap();
    let text = std::fs::read_to_string(&object).unwrap();
    std::fs::write(&object, text.replace("\"Value\":null", "\"Value\":\"foreign\"")).unwrap();
    let refused = place.run("apply").arg("--yes").run().expect(3);
    says(
        &refused,
        &[
            "policy.drift",
            &Place::trace_id("one"),
            "konverge drift shop/prod",
        ],
    );
    std::fs::remove_file(&object).unwrap();
    let refused = place.run("apply").arg("--yes").run().expect(3);
    says(&refused, &["policy.drift", &Place::trace_id("one")]);
    assert_eq!(
        place
            .calls()
            .iter()
            .filter(|call| call.starts_with("update"))
            .count(),
        0,
        "nothing was put back"
    );
    // Someone who destroys a stack by its name means all of it.
    place.command(&["destroy", "shop/prod", "--yes"]).run().expect(0);
}

pub async fn stacks_that_no_code_knows(binary: PathBuf) {
    let place = Place::new(&binary).without_module();
    place.want(&objects(&place, &["one"]));
    place.run("apply").arg("--yes").run().expect(0);
    let drift = place.command(&["drift", "shop/prod"]).run().expect(1);
    says(
        &drift,
        &[
            "`shop/prod` cannot be compared",
            "--spec",
            "konverge preview --spec FILE --stack shop/prod",
        ],
    );
    let unknown = place
        .command(&["destroy", "shop/nowhere", "--yes"])
        .run()
        .expect(64);
    says(
        &unknown,
        &[
            "no state is recorded for a stack `shop/nowhere`",
            "konverge state list",
        ],
    );
    place.command(&["destroy", "shop/prod", "--yes"]).run().expect(0);
    assert_eq!(place.calls(), ["create one", "delete one"]);
}

pub async fn an_error_is_said_once(binary: PathBuf) {
    let place = Place::new(&binary);
    place.want(&[
        place.trace("one", json!({}), &[]),
        place.trace("two", json!({}), &["one"]),
    ]);
    std::fs::write(place.path("one.refuse-create"), "").unwrap();
    let refused = place.run("apply").arg("--yes").run().expect(1);
    let said = said(&refused);
    assert_eq!(said.matches("InstanceQuotaExceeded").count(), 1, "{said}");
    assert!(refused.stdout.contains("raise the quota"), "{said}");
}

pub async fn an_imported_state_names_its_objects(binary: PathBuf) {
    let place = Place::new(&binary);
    let resource = |name: &str, attributes: Value| json!({"id": format!("hashicorp:aws:aws_instance:{name}"), "type": "Terraform", "attributes": attributes});
    let state = json!({"project": "shop", "stack": "prod", "serial": 3, "resources": [
        resource("web", json!({"id": "i-0123\n::warning::x", "ami": "a"})),
        resource("nameless", json!({"ami": "a"})),
    ]});
    let file = place.path("kusion_state.json");
    std::fs::write(&file, state.to_string()).unwrap();
    let imported = place
        .command(&["state", "import", file.to_str().unwrap()])
        .run()
        .expect(0);
    let lines: Vec<_> = imported.stderr.lines().collect();
    assert!(
        lines.contains(&r#"  "kusionstack.io/import-id": "i-0123\n::warning::x""#),
        "{lines:#?}"
    );
    let nameless = lines
        .iter()
        .find(|line| line.contains("aws_instance:nameless"))
        .unwrap();
    assert!(nameless.contains("Kusion's state does not name"), "{nameless}");

    // The preview that follows would create what was left out, and says so.
    place.want(&objects(&place, &["web"]));
    let preview = place.run("preview").run().expect(0);
    says(
        &preview,
        &["were not imported", "instead of creating another one"],
    );
}

/// One stack made an object; another one imports it by its id, or already records it.
pub async fn a_second_adopter_is_told(binary: PathBuf) {
    let place = Place::new(&binary);
    place.want(&[Place::data("one", json!("x"), &[])]);
    place.run("apply").arg("--yes").run().expect(0);
    let state = place
        .command(&["state", "show", "shop/prod", "--output", "json"])
        .run()
        .expect(0)
        .json();
    assert!(
        state["state"]["resources"][0]["objectHash"].is_string(),
        "{state}"
    );
    let id = place.book().await["resources"]["terraform:builtin:terraform_data:one"]["entry"]["instances"][0]
        ["attributes"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(!state.to_string().contains(&id), "an id may be a secret: {state}");

    let mut second = Place::data("two", json!("x"), &[]);
    second["extensions"] = json!({"kusionstack.io/import-id": id});
    place
        .repository
        .write("second.json", json!({"resources": [second]}).to_string());
    let second = |command: &str| place.command(&[command, "--spec", "second.json", "--stack", "shop/second"]);
    let told = "stack `shop/prod` records an object of this type with the same id";
    says(
        &second("preview").run().expect(0),
        &[told, "konverge state forget shop/prod"],
    );
    says(&second("apply").arg("--yes").run().expect(0), &[told]);
    // Each of the two has it on record now, which nothing refuses: it may be another account's.
    let doctor = place.command(&["state", "doctor"]).run().expect(0);
    says(
        &doctor,
        &[
            "`terraform:builtin:terraform_data:two` has the same type and id at its provider as \
           `terraform:builtin:terraform_data:one` of stack `shop/prod`",
        ],
    );
    // A third one knows it by the import: that is certainly the same.
    let third = place
        .command(&["preview", "--spec", "second.json", "--stack", "shop/third"])
        .run()
        .expect(1);
    says(&third, &["stack `shop/second` has taken over the same object"]);
    // What shop/prod gave up is nobody else's any more.
    place
        .command(&[
            "state",
            "forget",
            "shop/second",
            "terraform:builtin:terraform_data:two",
        ])
        .run()
        .expect(0);
    place
        .command(&[
            "state",
            "forget",
            "shop/prod",
            "terraform:builtin:terraform_data:one",
        ])
        .run()
        .expect(0);
    let free = second("preview").run().expect(0);
    assert!(!said(&free).contains(told), "{}", said(&free));
}
