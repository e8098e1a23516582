//! Values from one stack to another, through pull request, review and merge. GitHub is played by the fake, the API
//! server and Terraform are real.

use serde_json::Value;

use crate::{
    meta::docs::{blocks, root},
    support::{
        ci_stage::{Ran, Stage},
        process::Outcome,
        terraform, tiny_monorepo,
    },
};

fn with_terraform(more: &str) -> String {
    format!(
        "terraform: {{binary: '{}'}}\n{more}",
        terraform::binary().display()
    )
}

/// Writes a stack that reads others.
pub(super) fn reading(stage: &Stage, id: &str, reads: &str, program: &str) {
    tiny_monorepo::write_program(&stage.monorepo, id, program);
    let (project, name) = id.split_once('/').unwrap();
    let manifest = format!("name: {name}\nreads: {reads}\n");
    stage
        .monorepo
        .write(&format!("appops/{project}/{name}/stack.yaml"), manifest);
}

/// A program of one value of Terraform that publishes the value and its id.
fn terraform_data(name: &str, input: &str) -> String {
    format!(
        "resources = [{{id = \"terraform:builtin:terraform_data:{name}\", type = \"Terraform\", attributes = {{input = {input}}}, extensions = {{\"konverge/outputs\" = {{endpoint = \"output\", id = \"id\"}}}}}}]\n"
    )
}

/// A program of one ConfigMap that publishes its version.
pub(super) fn config_map(name: &str, value: &str) -> String {
    format!(
        "resources = [{{id = \"v1:ConfigMap:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{name}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}, extensions = {{\"konverge/outputs\" = {{version = \"metadata.resourceVersion\"}}}}}}]\n"
    )
}

fn comment(stage: &Stage) -> String {
    stage.comments().last().unwrap().1.clone()
}

pub(super) fn konverge(stage: &Stage, arguments: &[&str]) -> Outcome {
    let run = stage
        .konverge(arguments.iter().copied())
        .dir(stage.monorepo.path());
    let run = stage
        .env
        .iter()
        .fold(run, |run, (key, value)| run.env(key, value));
    run.run()
}

/// What `state outputs` says of an output.
pub(super) fn output(stage: &Stage, stack: &str, name: &str) -> Value {
    let told = konverge(stage, &["state", "outputs", stack, "-o", "json"])
        .expect(0)
        .json();
    let outputs = told["outputs"].as_array().unwrap();
    outputs
        .iter()
        .find(|output| output["name"] == name)
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_three_is_applied_in_one_merge_and_follows_its_first_value() {
    let mut stage = Stage::small(&with_terraform("")).await;
    let (_, ran) = stage.reviewed(7, "made", |stage| {
        tiny_monorepo::write_program(
            &stage.monorepo,
            "o-chain/database",
            &terraform_data("db", "\"one.local\""),
        );
        let web = config_map("o-chain-web", "pg://$stack_output.db.endpoint/shop");
        reading(stage, "o-chain/web", "{db: o-chain/database}", &web);
        let dns = terraform_data(
            "dns",
            "{to = \"$stack_output.web.version\", key = \"$stack_output.db.id\"}",
        );
        reading(
            stage,
            "o-chain/dns",
            "{web: o-chain/web, db: o-chain/database}",
            &dns,
        );
    });
    let shown = comment(&stage);
    println!("{shown}\n{}", ran.outcome.stderr);
    stage.merge(7, "made").outcome.check(0);
    let value = stage.value("o-chain-web").await;
    assert_eq!(value.as_deref(), Some("pg://one.local/shop"));
    let dns = output(&stage, "o-chain/dns", "endpoint");
    let id = output(&stage, "o-chain/database", "id");
    let version = output(&stage, "o-chain/web", "version");
    assert_eq!(dns["value"]["to"], version["value"]);
    assert_eq!(dns["value"]["key"], id["value"]);
    let readers: Vec<_> = id["readers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reader| &reader["stack"])
        .collect();
    assert_eq!(readers, ["o-chain/dns"]);

    let (_, ran) = stage.reviewed(8, "moved", |stage| {
        tiny_monorepo::write_program(
            &stage.monorepo,
            "o-chain/database",
            &terraform_data("db", "\"two.local\""),
        );
    });
    println!("{}\n{}", comment(&stage), ran.outcome.stderr);
    let ran: Ran = stage.merge(8, "moved");
    println!("{}\n{}", ran.outcome.stdout, ran.outcome.stderr);
    ran.outcome.check(0);
    assert_eq!(
        stage.value("o-chain-web").await.as_deref(),
        Some("pg://two.local/shop")
    );
    let now = output(&stage, "o-chain/web", "version");
    assert_ne!(now["value"], version["value"]);
    let dns = output(&stage, "o-chain/dns", "endpoint");
    assert_eq!(dns["value"]["to"], now["value"]);
}

/// A ConfigMap `writer` that publishes its version, and one `reader` that holds it.
pub(super) async fn version_read(name: &str) -> Stage {
    let mut stage = Stage::small("").await;
    let (writer, reader) = (format!("{name}/writer"), format!("{name}/reader"));
    stage.reviewed(7, "made", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, &writer, &config_map(&format!("{name}-w"), "one"));
        let program = config_map(&format!("{name}-r"), "is $stack_output.w.version");
        reading(stage, &reader, &format!("{{w: {writer}}}"), &program);
    });
    stage.merge(7, "made").outcome.check(0);
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_moved_without_a_review_stops_its_readers_until_the_digest_is_approved() {
    let mut stage = version_read("o-moved").await;
    let first = stage.value("o-moved-r").await.unwrap();
    // Somebody changes the writer and it is put back: its version is another one.
    stage.by_hand("o-moved-w", Some("other")).await;
    konverge(&stage, &["apply", "o-moved/writer", "--yes"]).expect(0);
    let moved = output(&stage, "o-moved/writer", "version");
    assert_eq!(moved["readers"][0]["current"], false);

    let stopped = stage.again();
    assert_ne!(stopped.outcome.code, Some(0), "{}", stopped.outcome.stdout);
    assert_eq!(stage.value("o-moved-r").await.unwrap(), first);
    let digest = stopped.digest();
    stage.approve(&digest).outcome.check(0);
    let value = format!("is {}", moved["value"].as_str().unwrap());
    assert_eq!(stage.value("o-moved-r").await.unwrap(), value);
    assert_eq!(
        output(&stage, "o-moved/writer", "version")["readers"][0]["current"],
        true
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_says_that_an_output_has_changed_and_does_not_put_the_new_value_in_place() {
    let stage = version_read("o-drift").await;
    let first = stage.value("o-drift-r").await.unwrap();
    stage.by_hand("o-drift-w", Some("other")).await;
    konverge(&stage, &["apply", "o-drift/writer", "--yes"]).expect(0);
    let told = konverge(&stage, &["drift", "o-drift/reader"]);
    assert!(
        told.stderr
            .contains("an output that it reads has changed since it was applied: version of o-drift/writer"),
        "{}\n{}",
        told.stdout,
        told.stderr
    );
    let restored = konverge(&stage, &["apply", "o-drift/reader", "--recorded", "--yes"]);
    assert_ne!(restored.code, Some(0));
    assert!(
        restored.stdout.contains("apply the stack instead"),
        "{}",
        restored.stdout
    );
    assert_eq!(stage.value("o-drift-r").await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_not_removed_while_others_read_it() {
    let mut stage = version_read("o-gone").await;
    let refused = konverge(&stage, &["destroy", "o-gone/writer", "--yes"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert_ne!(refused.code, Some(0), "{said}");
    assert!(
        said.contains("o-gone/reader read outputs of o-gone/writer, which would be removed"),
        "{said}"
    );
    assert!(said.contains("--without"), "{said}");
    assert!(stage.value("o-gone-w").await.is_some());

    // By a merge: the reader does not read it any more, and is applied before the writer is destroyed.
    stage.reviewed(8, "gone", |stage| {
        stage.monorepo.remove("appops/o-gone/writer");
        reading(stage, "o-gone/reader", "{}", &config_map("o-gone-r", "alone"));
    });
    stage.merge(8, "gone").outcome.check(0);
    assert_eq!(stage.value("o-gone-r").await.as_deref(), Some("alone"));
    assert_eq!(stage.value("o-gone-w").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_confirmed_by_without_leaves_the_reader_as_it_is() {
    let stage = version_read("o-without").await;
    let removed = konverge(
        &stage,
        &[
            "destroy",
            "o-without/writer",
            "--yes",
            "--without",
            "o-without/reader",
        ],
    );
    removed.check(0);
    assert_eq!(stage.value("o-without-w").await, None);
    assert!(stage.value("o-without-r").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_ever_an_output() {
    const CANARY: &str = "c4n4ry-0f-the-mine";
    let secret = format!(
        "resources = [{{id = \"v1:Secret:default:o-secret\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Secret\", metadata = {{name = \"o-secret\", namespace = \"default\"}}, stringData = {{word = \"{CANARY}\"}}}}, extensions = {{\"konverge/outputs\" = {{word = \"PATH\"}}}}}}]\n"
    );
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file").display().to_string();
    let sensitive = format!(
        "resources = [{{id = \"hashicorp:local:local_sensitive_file:o\", type = \"Terraform\", attributes = {{filename = \"{file}\", content = \"{CANARY}\"}}, extensions = {{provider = \"registry.terraform.io/hashicorp/local/2.9.0\", resourceType = \"local_sensitive_file\", \"konverge/outputs\" = {{word = \"content\"}}}}}}]\n"
    );
    let named = "_map = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {name = \"o-named\", namespace = \"default\"}, data = {word = \"x\"}}\nresources = [{id = \"v1:ConfigMap:default:o-named\", type = \"Kubernetes\", attributes = _map, extensions = {\"konverge/outputs\" = {password = \"data.word\"}}}]\n";
    let config = format!(
        "terraform: {{binary: '{}', mirror: '{}', providers: [{{source: hashicorp/local, version: 2.9.0}}]}}\n",
        terraform::binary().display(),
        terraform::mirror().display()
    );
    let mut stage = Stage::small(&config).await;
    let identity = konverge_state::Sealer::generate().identity().unwrap();
    stage.env = vec![("KONVERGE_AGE_IDENTITY", identity)];
    let cases = [
        ("data", secret.replace("PATH", "data.word")),
        ("named", named.to_owned()),
        ("sensitive", sensitive),
    ];
    for (name, program) in cases {
        let id = format!("o-secret/{name}");
        tiny_monorepo::write_program(&stage.monorepo, &id, &program);
        stage.monorepo.commit(name);
        let ran = konverge(&stage, &["apply", &id, "--yes"]);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.code, Some(0), "{name}: {said}");
        assert!(
            said.contains("is a secret value") && said.contains("ref+"),
            "{name}: {said}"
        );
        assert!(!said.contains(CANARY), "{name}: {said}");
        let told = konverge(&stage, &["state", "outputs", &id, "-o", "json"]);
        assert!(
            !told.stderr.contains(CANARY) && !told.stdout.contains("\"word\""),
            "{name}: {}",
            told.stdout
        );
    }
    let stored = crate::support::ci_stage::everything_in(&stage.scratch.path().join("store"));
    assert!(!stored.contains(CANARY));
}

/// What `konverge check` and `konverge preview` say of a reader of `o-bad/writer` with a program.
fn refusal(stage: &Stage, id: &str, reads: &str, value: &str) -> String {
    reading(stage, id, reads, &config_map(&id.replace('/', "-"), value));
    stage.monorepo.commit(id);
    let checked = konverge(stage, &["check", id, "--skip", "golden", "--skip", "format"]);
    let shown = konverge(stage, &["preview", id, "--live", "never"]);
    assert_ne!(checked.code, Some(0), "{id}: {}", checked.stdout);
    assert_ne!(shown.code, Some(0), "{id}: {}", shown.stdout);
    format!(
        "{}{}\n---\n{}{}",
        checked.stdout, checked.stderr, shown.stdout, shown.stderr
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_read_is_an_error_with_file_stack_and_remedy() {
    let stage = Stage::small("").await;
    tiny_monorepo::write_program(&stage.monorepo, "o-bad/writer", &config_map("o-bad-w", "one"));
    let cases = [
        (
            "o-bad/undeclared",
            "{}",
            "$stack_output.w.version",
            "`w` is not declared in `reads`",
        ),
        (
            "o-bad/malformed",
            "{w: o-bad/writer}",
            "$stack_output.w",
            "is not `$stack_output.<alias>.<name>`",
        ),
        (
            "o-bad/nobody",
            "{w: o-bad/nowhere}",
            "$stack_output.w.version",
            "there is no stack `o-bad/nowhere`",
        ),
        (
            "o-bad/no-name",
            "{w: o-bad/writer}",
            "$stack_output.w.url",
            "does not publish `url`: it publishes `version`",
        ),
        (
            "o-bad/itself",
            "{w: o-bad/itself}",
            "$stack_output.w.version",
            "these stacks read each other's outputs",
        ),
        (
            "o-other/reader",
            "{w: o-bad/writer}",
            "$stack_output.w.version",
            "may not read outputs of o-bad/writer",
        ),
    ];
    for (id, reads, value, expected) in cases {
        let said = refusal(&stage, id, reads, value);
        for part in said.split("\n---\n") {
            assert!(part.contains(expected), "{id}: {said}");
            assert!(part.contains("stack.yaml"), "{id}: {said}");
        }
    }
    // A rule of the default branch lets it.
    stage.configure("outputs: {allow: [{from: 'appops/o-bad/*', to: 'appops/o-other/*'}]}\n");
    stage.monorepo.commit("Allowed");
    konverge(
        &stage,
        &["check", "o-other/reader", "--skip", "golden", "--skip", "format"],
    )
    .check(0);

    // Another stack's value is not published again: its own readers ask for it.
    let program = config_map("o-bad-again", "$stack_output.w.version")
        .replace("metadata.resourceVersion", "data.value");
    reading(&stage, "o-bad/again", "{w: o-bad/writer}", &program);
    // An output that says which object it is, or that stands where nobody could review it.
    let named = config_map("o-bad-named", "x")
        .replace("name = \"o-bad-named\"", "name = \"$stack_output.w.version\"");
    reading(&stage, "o-bad/named", "{w: o-bad/writer}", &named);
    let hidden =
        config_map("o-bad-hidden", "x").replace("value = \"x\"", "password = \"$stack_output.w.version\"");
    reading(&stage, "o-bad/hidden", "{w: o-bad/writer}", &hidden);
    stage.monorepo.commit("Places");
    for (id, expected) in [
        (
            "o-bad/again",
            "the output `version` is copied from an output of another stack",
        ),
        ("o-bad/named", "identifies the object"),
        ("o-bad/hidden", "is a masked field"),
    ] {
        let shown = konverge(&stage, &["preview", id, "--live", "never"]);
        assert_ne!(shown.code, Some(0), "{id}");
        assert!(shown.stdout.contains(expected), "{id}: {}", shown.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_beside_its_resources_an_export_and_a_test_know_outputs() {
    let stage = Stage::small("").await;
    let beside = "import manifests\n_map = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {name = \"o-tools-w\", namespace = \"default\"}, data = {value = \"x\"}}\nmanifests.yaml_stream([{\"resources\": [{id = \"v1:ConfigMap:default:o-tools-w\", type = \"Kubernetes\", attributes = _map}], \"konverge/outputs\": {port = 5432, host = \"$kusion_path.v1:ConfigMap:default:o-tools-w.data.value\"}}])\n";
    tiny_monorepo::write_program(&stage.monorepo, "o-tools/writer", beside);
    let reader = config_map("o-tools-r", "$stack_output.w.host:$stack_output.w.port");
    reading(&stage, "o-tools/reader", "{w: o-tools/writer}", &reader);
    let test = "name: the address\nwith: {outputs: {w.host: db.local, w.port: 5432}}\nassert:\n- {kind: ConfigMap, has: {data: {value: 'db.local:5432'}}}\n";
    stage
        .monorepo
        .write("appops/o-tools/reader/test/a.test.yaml", test);
    stage.monorepo.commit("Tools");
    konverge(&stage, &["test", "o-tools/reader"]).check(0);
    stage.monorepo.write(
        "appops/o-tools/reader/test/a.test.yaml",
        test.replace("w.port", "w.prot"),
    );
    let typo = konverge(&stage, &["test", "o-tools/reader"]);
    assert_ne!(typo.code, Some(0));
    assert!(
        typo.stdout.contains("the stack reads no `w.prot`"),
        "{}",
        typo.stdout
    );

    let built = konverge(&stage, &["build", "o-tools/writer"]).expect(0).stdout;
    assert!(
        built.contains("konverge/outputs:") && built.contains("port: 5432"),
        "{built}"
    );

    let export = |values: &[&str]| {
        let folder = stage.scratch.path().join("charts").display().to_string();
        let arguments = [&["export", "helm", "o-tools/reader", "--to", &folder], values].concat();
        konverge(&stage, &arguments)
    };
    let refused = export(&["--output-value", "w.host=db.local"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("--output-value w.port=VALUE"),
        "{}",
        refused.stderr
    );
    export(&[
        "--output-value",
        "w.host=db.local",
        "--output-value",
        "w.port=5432",
    ])
    .check(0);
    let written = crate::support::ci_stage::everything_in(&stage.scratch.path().join("charts"));
    assert!(written.contains("db.local:5432"), "{written}");

    // Once more there is nothing to do, and what is published stays.
    for _ in 0..2 {
        konverge(&stage, &["apply", "--all", "--yes"]).check(0);
        assert_eq!(stage.value("o-tools-r").await.as_deref(), Some("x:5432"));
    }
    let told = konverge(&stage, &["state", "outputs", "o-tools/writer"])
        .expect(0)
        .stdout;
    assert!(
        told.contains("port  5432") && told.contains("read by o-tools/reader"),
        "{told}"
    );
}

/// The stacks of the guide, with the helper of the example, and each of its commands.
#[tokio::test(flavor = "multi_thread")]
async fn the_guide_of_outputs_is_typed_as_it_stands() {
    let stage = Stage::small("").await;
    let helper = std::fs::read_to_string(root().join("konfig-example/base/pkg/outputs/outputs.k")).unwrap();
    stage.monorepo.write("base/pkg/outputs/outputs.k", helper);
    let database = "import base.pkg.outputs\n\n_map = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {name = \"o-guide-db\", namespace = \"default\"}, data = {address = \"db.local\", port = \"5432\"}}\n_database = {id = \"v1:ConfigMap:default:o-guide-db\", type = \"Kubernetes\", attributes = _map}\n\nresources = [\n    outputs.published(_database, {\n        endpoint = \"data.address\"\n        port = \"data.port\"\n    })\n]\n";
    tiny_monorepo::write_program(&stage.monorepo, "shop/database", database);
    let guide = std::fs::read_to_string(root().join("docs/guides/outputs.md")).unwrap();
    let url = "postgres://$stack_output.db.endpoint:$stack_output.db.port/shop";
    assert!(guide.contains(url) && guide.contains("outputs.published(_database, {"));
    let web = config_map("o-guide-web", "x").replace("value = \"x\"", &format!("url = \"{url}\""));
    reading(&stage, "shop/web", "{db: shop/database}", &web);
    stage.monorepo.write(".gitignore", "").commit("The guide");
    konverge(&stage, &["check", "--all", "--fix"]);
    stage.monorepo.commit("Formatted");
    konverge(&stage, &["apply", "--all", "--yes"]).check(0);
    let lines: Vec<Vec<String>> = blocks(&guide, "sh")
        .iter()
        .flat_map(|block| block.lines())
        .map(|line| {
            line.split('#')
                .next()
                .unwrap()
                .split_whitespace()
                .skip(1)
                .map(str::to_owned)
                .collect()
        })
        .collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
        let told = konverge(&stage, &arguments).expect(0).stdout;
        if arguments[0] == "state" {
            assert!(
                told.contains("endpoint") && told.contains("read by shop/web"),
                "{told}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_held_back_and_named_until_its_writer_is_applied() {
    let stage = Stage::small("").await;
    tiny_monorepo::write_program(&stage.monorepo, "o-held/writer", &config_map("o-held-w", "one"));
    let reader = config_map("o-held-r", "is $stack_output.w.version");
    reading(&stage, "o-held/reader", "{w: o-held/writer}", &reader);
    stage.monorepo.commit("Made");
    let held = konverge(&stage, &["apply", "o-held/reader", "--yes"]);
    let said = format!("{}{}", held.stdout, held.stderr);
    assert!(
        said.contains("the stack reads `version` of o-held/writer, which is not applied"),
        "{said}"
    );
    assert_eq!(stage.value("o-held-r").await, None);
    konverge(&stage, &["apply", "--pending", "--rev", "HEAD", "--yes"]).check(0);
    assert!(stage.value("o-held-r").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_small() {
    let stage = Stage::small("").await;
    let large = config_map("o-large", "x")
        .replace("value = \"x\"", "value = \"xyz \" * 20000")
        .replace("metadata.resourceVersion", "data.value");
    tiny_monorepo::write_program(&stage.monorepo, "o-large/writer", &large);
    stage.monorepo.commit("Large");
    let refused = konverge(&stage, &["apply", "o-large/writer", "--yes"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused
            .stdout
            .contains("the outputs are larger than 64 KiB, with `version`"),
        "{}",
        refused.stdout
    );
    assert_eq!(output(&stage, "o-large/writer", "version"), Value::Null);
}
