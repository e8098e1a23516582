//! Golden files hold what `build` prints, keep their layout, and are missed where they are gone.

use crate::support::{git::Repository, process::Konverge};

const STACK: &str = "appops/orders/dev";
const GOLDEN: &str = "appops/orders/dev/ci-test/stdout.golden.yaml";

fn check(repository: &Repository, arguments: &[&str], code: i32) -> String {
    let outcome = Konverge::new([&["check"], arguments].concat())
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(code);
    outcome.stdout + &outcome.stderr
}

#[test]
fn a_golden_holds_what_build_prints_with_the_definitions_of_the_project() {
    let repository = Repository::konfig_example();
    let built = Konverge::new(["build", "appops/alerts/dev"])
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0);
    let golden = "appops/alerts/dev/ci-test/stdout.golden.yaml";
    repository.write(golden, &built.stdout);
    check(&repository, &["appops/alerts/dev"], 0);
    let definition = built
        .stdout
        .find("- id: apiextensions.k8s.io/v1:CustomResourceDefinition")
        .unwrap();
    repository.write(golden, &built.stdout[..definition]);
    let said = check(&repository, &["appops/alerts/dev"], 1);
    assert!(
        said.contains(
            "+ apiextensions.k8s.io/v1:CustomResourceDefinition:prometheusrules.monitoring.coreos.com"
        ),
        "{said}"
    );
}

#[test]
fn a_difference_names_resource_and_field_and_empty_is_as_absent() {
    let repository = Repository::konfig_example();
    let text = repository.read(GOLDEN);
    repository.write(
        GOLDEN,
        text.replacen("  type: Kubernetes\n", "  type: Kubernetes\n  dependsOn: []\n", 1),
    );
    check(&repository, &[STACK], 0);
    repository.write(
        GOLDEN,
        text.replace("LOG_LEVEL: debug", "LOG_LEVEL: info\n      MORE: []"),
    );
    let said = check(&repository, &[STACK], 1);
    assert!(
        said.contains("~ v1:ConfigMap:orders-dev:orders-env: data.LOG_LEVEL: \"info\" → \"debug\"\n"),
        "{said}"
    );
}

#[test]
fn an_update_keeps_the_layout_and_what_did_not_change() {
    let repository = Repository::konfig_example();
    let text = repository.read(GOLDEN);
    // A list, as Konfig has had them since 2023, with a remark and a style of its own.
    let list = text
        .strip_prefix("resources:\n")
        .unwrap()
        .replace("LOG_LEVEL: debug", "LOG_LEVEL: info")
        .replacen("    kind: Namespace\n", "    kind: 'Namespace' # by hand\n", 1);
    repository.write(GOLDEN, format!("# Looked at by the owners.\n{list}"));
    let said = check(&repository, &["--update", STACK], 0);
    assert!(said.contains(&format!("{GOLDEN} is written")), "{said}");
    let updated = repository.read(GOLDEN);
    assert!(
        updated.starts_with("# Looked at by the owners.\n- id: v1:Namespace:orders-dev\n"),
        "{updated}"
    );
    assert!(updated.contains("kind: 'Namespace' # by hand\n"), "{updated}");
    assert!(updated.contains("LOG_LEVEL: debug"), "{updated}");
    let said = check(&repository, &["--update", STACK], 0);
    assert!(!said.contains("is written"), "{said}");
}

#[test]
fn a_golden_that_is_gone_is_missed() {
    let repository = Repository::konfig_example();
    // Of a change: an error. A golden is not an input of its stack, which is looked at all the same.
    repository.git(["rm", "-q", GOLDEN]);
    let said = check(&repository, &[], 1);
    assert!(
        said.contains(&format!("error[golden] {GOLDEN}\n    was deleted")),
        "{said}"
    );
    assert!(said.contains("1 stack checked: 1 error, "), "{said}");
    // For good: a warning where the others have one.
    repository.commit("Without a golden");
    let said = check(&repository, &[STACK], 0);
    assert!(
        said.contains(&format!("warning[golden] {GOLDEN}\n    does not exist; ")),
        "{said}"
    );
    check(&repository, &["--update", STACK], 0);
    assert!(repository.read(GOLDEN).starts_with("resources:\n"));
    // An edit of the golden alone is compared.
    repository.commit("Again");
    repository.replace(GOLDEN, "LOG_LEVEL: debug", "LOG_LEVEL: info");
    assert!(check(&repository, &[], 1).contains("error[golden]"));
    // One that no stack has any more.
    repository.git(["checkout", "-q", "."]);
    repository.git(["rm", "-q", "appops/orders/dev/stack.yaml"]);
    let said = check(&repository, &["--all"], 0);
    assert!(
        said.contains(&format!("warning[structure] {GOLDEN}\n    belongs to no stack")),
        "{said}"
    );
}
