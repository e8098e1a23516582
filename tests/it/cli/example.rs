//! `konfig-example/` on a real API server, and the README's first command on a fresh machine.

use std::{collections::BTreeSet, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use konverge_base::model::{
    plan::Action,
    spec::{Resource, RuntimeKind},
};
use konverge_engine::spec;

use crate::support::{self, cluster::Cluster, git::Repository, process::Konverge, stack::TestStack};

#[tokio::test]
async fn every_object_of_the_example_is_taken_and_then_unchanged() {
    let cluster = Cluster::shared();
    let example = Repository::konfig_example();
    let files = support::compiler::folder(example.path());
    let (mut objects, mut secrets, mut applied) = (0, 0, BTreeSet::new());
    for (path, golden) in &files {
        let Some(folder) = path.as_str().strip_suffix("/ci-test/stdout.golden.yaml") else {
            continue;
        };
        let mut spec = spec::read_text(std::str::from_utf8(golden).unwrap(), folder).unwrap();
        // What two stacks of a project have in common (its CRDs; the Namespace and the Secret of its applications)
        // belongs to the first of them on a cluster. In the example each environment has a cluster.
        spec.resources.retain(|one| applied.insert(one.id.clone()));
        let own: BTreeSet<_> = spec.resources.iter().map(|one| one.id.clone()).collect();
        for one in &mut spec.resources {
            one.depends_on.retain(|id| own.contains(id));
        }
        secrets += replace_references(&mut spec.resources);
        // What refers to a bucket is left to the tests of mixed stacks.
        let of_terraform = |one: &Resource| one.runtime == RuntimeKind::Terraform;
        if spec.resources.iter().any(of_terraform) {
            continue;
        }
        objects += spec.resources.len();

        let mut stack = TestStack::new(&folder.replace('/', "-"), cluster.kubeconfig());
        let plan = stack.try_plan(&spec).await.unwrap();
        assert!(plan.failures.is_empty(), "{folder}: {:?}", plan.failures);
        let outcome = stack.carry_out(plan).await;
        assert!(outcome.error.is_none(), "{folder}: {outcome:?}");
        let again = stack.try_plan(&spec).await.unwrap();
        let changed: Vec<_> = again
            .public
            .resources
            .iter()
            .filter(|one| one.action != Action::Unchanged)
            .collect();
        assert!(changed.is_empty(), "{folder}: {changed:?}");
    }
    assert!(objects > 70, "the example has only {objects} objects");
    assert!(secrets >= 5, "the example has only {secrets} values of Secrets");
}

/// Expects that each value of a Secret is a reference, and puts a value there, as an apply would. Returns how many.
fn replace_references(resources: &mut [Resource]) -> usize {
    let secrets = resources
        .iter_mut()
        .filter(|one| one.attributes.get("kind").is_some_and(|kind| kind == "Secret"));
    let mut found = 0;
    for secret in secrets {
        for (place, value) in [
            ("stringData", "resolved".to_owned()),
            ("data", STANDARD.encode("resolved")),
        ] {
            let values = secret
                .attributes
                .get_mut(place)
                .and_then(|values| values.as_object_mut());
            for (key, text) in values.into_iter().flatten() {
                let written = text.as_str().unwrap().to_owned();
                let plain = match place {
                    "data" => String::from_utf8(STANDARD.decode(written).unwrap()).unwrap(),
                    _ => written,
                };
                assert!(
                    plain.starts_with("ref+"),
                    "{}: {key} is a literal value",
                    secret.id
                );
                *text = value.clone().into();
                found += 1;
            }
        }
    }
    found
}

/// The stacks of the example may use what they refer to, and another stack may not.
#[test]
fn the_references_of_the_example_are_admitted() {
    let example = Repository::konfig_example();
    let check = || {
        let stacks = ["check", "appops/orders/dev", "appops/orders/prod"];
        Konverge::new(stacks).with_kcl().dir(example.path()).run()
    };
    check().expect(0);
    let config = std::fs::read_to_string(example.path().join("konverge.yaml")).unwrap();
    let closed = config.replace(
        "stacks: appops/orders/*, paths: ORDERS_*",
        "stacks: appops/uploads/*, paths: ORDERS_*",
    );
    assert_ne!(config, closed);
    std::fs::write(example.path().join("konverge.yaml"), closed).unwrap();
    let refused = check().expect(1);
    let why = "may not read `ORDERS_DATABASE_PASSWORD` of the secret store `job`";
    assert_eq!(refused.stdout.matches(why).count(), 2, "{}", refused.stdout);
}

/// The preview of the change in the built-in monorepo, without a cluster or a repository around.
#[test]
fn the_demo_shows_a_change_and_its_preview() {
    let nowhere = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let demo = || {
        Konverge::new(["demo"])
            .dir(nowhere.path())
            .env("TMPDIR", scratch.path())
            .env("PATH", "/usr/bin:/bin")
    };
    let shown = demo().with_kcl().run().expect(0);
    for left_out in [
        "neither `terraform` nor `tofu` is on the PATH",
        "no cluster was named",
    ] {
        assert!(shown.stderr.contains(left_out), "{}", shown.stderr);
    }
    let shown = shown.stdout;
    for line in [
        "      -    cpu: str = \"100m\"",
        "      +    image = \"registry.example/storefront:2.4.0\"",
        "~ storefront/prod (appops/storefront/prod)",
        "    entry: appops/storefront/prod/main.k → appops/storefront/prod",
        "4 stacks affected.",
        "      +          image: registry.example/storefront:2.4.0",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    assert!(!shown.contains("failed"), "{shown}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{shown}");
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0, "{shown}");
    // Without the core it says what to type.
    let refused = demo().run().expect(1);
    assert!(
        refused.stderr.contains("konverge kcl install"),
        "{}",
        refused.stderr
    );
}

/// With Terraform and a cluster the demo applies, is stopped half-way and continues, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_applies_as_far_as_the_machine_lets_it() {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Cluster::with_controllers();
    let terraform = support::terraform::binary();
    let path = format!("{}:/usr/bin:/bin", terraform.parent().unwrap().display());
    let shown = Konverge::new(["demo", "--context", "test"])
        .with_kcl()
        .dir(scratch.path())
        .env("TMPDIR", scratch.path())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PATH", path)
        .limit(Duration::from_secs(300))
        .run()
        .expect(0);
    let shown = shown.stdout;
    let (_, terraform) = shown.split_once("two stacks of Terraform resources").unwrap();
    let (terraform, kubernetes) = terraform.split_once("two stacks of Kubernetes objects").unwrap();
    for part in [terraform, kubernetes] {
        let (stopped, rest) = part.split_once("==> konverge apply --pending").unwrap();
        let (next, rest) = rest.split_once("==> konverge status").unwrap();
        let (status, rest) = rest.split_once("==> konverge drift").unwrap();
        let (drift, destroyed) = rest.split_once("==> konverge destroy").unwrap();
        assert!(
            stopped.contains("live/network: applied") && !stopped.contains("live/app: applied"),
            "{stopped}"
        );
        assert!(
            next.contains("live/app: applied") && !next.contains("live/network"),
            "{next}"
        );
        assert!(
            status.contains("live/network") && status.contains("live/app"),
            "{status}"
        );
        assert!(
            status.contains("2 stacks: 2 applied and ready, 0 not."),
            "{status}"
        );
        assert!(!drift.contains("STACK"), "{drift}");
        assert_eq!(destroyed.matches(": applied").count(), 2, "{destroyed}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{shown}");
}

/// `make demo` in an empty home: the core is installed and the preview shown.
#[test]
#[ignore = "installs the core from PyPI and builds without the tests' features: `make test-all`"]
fn the_demo_runs_in_an_empty_home() {
    let home = std::env::var_os("HOME").unwrap();
    let of_rust = |variable: &str, folder: &str| {
        std::env::var_os(variable).unwrap_or_else(|| Path::new(&home).join(folder).into())
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bin = Path::new(env!("CARGO_BIN_EXE_konverge"));
    let target = bin.ancestors().nth(2).unwrap();
    let outcome = Konverge::of(Path::new("make"), ["demo"])
        .dir(root)
        .env("CARGO_HOME", of_rust("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", of_rust("RUSTUP_HOME", ".rustup"))
        .env("CARGO_TARGET_DIR", target)
        .limit(Duration::from_secs(1200))
        .run()
        .expect(0);
    assert!(
        outcome.stdout.contains("4 stacks affected."),
        "{}",
        outcome.stdout
    );
}
