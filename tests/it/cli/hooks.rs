//! The hooks for pre-commit and prek, installed from a clone of this repository and a wheel, without network. And JUnit
//! XML, read by junitparser.

use std::path::{Path, PathBuf};

use crate::support::{
    cache,
    git::Repository,
    installed,
    process::{Konverge, Outcome, binary},
    root,
    tiny_monorepo::{monorepo, write_stack},
};

/// A program of the part `hooks`.
fn tool(name: &str) -> PathBuf {
    installed("hooks", cache().join("hooks/bin").join(name))
}

/// The wheel with the binary, and a clone of this repository.
struct Installable {
    folder: tempfile::TempDir,
}

impl Installable {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        Konverge::of(&tool("python3"), [root().join("scripts/wheel/konverge_wheel.py")])
            .arg(binary())
            .arg(machine)
            .arg(folder.path())
            .run()
            .expect(0);
        let clone = folder.path().join("konverge");
        Konverge::of(Path::new("git"), ["clone", "--quiet"])
            .arg(root())
            .arg(clone)
            .run()
            .expect(0);
        Self { folder }
    }

    fn clone(&self) -> PathBuf {
        self.folder.path().join("konverge")
    }

    /// Runs a tool in a repository. It may install from the wheel alone.
    fn run(&self, repository: &Repository, name: &str, arguments: &[&str]) -> Outcome {
        let tools = tool(name);
        let path = format!(
            "{}:{}",
            tools.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let home = self.folder.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let run = Konverge::of(&tools, arguments).dir(repository.path()).with_kcl();
        let run = run
            .env("PATH", path)
            .env("HOME", &home)
            .limit(std::time::Duration::from_secs(600));
        let run = run
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", self.folder.path());
        let run = run
            .env("UV_NO_INDEX", "1")
            .env("UV_FIND_LINKS", self.folder.path());
        run.env("UV_OFFLINE", "1")
            .env("UV_PYTHON_DOWNLOADS", "never")
            .run()
    }
}

fn two_stacks() -> Repository {
    let repository = monorepo();
    write_stack(&repository, "a/dev", "a", "low");
    write_stack(&repository, "b/dev", "b", "low");
    repository.commit("Two stacks");
    repository
}

#[test]
#[ignore = "needs `scripts/parts install hooks`; `make test-all` runs it"]
fn pre_commit_and_prek_run_the_hooks_from_a_clone_without_network() {
    let installable = Installable::make();
    let clone = installable.clone();
    let rev = Konverge::of(Path::new("git"), ["rev-parse", "HEAD"])
        .dir(&clone)
        .run()
        .expect(0)
        .stdout;
    let config = format!(
        "repos:\n- repo: {}\n  rev: {}\n  hooks:\n  - id: konverge-check\n  - id: konverge-affected\n",
        clone.display(),
        rev.trim()
    );
    for name in ["pre-commit", "prek"] {
        let repository = two_stacks();
        repository
            .write(".pre-commit-config.yaml", &config)
            .commit("Hooks");
        // Formatted and without a stack: nothing to find.
        repository.write("notes.txt", "x\n").git(["add", "."]);
        let passed = installable.run(&repository, name, &["run", "--verbose"]);
        passed.check(0);
        assert!(passed.stdout.contains("0 errors"), "{}", passed.stdout);
        // The staged change breaks one stack.
        let main = repository.read("appops/a/dev/main.k");
        repository
            .write("appops/a/dev/main.k", "resources = = []\n")
            .git(["add", "."]);
        let refused = installable.run(&repository, name, &["run"]);
        refused.check(1);
        assert!(
            refused.stdout.contains("appops/a/dev/main.k"),
            "{}",
            refused.stdout
        );
        // Before a push: the affected stacks with the difference of their Specs.
        repository
            .branch("change")
            .write("appops/a/dev/main.k", main.replace("low", "high"))
            .commit("High");
        let shown = installable.run(
            &repository,
            name,
            &["run", "--hook-stage", "pre-push", "--all-files"],
        );
        shown.check(0);
        for part in ["a/dev", "1 stack affected.", "level: high"] {
            assert!(shown.stdout.contains(part), "{part}\n{}", shown.stdout);
        }
    }
    // The same on a working tree, as somebody tries it who edits the hooks.
    let repository = two_stacks();
    repository.write("notes.txt", "x\n").git(["add", "."]);
    let clone = clone.display().to_string();
    let tried = installable.run(
        &repository,
        "pre-commit",
        &["try-repo", &clone, "konverge-check", "--all-files"],
    );
    tried.check(0);
}

#[test]
#[ignore = "needs `scripts/parts install hooks`; `make test-all` runs it"]
fn junitparser_reads_the_report() {
    let repository = two_stacks();
    repository
        .write(
            "appops/a/dev/test/good.test.yaml",
            "name: <good> & \"fine\"\nassert: [{kind: ConfigMap}]\n",
        )
        .write(
            "appops/a/dev/test/bad.test.yaml",
            "name: bad\nassert: [{kind: Ingress}]\n",
        )
        .write("appops/b/dev/test/void.test.yaml", "name: void\n");
    let run = Konverge::new(["test", "--all", "--junit", "report.xml"]);
    run.dir(repository.path()).with_kcl().run().expect(1);
    let script = "import junitparser, sys\nxml = junitparser.JUnitXml.fromfile(sys.argv[1])\n\
        for suite in xml:\n  print(suite.name, suite.tests, suite.failures, suite.errors)\n\
        \x20 for case in suite:\n    print(' ', case.classname, case.name, [type(one).__name__ for one in case.result])\n";
    let parsed = Konverge::of(&tool("python3"), ["-c", script]).arg(repository.path().join("report.xml"));
    let parsed = parsed.run().expect(0).stdout;
    assert_eq!(
        parsed,
        "a/dev 2 1 0\n  a/dev bad ['Failure']\n  a/dev <good> & \"fine\" []\nb/dev 1 0 1\n  b/dev void.test.yaml ['Error']\n"
    );
}
