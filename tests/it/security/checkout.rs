//! Anyone who proposes a change chooses every file and link of the checkout: nothing that is run or trusted comes from
//! there, and nothing is written through a link of it.

use std::{
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::support::{git::Repository, kcl, process::Konverge, tiny_monorepo};

/// A checkout with a program of the branch, which leaves a file behind when it is run.
struct Hostile {
    monorepo: Repository,
    outside: TempDir,
    ran: PathBuf,
}

impl Hostile {
    fn new() -> Self {
        let monorepo = tiny_monorepo::monorepo();
        tiny_monorepo::write_stack(&monorepo, "web/dev", "web", "info");
        let outside = tempfile::tempdir().unwrap();
        let ran = outside.path().join("it-ran");
        Self {
            monorepo,
            outside,
            ran,
        }
    }

    /// A program at this place.
    fn plant(&self, path: &str) {
        self.monorepo.write(
            path,
            format!("#!/bin/sh\ntouch '{}'\necho '{{}}'\n", self.ran.display()),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.monorepo.path().join(path), mode).unwrap();
    }

    /// The ways in which a path can name a file of the checkout.
    fn ways(&self, path: &str) -> [String; 4] {
        let link = self.outside.path().join("link");
        if !link.exists() {
            symlink(self.monorepo.path(), &link).unwrap();
        }
        let root = self.monorepo.path().canonicalize().unwrap();
        [
            format!("/proc/self/cwd/{path}"),
            root.join(path).display().to_string(),
            link.join(path).display().to_string(),
            format!("{}/nowhere/../link/{path}", self.outside.path().display()),
        ]
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        Konverge::new(arguments).dir(self.monorepo.path()).with_kcl()
    }

    /// The command refuses to go on, says that the path is refused, and has run nothing.
    fn refuses(&self, arguments: &[&str], way: &str) {
        let outcome = self.konverge(arguments).run();
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!self.ran.exists(), "{arguments:?} ran {way}: {told}");
        assert_ne!(outcome.code, Some(0), "{arguments:?} {way}: {told}");
        let why = ["lies in the repository", "lies below /proc"];
        assert!(
            why.iter().any(|why| told.contains(why)),
            "{arguments:?} {way}: {told}"
        );
    }
}

fn kubeconfig(plugin: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {{name: c, cluster: {{server: 'https://127.0.0.1:9'}}}}\n\
         contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\nusers:\n- name: u\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n\
         \x20     command: {plugin}\n      interactiveMode: Never\n"
    )
}

const COMMANDS: [&[&str]; 3] = [
    &["preview", "--all", "--live", "required"],
    &["status"],
    &["drift"],
];

#[test]
fn a_kubeconfig_of_stack_yaml_is_not_read_from_the_checkout() {
    let hostile = Hostile::new();
    hostile.plant("ci/plugin");
    let plugin = hostile.monorepo.path().join("ci/plugin");
    let text = kubeconfig(&plugin.display().to_string());
    hostile.monorepo.write("ci/kubeconfig", text);
    for way in hostile.ways("ci/kubeconfig") {
        let stack = format!("name: dev\nkubeConfig: {way}\n");
        hostile.monorepo.write("appops/web/dev/stack.yaml", stack);
        hostile.monorepo.commit("A kubeconfig of mine");
        hostile.refuses(COMMANDS[0], &way);
        // Of a stack that was never applied these ask no cluster.
        for command in &COMMANDS[1..] {
            let outcome = hostile.konverge(command).run();
            assert!(!hostile.ran.exists(), "{command:?} ran {way}: {}", outcome.stderr);
        }
    }
}

/// The kubeconfig is the operator's; its plugin is found where the branch put one of that name.
#[test]
fn a_credentials_plugin_is_not_run_from_the_checkout() {
    let hostile = Hostile::new();
    hostile.plant("plugin-of-mine");
    let file = hostile.outside.path().join("kubeconfig");
    let config = "clusters: {dev: {kubeconfig_env: DEV_KUBECONFIG}}\n";
    hostile.monorepo.write("konverge.yaml", config);
    hostile.monorepo.commit("A cluster");
    let [proc, root, link, _] = hostile.ways("plugin-of-mine");
    for plugin in ["plugin-of-mine", &proc, &root, &link] {
        std::fs::write(&file, kubeconfig(plugin)).unwrap();
        for command in [COMMANDS[0], &["doctor"]] {
            let path = format!(".:{}:/usr/bin:/bin", hostile.monorepo.path().display());
            let outcome = hostile
                .konverge(command)
                .env("DEV_KUBECONFIG", &file)
                .env("PATH", path)
                .run();
            let told = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(!hostile.ran.exists(), "{command:?} ran {plugin}: {told}");
            assert_ne!(outcome.code, Some(0), "{command:?} {plugin}: {told}");
        }
    }
}

#[test]
fn neither_terraform_nor_its_providers_come_from_the_checkout() {
    let hostile = Hostile::new();
    hostile.plant("tools/terraform");
    let resource = r#"    {"id": "hashicorp:local:local_file:x", "type": "Terraform", "attributes": {"filename": "/tmp/x", "content": "x"}, "extensions": {"provider": "registry.terraform.io/hashicorp/local/2.9.0", "resourceType": "local_file"}}
"#;
    tiny_monorepo::write_resources(&hostile.monorepo, "web/dev", "web", resource);
    for (key, path) in [("binary", "tools/terraform"), ("mirror", "tools")] {
        for way in hostile.ways(path) {
            let provider = "{source: hashicorp/local, version: 2.9.0}";
            let config = format!("terraform: {{{key}: '{way}', providers: [{provider}]}}\n");
            hostile.monorepo.write("konverge.yaml", config);
            hostile.monorepo.commit("Tools of mine");
            for command in [&["preview", "--all", "--live", "auto"][..], &["doctor"]] {
                hostile.refuses(command, &way);
            }
        }
    }
}

/// Terraform and git by their names, where the PATH leads into the checkout before it leads to theirs.
#[test]
fn programs_on_the_path_are_not_taken_from_the_checkout() {
    let hostile = Hostile::new();
    for name in ["git", "terraform", "tofu", "python3"] {
        hostile.plant(name);
        hostile.plant(&format!("bin/{name}"));
    }
    let bin = hostile.monorepo.path().join("bin");
    for start in [".", "bin", "./bin", "", "/proc/self/cwd", bin.to_str().unwrap()] {
        let path = format!("{start}:{}", std::env::var("PATH").unwrap());
        let outcome = hostile
            .konverge(&["doctor", "--output", "json"])
            .env("PATH", &path)
            .run();
        assert!(!hostile.ran.exists(), "{start}: {}", outcome.stdout);
        let findings = outcome.json()["findings"].clone();
        assert_eq!(findings[0]["what"], "git");
        assert_eq!(findings[0]["verdict"], "ok", "the next one is used: {findings:#}");
        let installing = hostile
            .konverge(&["kcl", "install", "--index", "http://127.0.0.1:9"])
            .env("PATH", &path)
            .run();
        assert!(!hostile.ran.exists(), "{start}: {}", installing.stderr);
    }
}

#[test]
fn a_core_of_the_checkout_is_not_run() {
    let hostile = Hostile::new();
    hostile.plant("venv/bin/python");
    hostile.monorepo.commit("A core of mine");
    let mut ways = hostile.ways("venv/bin/python").to_vec();
    ways.extend(["venv/bin/python", "./venv/bin/python"].map(str::to_owned));
    for way in ways {
        for command in [&["build", "--all"][..], &["doctor"]] {
            let outcome = hostile.konverge(command).env("KONVERGE_KCL", &way).run();
            let told = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(!hostile.ran.exists(), "{way}: {told}");
            assert_ne!(outcome.code, Some(0), "{way}: {told}");
            assert!(told.contains("KONVERGE_KCL is `"), "{way}: {told}");
        }
    }
}

/// A store's certificates decide who it is, and a folder of states what was applied.
#[test]
fn neither_states_nor_certificates_come_from_the_checkout() {
    let hostile = Hostile::new();
    hostile.monorepo.write("ci/ca.pem", "x");
    for way in hostile.ways("ci/ca.pem") {
        let config = format!("state: {{url: 's3://bucket/x', id: x, options: {{ca_file: '{way}'}}}}\n");
        hostile.monorepo.write("konverge.yaml", config);
        hostile.refuses(&["status"], &way);
    }
    for way in hostile.ways("ci") {
        let config = format!("state: {{url: 'file://{way}', id: x}}\n");
        hostile.monorepo.write("konverge.yaml", config);
        hostile.refuses(&["status"], &way);
    }
}

#[test]
fn a_golden_file_is_not_written_through_a_link() {
    let monorepo = Repository::konfig_example();
    let outside = tempfile::tempdir().unwrap();
    let check = || {
        Konverge::new(["check", "--update", "appops/orders/dev"])
            .dir(monorepo.path())
            .with_kcl()
            .run()
    };
    let folder = "appops/orders/dev/ci-test";
    let golden = monorepo.path().join(folder).join("stdout.golden.yaml");
    let hook = monorepo.path().join(".git/hooks/pre-commit");
    let there = outside.path().join("there");
    std::fs::write(&there, "before").unwrap();
    for target in [
        hook.as_path(),
        &there,
        &outside.path().join("new"),
        Path::new("kcl.yaml"),
    ] {
        std::fs::remove_file(&golden).unwrap();
        symlink(target, &golden).unwrap();
        let outcome = check().expect(1);
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(told.contains("through links in the repository"), "{told}");
        assert!(told.contains(&format!("{folder}/stdout.golden.yaml")), "{told}");
    }
    assert!(!hook.exists());
    // The folder is the link.
    std::fs::remove_dir_all(golden.parent().unwrap()).unwrap();
    symlink(outside.path(), golden.parent().unwrap()).unwrap();
    check().expect(1);
    let left: Vec<_> = std::fs::read_dir(outside.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["there"]);
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "before");
}

#[test]
fn init_follows_no_link() {
    let monorepo = tiny_monorepo::monorepo();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), monorepo.path().join(".github")).unwrap();
    monorepo.commit("A link");
    let refused = Konverge::new(["init"]).dir(monorepo.path()).run().expect(1);
    assert!(
        refused.stderr.contains("through links in the repository"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// The interpreter of the tests lies outside of every checkout that they make.
#[test]
fn what_lies_outside_is_run() {
    let hostile = Hostile::new();
    hostile.monorepo.commit("Good");
    let outcome = hostile.konverge(&["build", "--all"]).run().expect(0);
    assert!(outcome.stdout.contains("kind: ConfigMap"), "{}", outcome.stdout);
    assert!(kcl::interpreter().is_absolute());
}
