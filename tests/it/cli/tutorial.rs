//! Pages that are typed line for line: docs/tutorial.md on a real API server, docs/guides/add-an-application.md, and
//! the README of konfig-example.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use konverge_policy::CodeOwners;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{
    meta::docs::{blocks, root},
    support::{
        cluster::Cluster,
        git::Repository,
        process::{Konverge, Outcome},
    },
};

/// A shell in the monorepo, with `konverge` on the path.
struct Shell<'a> {
    monorepo: &'a Repository,
    state: tempfile::TempDir,
    kubeconfig: String,
}

impl Shell<'_> {
    fn type_in(&self, line: &str) -> Outcome {
        let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(self.monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("XDG_STATE_HOME", self.state.path());
        for who in ["AUTHOR", "COMMITTER"] {
            shell = shell.env(&format!("GIT_{who}_NAME"), "S");
            shell = shell.env(&format!("GIT_{who}_EMAIL"), "s@example.com");
        }
        shell.run().expect(0)
    }
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_goes_from_a_branch_to_drift_and_back() {
    let cluster = Cluster::start();
    cluster.start_controllers();
    let page = page("tutorial.md");
    let config = blocks(&page, "yaml").remove(0);
    let monorepo = Repository::konfig_example();
    monorepo.write("konverge.yaml", config.replace("kind-konverge", "test"));
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let shell = Shell {
        monorepo: &monorepo,
        state: tempfile::tempdir().unwrap(),
        kubeconfig,
    };
    let files = ["appops/hello/base/base.k", "appops/hello/dev/main.k"];
    let kcl = blocks(&page, "python");
    assert_eq!(kcl.len(), files.len());

    let mut told = Vec::new();
    for line in blocks(&page, "sh").join("\n").lines() {
        if line.starts_with("konverge check --update") && told.len() < 12 {
            for (file, text) in files.iter().zip(&kcl) {
                monorepo.write(file, format!("{text}\n"));
            }
        }
        if line == "konverge drift hello/dev" {
            // kubectl scale
            let deployments: Api<Deployment> = Api::namespaced(cluster.client().await, "hello-dev");
            let by_hand = PatchParams {
                field_manager: Some("kubectl".to_owned()),
                ..PatchParams::default()
            };
            let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
            deployments.patch("hello", &by_hand, &three).await.unwrap();
        }
        let outcome = shell.type_in(line);
        told.push((line.to_owned(), outcome.stdout));
    }
    let of = |line: &str| {
        let found: Vec<_> = told
            .iter()
            .filter(|(typed, _)| typed == line)
            .map(|(_, told)| told.as_str())
            .collect();
        assert!(!found.is_empty(), "the tutorial has no `{line}` any more");
        found.join("\n")
    };
    assert!(of("konverge affected").contains("hello/dev"), "{told:#?}");
    let preview = of("konverge preview");
    for kind in ["Namespace", "ServiceAccount", "Service", "Deployment"] {
        assert!(
            preview.contains("create ") && preview.contains(kind),
            "{kind}: {preview}"
        );
    }
    assert!(of("konverge preview --output markdown").starts_with("<!-- konverge:v1 "));
    let drift = of("konverge drift hello/dev");
    assert!(
        drift.contains("replicas: 3") && drift.contains("kubectl"),
        "{drift}"
    );
    assert!(!of("konverge drift hello/dev --exit-code").contains("replicas"));
    assert!(
        of("konverge state history hello/dev").contains("     3  apply"),
        "{told:#?}"
    );
    let plan = of("konverge state diff hello/dev 3 1");
    assert!(plan.contains("1.27-alpine"), "{plan}");
    assert!(
        of("konverge destroy hello/dev --yes").contains("hello"),
        "{told:#?}"
    );
}

#[test]
fn an_application_is_added_in_ten_lines() {
    let monorepo = Repository::konfig_example();
    let shell = Shell {
        monorepo: &monorepo,
        state: tempfile::tempdir().unwrap(),
        kubeconfig: "/nonexistent".to_owned(),
    };
    let page = page("guides/add-an-application.md");
    let blocks = blocks(&page, "sh");
    let (ten, stack) = (&blocks[0], &blocks[1]);
    assert!(ten.lines().count() <= 10, "{ten}");
    for line in ten.lines() {
        shell.type_in(line);
    }
    let told = shell.type_in("konverge affected --base HEAD~1").stdout;
    assert!(told.contains("+ hello/dev"), "{told}");
    // A stack for production is refused by the policy until it has two replicas.
    let lines: Vec<_> = stack.lines().collect();
    for line in &lines[..lines.len() - 1] {
        shell.type_in(line);
    }
    let update = ["check", "--update", "appops/hello/prod"];
    let refused = Konverge::new(update)
        .dir(monorepo.path())
        .with_kcl()
        .run()
        .expect(1);
    assert!(
        format!("{}{}", refused.stdout, refused.stderr).contains("policy prod-replicas"),
        "{}",
        refused.stdout
    );
    monorepo.replace(
        "appops/hello/prod/main.k",
        "{\n    image",
        "{\n    replicas = 2\n    image",
    );
    shell.type_in(lines[lines.len() - 1]);
}

/// The README of the example: ten lines for an application, a policy that refuses, `make check` by konverge itself.
#[test]
fn the_readme_of_the_example_holds() {
    let monorepo = Repository::konfig_example();
    let shell = Shell {
        monorepo: &monorepo,
        state: tempfile::tempdir().unwrap(),
        kubeconfig: "/nonexistent".to_owned(),
    };
    let page = std::fs::read_to_string(root().join("konfig-example/README.md")).unwrap();
    let mut told = String::new();
    for block in blocks(&page, "sh") {
        for line in block.lines() {
            let outcome = shell.type_in(line);
            told.push_str(&outcome.stdout);
            told.push_str(&outcome.stderr);
        }
    }
    let refusal = "policy no-latest: the tag latest means something else every day";
    assert!(page.contains(refusal) && told.contains(refusal), "{told}");
    assert!(told.contains("refused\n"), "{told}");
    assert!(told.contains("~ storefront/prod"), "{told}");
    assert!(
        monorepo
            .read("appops/storefront/prod/ci-test/stdout.golden.yaml")
            .contains("storefront:2.4.0"),
        "`make golden` accepts the new Spec"
    );
}

/// Each folder of the example has owners, so that `reviewers: [CODEOWNERS]` can be satisfied.
#[test]
fn each_stack_of_the_example_has_owners() {
    let monorepo = Repository::konfig_example();
    let owners = CodeOwners::read(&monorepo.read(".github/CODEOWNERS"));
    let of = |path: &str| owners.owners(path).to_vec();
    assert_eq!(of("appops/orders/prod/main.k"), ["example/orders"]);
    assert_eq!(of("appops/storefront/prod/main.k"), ["example/developers"]);
    for path in [
        "konverge.yaml",
        ".github/workflows/konverge.yml",
        "base/pkg/policy/policy.k",
    ] {
        assert_eq!(of(path), ["example/platform"], "{path}");
    }
    assert!(monorepo.read("konverge.yaml").contains("reviewers: [CODEOWNERS]"));
}
