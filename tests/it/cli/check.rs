//! `konverge check` on the example, whole and broken in each way.

use serde_json::{Value, json};

use crate::support::{
    git::Repository,
    process::Konverge,
    shop_monorepo::{Shop, resource},
};

fn check(repository: &Repository) -> Konverge {
    Konverge::new(["check"]).dir(repository.path()).with_kcl()
}

/// What is found in one stack's files, as `rule file:line`.
fn found(repository: &Repository, code: i32) -> Vec<String> {
    let outcome = check(repository)
        .arg("appops/orders")
        .arg("--output=json")
        .run()
        .expect(code);
    let remarks = outcome.json()["remarks"].as_array().unwrap().clone();
    let line = |remark: &Value| {
        remark["line"]
            .as_u64()
            .map(|line| format!(":{line}"))
            .unwrap_or_default()
    };
    remarks
        .iter()
        .map(|remark| {
            format!(
                "{} {}{}",
                remark["rule"].as_str().unwrap(),
                remark["file"].as_str().unwrap(),
                line(remark)
            )
        })
        .collect()
}

#[test]
fn the_example_is_in_order() {
    let repository = Repository::konfig_example();
    let outcome = check(&repository).arg("--all").run().expect(0);
    assert!(outcome.stdout.contains(": 0 errors"), "{}", outcome.stdout);
}

#[test]
fn each_kind_of_fault_is_found_at_its_place() {
    let repository = Repository::konfig_example();
    let main = repository.read("appops/orders/dev/main.k");
    repository.write("appops/orders/dev/main.k", format!("{main}_x  = 1\n"));
    assert_eq!(found(&repository, 1), ["format appops/orders/dev/main.k"]);
    repository.write("appops/orders/dev/main.k", format!("{main}_x = = 1\n"));
    let line = main.lines().count() + 1;
    let compile = format!("compile appops/orders/dev/main.k:{line}");
    assert!(found(&repository, 1).contains(&compile), "{compile}");
    repository.write("appops/orders/dev/main.k", main);
    repository.write("appops/orders/dev/stack.yaml", "nmae: dev\n");
    let structure = found(&repository, 1);
    assert!(
        structure
            .iter()
            .any(|found| found.starts_with("structure appops/orders/dev/stack.yaml")),
        "{structure:?}"
    );
}

/// Shapes of imports that the core's linter takes for unused, because it sees a file alone.
#[test]
fn an_import_is_unused_only_if_its_package_does_not_use_it() {
    let repository = Repository::init();
    repository
        .write(
            "kcl.mod",
            "[package]\nname = \"shop\"\n[dependencies]\nlib = { path = \"third_party/lib\" }\n",
        )
        .write("third_party/lib/kcl.mod", "[package]\nname = \"lib\"\n")
        .write("third_party/lib/kinds/map.k", "schema Map:\n    name: str\n")
        .write("base/names/names.k", "PREFIX = \"shop\"\n")
        // Of another package, under another name, in a text, in the head of a schema.
        .write(
            "base/models/map.k",
            "import lib.kinds as k\nimport base.names\n\nschema Named(k.Map):\n    full: str = \"${names.PREFIX}-${name}\"\n",
        )
        // Of the file beside it, which has no import.
        .write("base/models/imports.k", "import lib.kinds as shared\n")
        .write("base/models/uses.k", "other = shared.Map {name = \"a\"}\n")
        // Not used, and written twice.
        .write(
            "base/other/other.k",
            "import base.names\nimport lib.kinds\nimport lib.kinds\n\none = kinds.Map {name = \"names.PREFIX\"}\n",
        )
        .write("shop/project.yaml", "name: shop\n")
        .write("shop/dev/stack.yaml", "name: dev\n")
        .write("shop/dev/kcl.yaml", "kcl_cli_configs:\n  files: [../base.k, main.k]\n")
        // Entries of one program share their imports; nothing uses `math`, and a module is imported under two names.
        .write("shop/base.k", "import base.models\nimport math\n")
        .write(
            "shop/dev/main.k",
            "import base.other\nimport base.names\nimport ...base.names as again\n\nresources = []\n_a = models.Named {name = other.one.name}\n_b = names.PREFIX + again.PREFIX\n",
        )
        .commit("Imports");
    let outcome = check(&repository).arg("--all").arg("--output=json").run();
    let outcome = outcome.json()["remarks"].as_array().unwrap().clone();
    let found: Vec<_> = outcome
        .iter()
        .filter(|remark| remark["rule"] == "lint")
        .map(|remark| {
            format!(
                "{}:{} {}",
                remark["file"].as_str().unwrap(),
                remark["line"],
                remark["message"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "base/other/other.k:1 the import `base.names` is not used",
            "base/other/other.k:3 the import `lib.kinds` is written twice",
            "shop/base.k:2 the import `math` is not used",
            "shop/dev/main.k:3 the import `...base.names` is written twice"
        ],
        "{outcome:?}"
    );
    assert!(
        outcome.iter().all(|remark| remark["rule"] != "compile"),
        "{outcome:?}"
    );
}

#[test]
fn a_failing_test_of_the_repository_is_an_error() {
    let repository = Repository::konfig_example();
    repository.write(
        "base/pkg/spec/broken_test.k",
        "test_nothing_holds = lambda {\n    assert 1 == 2, \"boo\"\n}\n",
    );
    assert_eq!(found(&repository, 1), ["test base/pkg/spec/broken_test.k:2"]);
}

#[test]
fn what_depends_on_the_clock_is_a_warning() {
    let repository = Repository::konfig_example();
    repository.write(
        "base/pkg/spec/clock.k",
        "import datetime\n\nnow = datetime.now()\n",
    );
    assert_eq!(found(&repository, 0), ["irreproducible base/pkg/spec/clock.k:3"]);
}

#[test]
fn a_file_imported_by_itself_and_with_its_package_is_a_warning() {
    let repository = Repository::konfig_example();
    repository.write("base/pkg/pair/one.k", "one = 1\n");
    repository.write("base/pkg/pair/two.k", "two = 2\n");
    let main = repository.read("appops/orders/dev/main.k");
    let with = |imports: &str| {
        let text = main.replace(
            "import base.pkg.frontend\n",
            &format!("import base.pkg.frontend\n{imports}"),
        );
        repository.write(
            "appops/orders/dev/main.k",
            format!("{text}_sum = pair.one + two.two\n"),
        );
    };
    // Either alone is right, and so are both in programs of their own.
    for (imports, value) in [
        ("import base.pkg.pair\n", "pair.one"),
        ("import base.pkg.pair.two\n", "two.two"),
    ] {
        let text = main.replace(
            "import base.pkg.frontend\n",
            &format!("import base.pkg.frontend\n{imports}"),
        );
        repository.write("appops/orders/dev/main.k", format!("{text}_sum = {value}\n"));
        assert_eq!(found(&repository, 0), Vec::<String>::new(), "{imports}");
    }
    with("import base.pkg.pair\nimport base.pkg.pair.two\n");
    let line = main
        .lines()
        .position(|line| line == "import base.pkg.frontend")
        .unwrap()
        + 3;
    assert_eq!(
        found(&repository, 0),
        [format!("irreproducible appops/orders/dev/main.k:{line}")]
    );
    let told = check(&repository).arg("appops/orders").run().expect(0).stdout;
    assert!(
        told.contains("`base/pkg/pair/two.k` by itself") && told.contains("`import base.pkg.pair`"),
        "{told}"
    );
    // The package may be imported by another file of the program.
    repository.write(
        "base/pkg/other/other.k",
        "import base.pkg.pair\n\nother = pair.one\n",
    );
    with("import base.pkg.other as pair\nimport base.pkg.pair.two\n");
    let text = repository
        .read("appops/orders/dev/main.k")
        .replace("pair.one", "pair.other");
    repository.write("appops/orders/dev/main.k", text);
    assert_eq!(
        found(&repository, 0),
        [format!("irreproducible appops/orders/dev/main.k:{line}")]
    );
}

#[test]
fn a_golden_file_that_differs_is_shown_and_rewritten_on_request() {
    let repository = Repository::konfig_example();
    let golden = "appops/orders/dev/ci-test/stdout.golden.yaml";
    let text = repository.read(golden);
    repository.write(golden, text.replace("LOG_LEVEL: debug", "LOG_LEVEL: info"));
    let outcome = check(&repository).arg("appops/orders/dev").run().expect(1);
    assert!(
        outcome.stdout.contains("~ v1:ConfigMap:orders-dev:orders-env"),
        "{}",
        outcome.stdout
    );
    assert!(
        outcome
            .stdout
            .contains("konverge check --update appops/orders/dev"),
        "{}",
        outcome.stdout
    );
    check(&repository)
        .arg("appops/orders/dev")
        .arg("--update")
        .run()
        .expect(0);
    check(&repository).arg("appops/orders/dev").run().expect(0);
    assert!(repository.read(golden).contains("LOG_LEVEL: debug"));
}

#[test]
fn sarif_and_annotations_carry_the_place() {
    let repository = Repository::konfig_example();
    repository.write(
        "base/pkg/spec/broken_test.k",
        "test_x = lambda {\n    assert False, \"boo\"\n}\n",
    );
    let sarif = check(&repository).args_output("sarif").expect(1).json();
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "base/pkg/spec/broken_test.k");
    assert_eq!(place["region"]["startLine"], 2);
    let lines = check(&repository).args_output("annotations").expect(1).stdout;
    assert!(
        lines.starts_with("::error file=base/pkg/spec/broken_test.k,line=2,"),
        "{lines}"
    );
}

trait Output {
    fn args_output(self, output: &str) -> crate::support::process::Outcome;
}

impl Output for Konverge {
    fn args_output(self, output: &str) -> crate::support::process::Outcome {
        self.arg("appops/orders/dev").arg("--output").arg(output).run()
    }
}

/// What the schemas say, as `message file`.
fn schema_faults(repository: &Repository, stack: &str, code: i32) -> Vec<String> {
    let outcome = check(repository)
        .arg(stack)
        .arg("--output=json")
        .run()
        .expect(code);
    let remarks = outcome.json()["remarks"].as_array().unwrap().clone();
    let of_schema = remarks.iter().filter(|remark| remark["rule"] == "schema");
    of_schema
        .map(|remark| {
            format!(
                "{} {}",
                remark["message"].as_str().unwrap(),
                remark["file"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn rendered_objects_are_held_against_the_schemas_of_kubernetes() {
    let repository = Repository::konfig_example();
    repository.replace(
        "base/pkg/backend/server.k",
        "replicas = s.replicas",
        "replica = \"${s.replicas}\"",
    );
    let stack = "appops/storefront/dev";
    let fault = "apps/v1:Deployment:storefront-dev:storefront: spec.replica: is not a field of this kind; did you mean `replicas`?";
    assert_eq!(
        schema_faults(&repository, stack, 1),
        [format!("{fault} {stack}/main.k")]
    );
    let print = |output: &str| {
        let run = check(&repository)
            .arg(stack)
            .arg_all(["--skip=golden", "--skip=test", "--output", output]);
        run.run().expect(1)
    };
    let text = print("text").stdout;
    assert!(
        text.contains(&format!(
            "error[schema] {stack}/main.k\n    {fault}\n    hint: compared with Kubernetes v1."
        )),
        "{text}"
    );
    let result = &print("sarif").json()["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "schema");
    let message = result["message"]["text"].as_str().unwrap();
    let hint = format!("{fault}\nhint: compared with Kubernetes v1.");
    assert!(message.starts_with(&hint), "{message}");
    let lines = print("annotations").stdout;
    assert!(
        lines.contains(&format!("::error file={stack}/main.k,title=konverge schema::")),
        "{lines}"
    );
    let skipped = check(&repository)
        .arg(stack)
        .arg_all(["--skip=golden", "--skip=test", "--skip=schema"])
        .run()
        .expect(0);
    assert!(!skipped.stdout.contains("schema"), "{}", skipped.stdout);
}

#[test]
fn custom_resources_are_held_against_the_repositorys_definitions() {
    let repository = Repository::konfig_example();
    repository.replace(
        "base/pkg/backend/rules.k",
        "interval = r.interval",
        "intervall = r.interval",
    );
    let found = schema_faults(&repository, "appops/alerts/dev", 1);
    assert!(
        found[0].contains("spec.groups[0].intervall: is not a field of this kind; did you mean `interval`?"),
        "{found:?}"
    );
    // The definition itself is an object of a kind that is known, in a file of its own.
    repository.replace(
        "appops/alerts/crd/prometheusrule.yaml",
        "scope: Namespaced",
        "scoop: Namespaced",
    );
    let found = schema_faults(&repository, "appops/alerts/dev", 1);
    let own: Vec<_> = found
        .iter()
        .filter(|fault| fault.ends_with(" appops/alerts/crd/prometheusrule.yaml"))
        .collect();
    assert_eq!(own.len(), 2, "{found:?}");
    assert!(
        own.iter().any(|fault| fault.contains("spec.scope: is required")),
        "{found:?}"
    );
    repository.write("appops/alerts/crd/prometheusrule.yaml", "a: [\n");
    let outcome = check(&repository).arg("appops/alerts/dev").run().expect(1).stdout;
    assert!(
        outcome.contains("error[compile] appops/alerts/crd/prometheusrule.yaml:"),
        "{outcome}"
    );
    // Without any definition it is said that nothing was checked.
    repository.git(["rm", "-q", "--force", "appops/alerts/crd/prometheusrule.yaml"]);
    let outcome = check(&repository).arg("appops/alerts/dev").run();
    assert!(
        outcome
            .stderr
            .contains("no schema is known for monitoring.coreos.com/v1 PrometheusRule"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn each_reference_to_a_secret_that_an_apply_would_refuse_is_named() {
    let config = "secrets: {stores: {job: {kind: env, allow: [{stacks: 'apps/shop/*', paths: 'PAY_*'}]}}}\n";
    let shop = Shop::new(config, &[]);
    let object = |kind: &str, name: &str, texts: serde_json::Value| {
        let key = if kind == "Secret" { "stringData" } else { "data" };
        resource(
            &json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "pay"}, key: texts}),
        )
    };
    let good = object(
        "Secret",
        "good",
        json!({"a": "ref+job://PAY_DB", "b": "ref+env://PAY_TOKEN"}),
    );
    shop.wants("prod", std::slice::from_ref(&good));
    let check = [
        "check", "--all", "--skip", "golden", "--skip", "schema", "--skip", "format", "--output", "json",
    ];
    assert_eq!(shop.run(&check).expect(0).json()["remarks"], json!([]));

    let secret = json!({"a": "ref+vualt://pay/db#/password", "b": "ref+job://HOME", "c": "ref://none", "d": "ref+job://PAY_DB"});
    let plain = object("ConfigMap", "plain", json!({"a": "ref+job://PAY_DB"}));
    shop.wants("prod", &[good, object("Secret", "pay", secret), plain]);
    let remarks = shop.run(&check).expect(1).json()["remarks"].take();
    let found: Vec<_> = remarks
        .as_array()
        .unwrap()
        .iter()
        .map(|remark| {
            assert_eq!(
                (&remark["rule"], &remark["file"]),
                (&json!("secrets"), &json!("apps/shop/prod/stack.yaml"))
            );
            assert!(remark["hint"].is_string(), "{remark}");
            remark["message"].as_str().unwrap().to_owned()
        })
        .collect();
    for (at, why) in [
        (
            "v1:ConfigMap:pay:plain: attributes/data/a",
            "a secret is not allowed in this field",
        ),
        (
            "v1:Secret:pay:pay: attributes/stringData/a",
            "there is no secret store `vualt`",
        ),
        (
            "v1:Secret:pay:pay: attributes/stringData/b",
            "may not read `HOME`",
        ),
        (
            "v1:Secret:pay:pay: attributes/stringData/c",
            "no default secret store",
        ),
    ] {
        assert!(
            found
                .iter()
                .any(|message| message.starts_with(at) && message.contains(why)),
            "{at} {why}: {found:#?}"
        );
    }
    assert_eq!(found.len(), 4, "{found:#?}");
    shop.konverge(&check)
        .arg_all(["--skip", "secrets"])
        .run()
        .expect(0);
}
