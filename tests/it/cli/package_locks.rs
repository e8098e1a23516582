//! Repositories whose locks are as today's tools leave them: without checksums, ignored by git, below packages of the
//! repository. They build as they are, say what is missing, and `konverge kcl lock` writes it.

use std::os::unix::fs::symlink;

use crate::support::{
    git::Repository,
    package_registry::{PackageRegistry, sum},
    process::{Konverge, Outcome},
};

/// A repository, the registry and the git repository of its packages, and the caches of a machine.
struct Fixture {
    monorepo: Repository,
    registry: PackageRegistry,
    library: Repository,
    caches: tempfile::TempDir,
}

const LIBRARY: &str = "[package]\nname = \"lib\"\nversion = \"0.2.0\"\n";
const COLOR: &str = "color = \"green\"\n";
const SIZES: [(&str, &str); 2] = [
    ("kcl.mod", "[package]\nname = \"sizes\"\nversion = \"1.0.0\"\n"),
    ("sizes.k", "small = \"tiny\"\n"),
];

impl Fixture {
    async fn start() -> Self {
        let registry = PackageRegistry::start().await;
        registry.push("kcl/sizes", "1.0.0", &SIZES);
        let library = Repository::init();
        library.write("kcl.mod", LIBRARY).write("lib.k", COLOR);
        library.commit("The library");
        library.git(["tag", "0.2.0"]);
        let monorepo = Repository::init();
        monorepo.write("konverge.yaml", "version: 1\nkcl: {version: 0.13.2}\n");
        Self {
            monorepo,
            registry,
            library,
            caches: tempfile::tempdir().unwrap(),
        }
    }

    fn git_requirement(&self, tag: &str) -> String {
        format!(
            "lib = {{ git = \"file://{}\", tag = \"{tag}\" }}",
            self.library.path().display()
        )
    }

    /// Two stacks that are packages of their own, as in today's Konfig: one git package, one of a registry.
    fn own_packages(&self) {
        for stack in ["dev", "prod"] {
            let folder = format!("shop/{stack}");
            let module = format!(
                "[package]\nname = \"shop-{stack}\"\n\n[dependencies]\n{}\nsizes = \"1.0.0\"\n\n[profile]\nentries = [\"main.k\"]\n",
                self.git_requirement("0.2.0")
            );
            self.monorepo
                .write("shop/project.yaml", "name: shop\n")
                .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
                .write(&format!("{folder}/kcl.mod"), module)
                .write(
                    &format!("{folder}/main.k"),
                    program("lib.color + sizes.small", "import lib\nimport sizes\n"),
                );
        }
        self.monorepo
            .write(".gitignore", "kcl.mod.lock\n")
            .commit("Konfig");
    }

    fn konverge(&self, arguments: &[&str]) -> Outcome {
        self.start_konverge(arguments).run()
    }

    fn start_konverge(&self, arguments: &[&str]) -> Konverge {
        Konverge::new(arguments)
            .with_kcl()
            .dir(self.monorepo.path())
            .env("KCL_REGISTRY", format!("oci://{}/kcl", self.registry.host()))
            .env("XDG_CACHE_HOME", self.caches.path())
    }

    fn offline(&self, arguments: &[&str]) -> Outcome {
        self.start_konverge(arguments).env("KONVERGE_OFFLINE", "1").run()
    }
}

/// A stack with one ConfigMap that holds this value.
fn program(value: &str, imports: &str) -> String {
    format!(
        "{imports}\nresources = [{{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"it\", namespace = \"default\"}}, data = {{value = {value}}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_locks_are_named_first_written_and_then_enough() {
    let fixture = Fixture::start().await;
    fixture.own_packages();
    let commit = fixture.library.rev("main");

    // As it stands: it builds, each package is said once, and the message ends the matter.
    let built = fixture.konverge(&["build", "--all"]).expect(0);
    assert_eq!(
        built.stdout.matches("value: greentiny").count(),
        2,
        "{}",
        built.stdout
    );
    let said = &built.stderr;
    assert_eq!(said.matches("is not locked").count(), 2, "{said}");
    assert!(said.contains(&format!("is now the commit {commit}")), "{said}");
    assert!(
        said.contains("hint: run `konverge kcl lock` and commit kcl.mod.lock"),
        "{said}"
    );
    assert!(said.contains("`git add -f '*kcl.mod.lock'`"), "{said}");
    // Nothing of it is kept: the next run asks again.
    let asked = fixture.registry.asked("kcl/sizes", "1.0.0");
    fixture.konverge(&["build", "--all"]).expect(0);
    assert_eq!(fixture.registry.asked("kcl/sizes", "1.0.0"), asked * 2);
    let offline = fixture.offline(&["build", "--all"]).expect(1).stderr;
    // One error for both stacks.
    assert_eq!(
        offline.matches("and this is an offline run").count(),
        1,
        "{offline}"
    );
    assert!(offline.contains("`git add -f '*kcl.mod.lock'`"), "{offline}");

    let told = fixture.konverge(&["init"]).expect(0);
    let told = format!("{}{}", told.stdout, told.stderr);
    let hint = told.find("git ignores kcl.mod.lock: remove its line from .gitignore");
    let lock = told.find("2 stacks use packages that no kcl.mod.lock pins: run `konverge kcl lock`");
    assert!(hint.is_some() && hint < lock, "{told}");
    // Once for all packages and cores.
    assert_eq!(told.matches("kcl lock").count(), 1, "{told}");
    assert!(!told.contains("is not locked"), "{told}");

    let locked = fixture.konverge(&["kcl", "lock"]).expect(0);
    for stack in ["dev", "prod"] {
        let head = format!("shop/{stack}/kcl.mod.lock: 2 newly locked, 0 unchanged\n");
        assert!(locked.stdout.contains(&head), "{}", locked.stdout);
    }
    assert!(
        locked.stdout.contains(&format!("  lib 0.2.0: commit {commit}\n")),
        "{}",
        locked.stdout
    );
    let pin = sum(&[SIZES[0].1, SIZES[1].1]);
    assert!(
        locked.stdout.contains(&format!("  sizes 1.0.0: sum {pin}\n")),
        "{}",
        locked.stdout
    );
    assert!(
        locked.stderr.contains("git ignores kcl.mod.lock"),
        "{}",
        locked.stderr
    );
    let text = fixture.monorepo.read("shop/dev/kcl.mod.lock");
    // The file that git ignores is read all the same, and keeps its bytes.
    let again = fixture.konverge(&["kcl", "lock", "shop/dev"]).expect(0).stdout;
    assert_eq!(again, "shop/dev/kcl.mod.lock: unchanged, 2 locked\n");
    assert_eq!(fixture.monorepo.read("shop/dev/kcl.mod.lock"), text);

    fixture.monorepo.git(["add", "-f", "*kcl.mod.lock"]);
    fixture.monorepo.commit("The locks");
    let built = fixture.offline(&["build", "--all"]).expect(0);
    assert!(
        !built.stderr.contains("locked") && !built.stderr.contains("ignores"),
        "{}",
        built.stderr
    );
    let last = fixture.konverge(&["kcl", "lock"]).expect(0);
    assert!(!last.stderr.contains("ignores"), "{}", last.stderr);

    // Raised without its lock.
    fixture.library.write("lib.k", "color = \"red\"\n");
    fixture.library.commit("Red");
    fixture.library.git(["tag", "0.3.0"]);
    fixture
        .monorepo
        .replace("shop/dev/kcl.mod", "\"0.2.0\"", "\"0.3.0\"");
    let raised = fixture.konverge(&["build", "shop/dev"]).expect(1).stderr;
    assert!(
        raised.contains("kcl.mod asks for 0.3.0, the lock has 0.2.0"),
        "{raised}"
    );
    assert!(!raised.contains("find out who"), "{raised}");
    assert!(
        raised.contains("run `konverge kcl lock` and commit kcl.mod.lock"),
        "{raised}"
    );
    let relocked = fixture.konverge(&["kcl", "lock", "shop/dev"]).expect(0).stdout;
    assert!(relocked.contains("1 newly locked, 1 unchanged"), "{relocked}");
    let built = fixture.offline(&["build", "shop/dev"]).expect(0).stdout;
    assert!(built.contains("value: redtiny"), "{built}");

    // Another content as the same version.
    fixture.registry.push(
        "kcl/sizes",
        "1.0.0",
        &[SIZES[0], ("sizes.k", "small = \"huge\"\n")],
    );
    std::fs::remove_dir_all(fixture.caches.path().join("konverge")).unwrap();
    let moved = fixture.konverge(&["build", "shop/prod"]).expect(1).stderr;
    assert!(moved.contains("the package `sizes` is not what"), "{moved}");
    assert!(moved.contains("`konverge kcl lock --update sizes`"), "{moved}");
    fixture
        .konverge(&["kcl", "lock", "--update", "sizes", "shop/prod"])
        .expect(0);
    let built = fixture.konverge(&["build", "shop/prod"]).expect(0).stdout;
    assert!(built.contains("value: greenhuge"), "{built}");
    let unknown = fixture
        .konverge(&["kcl", "lock", "--update", "nope", "shop/prod"])
        .expect(64)
        .stderr;
    assert!(unknown.contains("no package `nope` is fetched"), "{unknown}");
}

/// As kcl-lang's Konfig: each stack depends on the package at the root by path, and only that one on a package of a
/// registry. As in kpm the stack's lock holds for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_stack_holds_for_the_packages_below_it() {
    let fixture = Fixture::start().await;
    let pin = sum(&[SIZES[0].1, SIZES[1].1]);
    let entry = |sum: &str| {
        format!(
            "[dependencies]\n  [dependencies.sizes]\n    name = \"sizes\"\n    full_name = \"sizes_1.0.0\"\n    version = \"1.0.0\"\n{sum}"
        )
    };
    let with_sum = |sum: &str| entry(&format!("    sum = \"{sum}\"\n"));
    fixture
        .monorepo
        .write("kcl.mod", "[package]\nname = \"konfig\"\nversion = \"0.14.0\"\n\n[dependencies]\nsizes = \"1.0.0\"\n")
        .write("models/size.k", "import sizes\nsmall = sizes.small\n")
        .write("shop/project.yaml", "name: shop\n")
        .write("shop/dev/stack.yaml", "name: dev\n")
        .write(
            "shop/dev/kcl.mod",
            "[package]\nname = \"shop-dev\"\n\n[dependencies]\nkonfig = { path = \"../..\" }\n\n[profile]\nentries = [\"main.k\"]\n",
        )
        .write("shop/dev/main.k", program("models.small", "import konfig.models\n"))
        // The root's own lock is of another content.
        .write("kcl.mod.lock", with_sum(&sum(&["other"])))
        .write("shop/dev/kcl.mod.lock", with_sum(&pin))
        .commit("Konfig");
    let built = fixture.konverge(&["build", "shop/dev"]).expect(0);
    assert!(built.stdout.contains("value: tiny"), "{}", built.stdout);
    assert!(!built.stderr.contains("not locked"), "{}", built.stderr);

    // Without an entry in the stack's lock that of the package is asked.
    fixture
        .monorepo
        .write("kcl.mod.lock", with_sum(&pin))
        .remove("shop/dev/kcl.mod.lock");
    let built = fixture.konverge(&["build", "shop/dev"]).expect(0);
    assert!(!built.stderr.contains("not locked"), "{}", built.stderr);

    // As 101 of 127 published entries: without a checksum. What pins it is added to the entry, and the rest stays.
    let own = format!(
        "# ours\n{}  [dependencies.zebra]\n    name = \"zebra\"\n",
        entry("")
    );
    fixture
        .monorepo
        .write("kcl.mod.lock", entry(""))
        .write("shop/dev/kcl.mod.lock", &own);
    let built = fixture.konverge(&["build", "shop/dev"]).expect(0);
    assert!(
        built.stderr.contains("sizes:1.0.0 now has the SHA-256"),
        "{}",
        built.stderr
    );
    fixture.konverge(&["kcl", "lock", "shop/dev"]).expect(0);
    let host = fixture.registry.host();
    let expected = own.replace(
        "    version = \"1.0.0\"\n",
        &format!("    version = \"1.0.0\"\n    sum = \"{pin}\"\n    reg = \"{host}\"\n    repo = \"kcl/sizes\"\n    oci_tag = \"1.0.0\"\n"),
    );
    let konfig = "  [dependencies.konfig]\n    name = \"konfig\"\n    full_name = \"konfig_0.14.0\"\n    version = \"0.14.0\"\n";
    let expected = expected.replace(
        "  [dependencies.sizes]",
        &format!("{konfig}  [dependencies.sizes]"),
    );
    assert_eq!(fixture.monorepo.read("shop/dev/kcl.mod.lock"), expected);
    let built = fixture.offline(&["build", "shop/dev"]).expect(0);
    assert!(!built.stderr.contains("not locked"), "{}", built.stderr);
}

/// A lock with the marks of a merge is not read as one that pins nothing, and nothing is written through a link.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lock_and_a_link_are_refused() {
    let fixture = Fixture::start().await;
    fixture.own_packages();
    fixture.monorepo.write(".gitignore", "");
    fixture
        .monorepo
        .write("shop/dev/kcl.mod.lock", "<<<<<<< HEAD\n[dependencies]\n");
    for arguments in [&["build", "shop/dev"][..], &["kcl", "lock", "shop/dev"]] {
        let told = fixture.konverge(arguments).expect(1);
        assert!(told.stderr.contains("shop/dev/kcl.mod.lock"), "{}", told.stderr);
    }
    let elsewhere = fixture.caches.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    let lock = fixture.monorepo.path().join("shop/dev/kcl.mod.lock");
    std::fs::remove_file(&lock).unwrap();
    symlink(&elsewhere, &lock).unwrap();
    let told = fixture.konverge(&["kcl", "lock"]).expect(1);
    assert!(
        told.stderr.contains("does not write through links"),
        "{}",
        told.stderr
    );
    // The other stack is locked all the same.
    assert!(
        told.stdout.contains("shop/prod/kcl.mod.lock: 2 newly locked"),
        "{}",
        told.stdout
    );
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "");
}
