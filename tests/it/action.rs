//! The action: its inputs reach the program as the runner hands them on, and its metadata says what there is.

use serde_json::Value;

use crate::support::{git::Repository, process::Konverge};

/// The action's inputs reach the program as the runner hands them on.
#[test]
fn inputs_of_the_action_are_obeyed() {
    let monorepo = Repository::konfig_example();
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = monorepo.path().file_name().unwrap().to_owned();
    let outcome = Konverge::new(["build", "storefront/dev"])
        .with_kcl()
        .dir(monorepo.path().parent().unwrap())
        .env("INPUT_WORKING-DIRECTORY", &folder)
        .env("INPUT_REVIEW-KEY", "")
        .run();
    let outcome = outcome.expect(0);
    assert!(outcome.stdout.contains("Deployment"), "{}", outcome.stdout);
    let wrong = Konverge::new(["ci"])
        .dir(elsewhere.path())
        .env("INPUT_LIVE", "perhaps")
        .run();
    let wrong = wrong.expect(64);
    assert!(wrong.stderr.contains("perhaps"), "{}", wrong.stderr);
    let action =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("action.yml")).unwrap();
    let action: Value = konverge::yaml::from_str(&action).unwrap();
    let inputs: Vec<_> = action["inputs"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        inputs,
        [
            "command",
            "github-token",
            "working-directory",
            "live",
            "review-key",
            "age-identity"
        ]
    );
}
