//! Every example of `--help` is typed in the example monorepo: what is shown runs. What needs a cluster, GitHub or a
//! registry gets as far as the question for it.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    meta::docs::root,
    support::{git::Repository, process::Konverge},
};

/// What an example does that does not end with 0.
enum Ending {
    /// It ends with this code, and says this.
    Says(i32, &'static str),
    /// It is not typed here, for this reason.
    NotTyped(&'static str),
}

use Ending::{NotTyped, Says};

/// The examples that do not end with 0, by how they begin. Each must be one of the help.
const OTHERS: &[(&str, Ending)] = &[
    ("konverge serve", NotTyped("it runs until somebody ends it")),
    ("konverge watch", NotTyped("it runs until somebody ends it")),
    ("konverge lsp", NotTyped("it speaks with an editor")),
    (
        "konverge kcl install",
        NotTyped("it downloads, and its own tests have an index"),
    ),
    ("konverge demo", NotTyped("its own tests compare what it prints")),
    (
        "konverge test storefront/dev --live",
        Says(1, "allows live tests"),
    ),
    ("konverge test --sweep", Says(1, "allows live tests")),
    (
        "konverge set orders/prod server.replicas=5 --pull-request",
        Says(64, "GITHUB_TOKEN"),
    ),
    ("konverge set storefront/prod --keep", Says(64, "GITHUB_TOKEN")),
    (
        "konverge apply storefront/dev --recorded",
        Says(1, "was never applied"),
    ),
    (
        "konverge apply storefront/dev --kubeconfig",
        Says(1, "/.kube/config` cannot be used"),
    ),
    ("konverge apply --pending", Says(1, "no cluster is configured")),
    ("konverge apply", Says(1, "no cluster is configured")),
    ("konverge preview --pending", Says(1, "no cluster is configured")),
    ("konverge adopt", Says(1, "no cluster is configured")),
    (
        "konverge doctor --module",
        Says(1, "`PATH` is neither a file nor a module"),
    ),
    ("konverge notify test", Says(1, "konverge.yaml has no receiver")),
    (
        "konverge export argocd storefront/dev --rev HEAD --to oci:",
        NotTyped("it asks a registry"),
    ),
    (
        "konverge models import crds/argocd",
        Says(64, "there is no YAML or JSON file at `crds/argocd`"),
    ),
    (
        "konverge models import cluster:prod",
        Says(1, "there is no cluster `prod`"),
    ),
    ("konverge models import kubernetes@", NotTyped("it downloads")),
    ("konverge models record", NotTyped("it downloads")),
    ("konverge rollout list", Says(0, "")),
    ("konverge rollout", Says(64, "there is no rollout web")),
    (
        "konverge state history",
        Says(64, "nothing is recorded for stack `storefront/dev`"),
    ),
    ("konverge state rollback", Says(1, "has no serial 7")),
    (
        "konverge state import",
        Says(1, "kusion_state.json cannot be read"),
    ),
    ("konverge ci", Says(1, "not running in GitHub Actions")),
];

/// The examples of a command's help, without what is said about them and without another tool's part of a pipe. The
/// help wraps what is too long.
fn examples(help: &str) -> Vec<String> {
    let Some((_, rest)) = help.split_once("Examples:\n") else {
        return Vec::new();
    };
    let mut examples: Vec<String> = Vec::new();
    for line in rest.lines().take_while(|line| !line.trim().is_empty()) {
        match examples.last_mut() {
            Some(last) if !line.contains("konverge ") => *last += &format!(" {}", line.trim()),
            _ => examples.push(line.trim().to_owned()),
        }
    }
    let commands = examples.iter().filter_map(|line| {
        let typed = line.split("  ").next()?.split('|').next()?.trim();
        typed.starts_with("konverge ").then(|| typed.to_owned())
    });
    commands.collect()
}

/// The examples of all commands, in the order of the reference.
fn all_examples() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("### konverge "));
    let mut seen = BTreeSet::new();
    let examples = commands.flat_map(|command| {
        let help = Konverge::new(command.split(' ').chain(["--help"]))
            .run()
            .expect(0)
            .stdout;
        examples(&help)
    });
    examples.filter(|example| seen.insert(example.clone())).collect()
}

#[test]
fn the_examples_of_the_help_run() {
    let monorepo = Repository::konfig_example();
    let objects = fs::read_to_string(root().join("tests/fixtures/health/objects.yaml")).unwrap();
    monorepo
        .write("deployment.yaml", objects)
        .write(
            "edits.yaml",
            "- stacks: [orders/prod]\n  set: {server.replicas: 5}\n",
        )
        .commit("What the examples name");
    for name in ["v1.0", "v1.1"] {
        monorepo.git(["tag", name]);
    }
    monorepo.git(["branch", "change"]);
    let home = tempfile::tempdir().unwrap();
    for folder in [
        ".zfunc",
        ".local/share/bash-completion/completions",
        ".config/fish/completions",
    ] {
        fs::create_dir_all(home.path().join(folder)).unwrap();
    }
    let elsewhere = Repository::konfig_example();
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join("monorepo")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let type_in = |line: &str| {
        Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("HOME", home.path())
            .run()
    };
    let (mut wrong, mut unused) = (Vec::new(), OTHERS.iter().collect::<Vec<_>>());
    let examples = all_examples();
    assert!(examples.len() > 80, "{examples:?}");
    for example in &examples {
        let other = OTHERS.iter().find(|(begin, _)| example.starts_with(begin));
        unused.retain(|(begin, _)| other.is_none_or(|(used, _)| begin != used));
        let (code, says) = match other {
            Some((_, NotTyped(why))) => {
                println!("not typed: `{example}`: {why}");
                continue;
            }
            Some((_, Says(code, says))) => (*code, *says),
            None => (0, ""),
        };
        let typed = type_in(example);
        let told = format!("{}{}", typed.stdout, typed.stderr);
        if typed.code != Some(code) || !told.contains(says) {
            wrong.push(format!("$ {example}\n[{:?}] {told}", typed.code));
        }
        monorepo.git(["checkout", "--quiet", "."]);
        monorepo.git(["clean", "--quiet", "-fd"]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<_> = unused.iter().map(|(begin, _)| *begin).collect();
    assert!(unused.is_empty(), "no example begins so: {unused:?}");
}
