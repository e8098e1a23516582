//! 100 resources of one stack (50 `local_file`, 50 `terraform_data`) planned and applied three ways on the real executable
//! and provider: by the runtime, with one working directory a resource, and as one hand-written root module.
//!
//! Writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use konverge_base::{
    error::UserError,
    model::{
        ResourceId,
        spec::{Resource, RuntimeKind},
        state::Recorded,
    },
};
use konverge_engine::runtime::{AppliedResource, ApplySink, Item, RecordFailure, Runtime, StackScope};
use konverge_secrets::{HashKey, Secrets};
use konverge_terraform::{AllowedProvider, Terraform, TerraformOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

const RESOURCES: usize = 100;
const ROUNDS: usize = 3;
const BEGIN: &str = "<!-- bench:terraform -->";
const END: &str = "<!-- /bench:terraform -->";

struct Times {
    plan: Duration,
    apply: Duration,
}

fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    std::env::var_os("KONVERGE_PARTS").map_or_else(
        || {
            base.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"))
                .join("konverge")
        },
        PathBuf::from,
    )
}

/// Type, name and attributes of the nth resource.
fn nth(outside: &Path, n: usize) -> (&'static str, String, Value) {
    match n % 2 {
        0 => {
            let path = outside.join(format!("file{n}"));
            (
                "local_file",
                format!("r{n}"),
                json!({"filename": path, "content": format!("content {n}")}),
            )
        }
        _ => ("terraform_data", format!("r{n}"), json!({"input": {"n": n}})),
    }
}

struct Nothing;

#[async_trait]
impl ApplySink for Nothing {
    fn progress(&self, _: &ResourceId, _: &str) {}

    async fn record_written(&self, _: &ResourceId, _: Recorded) -> Result<(), UserError> {
        Ok(())
    }

    async fn record_result(
        &self,
        id: &ResourceId,
        result: Result<AppliedResource, UserError>,
    ) -> Result<(), UserError> {
        result.unwrap_or_else(|failure| panic!("{id}: {failure}"));
        Ok(())
    }

    async fn runtime_data(&self, _: &str, _: Value) -> Result<(), RecordFailure> {
        Ok(())
    }

    fn cancelled(&self) -> bool {
        false
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        Ok(())
    }
}

async fn by_runtime() -> Times {
    let outside = TempDir::new().unwrap();
    let mut options = TerraformOptions::new(Secrets::new(HashKey::random()));
    options.binary = Some(cache().join("bin/terraform"));
    options.mirror = Some(cache().join("terraform-mirror"));
    options.providers = vec![AllowedProvider {
        source: "hashicorp/local".to_owned(),
        version: "2.9.0".to_owned(),
        hashes: Vec::new(),
    }];
    let runtime = Terraform::new(options);
    let scope = StackScope {
        ignore: Vec::new(),
        stack: "bench/one".parse().unwrap(),
        earlier: Vec::new(),
        data: BTreeMap::new(),
        read: std::sync::Arc::default(),
        pending: std::sync::Arc::default(),
        hooks: std::sync::Arc::default(),
        references: Default::default(),
        only_compares: false,
    };
    let items = (0..RESOURCES)
        .map(|n| {
            let (kind, name, attributes) = nth(outside.path(), n);
            let provider = match kind {
                "local_file" => "registry.terraform.io/hashicorp/local/2.9.0",
                _ => "terraform.io/builtin/terraform/0",
            };
            let id: ResourceId = format!("hashicorp:x:{kind}:{name}").parse().unwrap();
            let desired = Resource {
                id: id.clone(),
                runtime: RuntimeKind::Terraform,
                attributes: attributes.as_object().unwrap().clone(),
                depends_on: Vec::new(),
                extensions: json!({"provider": provider}).as_object().unwrap().clone(),
                sharing: konverge_base::model::spec::Sharing::default(),
            };
            Item {
                id,
                cluster: None,
                prior: None,
                desired: Some(desired),
                needs: konverge_engine::runtime::Needs::default(),
            }
        })
        .collect();
    let started = Instant::now();
    let planned: Vec<_> = runtime
        .plan(&scope, items)
        .await
        .unwrap()
        .into_iter()
        .map(|answer| answer.unwrap())
        .collect();
    let plan = started.elapsed();
    let started = Instant::now();
    runtime.apply(&scope, planned, &Nothing).await.unwrap();
    let apply = started.elapsed();
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), RESOURCES / 2);
    Times { plan, apply }
}

/// `terraform` by hand in a folder of modules, each holding some of the resources.
fn by_hand(modules: usize) -> Times {
    let (outside, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mirror = cache().join("terraform-mirror");
    let configuration = home.path().join("terraform.rc");
    std::fs::write(
        &configuration,
        format!("disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n"),
    )
    .unwrap();
    let folders: Vec<_> = (0..modules).map(|m| home.path().join(m.to_string())).collect();
    for (m, folder) in folders.iter().enumerate() {
        std::fs::create_dir(folder).unwrap();
        let mut module = json!({"resource": {}});
        for n in (0..RESOURCES).filter(|n| n % modules == m) {
            let (kind, name, attributes) = nth(outside.path(), n);
            module["resource"][kind][name] = attributes;
            if kind == "local_file" {
                module["terraform"]["required_providers"]["local"] =
                    json!({"source": "registry.terraform.io/hashicorp/local", "version": "2.9.0"});
            }
        }
        std::fs::write(folder.join("main.tf.json"), module.to_string()).unwrap();
    }
    let run = |folder: &Path, args: &[&str]| {
        let output = Command::new(cache().join("bin/terraform"))
            .args(args)
            .current_dir(folder)
            .env("HOME", home.path())
            .env("TF_CLI_CONFIG_FILE", &configuration)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let started = Instant::now();
    for folder in &folders {
        run(folder, &["init", "-input=false", "-no-color"]);
        run(folder, &["plan", "-json", "-input=false", "-out=plan"]);
        run(folder, &["show", "-json", "plan"]);
    }
    let plan = started.elapsed();
    let started = Instant::now();
    for folder in &folders {
        run(folder, &["apply", "-json", "-input=false", "plan"]);
    }
    let apply = started.elapsed();
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), RESOURCES / 2);
    Times { plan, apply }
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64()
}

fn medians(all: Vec<Times>) -> (f64, f64) {
    (
        median(all.iter().map(|t| t.plan).collect()),
        median(all.iter().map(|t| t.apply).collect()),
    )
}

fn report(ours: (f64, f64), apart: (f64, f64), whole: (f64, f64)) -> String {
    let profile = if cfg!(debug_assertions) { "dev" } else { "bench" };
    let row = |what: &str, t: (f64, f64)| {
        format!(
            "| {what} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
            t.0,
            t.1,
            t.0 / ours.0,
            t.1 / ours.1
        )
    };
    format!(
        "## Terraform: {RESOURCES} resources of one stack\n\n\
         50 `local_file` and 50 `terraform_data`, all new. Planning is `init`, `plan` and reading the plan. All rows are of one run\n\
         of `cargo bench --bench terraform` (profile `{profile}`, median of {ROUNDS}; one working directory a resource: once, in sequence).\n\n\
         | | plan (s) | apply (s) | plan, ratio | apply, ratio |\n|---|---|---|---|---|\n{}{}{}",
        row("Konverge's runtime", ours),
        row("one working directory a resource", apart),
        row("one hand-written root module", whole),
    )
}

fn write_section(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/figures.md");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let old = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Performance\n".to_owned());
    let section = format!("{BEGIN}\n{text}{END}\n");
    let new = match (old.find(BEGIN), old.find(END)) {
        (Some(from), Some(to)) => format!(
            "{}{section}{}",
            &old[..from],
            old[to + END.len()..].trim_start_matches('\n')
        ),
        _ => format!("{}\n\n{section}", old.trim_end()),
    };
    std::fs::write(path, new).unwrap();
}

fn main() {
    // `cargo test --benches` only sees that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut ours, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(runtime.block_on(by_runtime()));
        whole.push(by_hand(1));
    }
    let apart = by_hand(RESOURCES);
    let text = report(medians(ours), medians(vec![apart]), medians(whole));
    println!("{text}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        write_section(&text);
    }
}
