//! A very long chain of imports needs memory linear in its length, not quadratic.

use std::process::Command;

use serde_json::Value;

use crate::support::{git::Repository, kcl::interpreter, process::Konverge};

/// Writes a chain of so many files, each of which the one before imports, with a value in each.
fn write(repository: &Repository, length: usize, value: usize) {
    for at in 0..length {
        let import = if at + 1 < length {
            format!("import base.c{}\n", at + 1)
        } else {
            String::new()
        };
        repository.write(&format!("base/c{at}.k"), format!("{import}\nv{at} = {value}\n"));
    }
}

fn monorepo(length: usize) -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"chain\"\n")
        .write("apps/shop/project.yaml", "name: shop\n");
    for stack in ["dev", "prod"] {
        let folder = format!("apps/shop/{stack}");
        repository
            .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
            .write(
                &format!("{folder}/kcl.yaml"),
                "kcl_cli_configs:\n  files: [main.k]\n",
            )
            .write(&format!("{folder}/main.k"), "import base.c0\n\nx = c0.v0\n");
    }
    write(&repository, length, 1);
    repository.commit("A chain");
    repository
}

/// The most memory that `konverge affected` held, in MiB, as the kernel counted it.
fn peak(repository: &Repository) -> u64 {
    const MEASURE: &str = "import resource, subprocess, sys\nsubprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n";
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(interpreter())
        .args([
            "-c",
            MEASURE,
            env!("CARGO_BIN_EXE_konverge"),
            "affected",
            "--base",
            "HEAD~1",
            "--output",
            "json",
        ])
        .current_dir(repository.path())
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

#[test]
fn memory_grows_with_the_length_of_a_chain() {
    let length = 5000;
    let repository = monorepo(length);
    write(&repository, length, 2);
    repository.commit("All of it");
    // With a list for each file that changed it took 1060 MiB.
    let peak = peak(&repository);
    assert!(peak < 250, "{peak} MiB for {length} files");
}

#[test]
fn the_shortest_chains_are_told_and_the_longest_is_whole() {
    let length = 400;
    let repository = monorepo(length);
    let stacks = |repository: &Repository| -> Vec<Value> {
        let told = Konverge::new(["affected", "--base", "HEAD~1", "--output", "json"])
            .dir(repository.path())
            .run()
            .expect(0);
        told.json()["stacks"].as_array().unwrap().clone()
    };
    write(&repository, length, 2);
    repository.commit("All of it");
    for stack in stacks(&repository) {
        let why = stack["why"].as_array().unwrap();
        assert_eq!(why.len(), 50);
        for (at, reason) in why.iter().enumerate() {
            assert_eq!(reason["path"], format!("base/c{at}.k"));
            assert_eq!(reason["chain"].as_array().unwrap().len(), at + 3);
        }
    }
    let last = format!("base/c{}.k", length - 1);
    repository.write(&last, "v399 = 3\n").commit("Its end");
    for stack in stacks(&repository) {
        let why = stack["why"].as_array().unwrap();
        assert_eq!(why.len(), 1);
        let chain = why[0]["chain"].as_array().unwrap();
        assert_eq!(chain.len(), length + 2);
        assert_eq!(chain[0], last);
        assert_eq!(chain[length + 1], stack["stack"]);
    }
}
