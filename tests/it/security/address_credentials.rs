//! Credentials in any part of any address: refused by every command that reads the address, and not printed.

use serde_json::json;

use crate::support::{git::Repository, process::Konverge};

const NEEDLE: &str = "s3cret-horse-battery";

/// Runs commands on a konverge.yaml; all refuse it by these words, and print no secret.
fn refused(config: &str, says: &str, commands: &[&[&str]]) {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n")
        .write("konverge.yaml", config)
        .commit("An address");
    for command in commands {
        let ran = Konverge::new(command.iter().copied())
            .dir(repository.path())
            .run();
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.code, Some(0), "{command:?} {config}: {all}");
        assert!(!all.contains("s3cret"), "{command:?} {config}: {all}");
        assert!(all.contains(says), "{command:?} {config}: {all}");
    }
}

#[test]
fn the_configuration_holds_none_in_any_part() {
    let state = [
        format!("url: 'https://states.example/x?token={NEEDLE}'"),
        format!("url: 's3://bucket/x?secret={NEEDLE}&region=eu'"),
        format!("url: 's3://{NEEDLE}@bucket/x'"),
        format!("url: 'https://states.example/x#{NEEDLE}'"),
        format!("url: 's3://bucket?endpoint=https%3A%2F%2Fme%3A{NEEDLE}%40s3.example'"),
        format!("url: 's3://bucket?endpoint=https://s3.example/%3Fsig%3D{NEEDLE}'"),
        format!("url: 'states.example?token={NEEDLE}'"),
        format!("kusion_releases: 'https://me:{NEEDLE}@releases.example'"),
        format!("options: {{endpoint: 'https://s3.example?sig={NEEDLE}'}}"),
        format!("encrypt_to: ['azurekv:https://me:{NEEDLE}@acme.vault.azure.net/keys/k']"),
    ];
    for state in state {
        let config = format!("state:\n  {state}\n");
        refused(
            &config,
            "holds credentials: ",
            &[&["config", "check"], &["state", "list"]],
        );
    }
    for (config, says) in [
        (
            format!(
                "terraform: {{provider_addresses: {{hashicorp/vault: ['https://v.example?token={NEEDLE}']}}}}\n"
            ),
            "terraform.provider_addresses.hashicorp/vault holds credentials: the parameter `token`",
        ),
        (
            format!(
                "terraform: {{providers: [{{source: 'me:{NEEDLE}@mirror.example/a/b', version: '1'}}]}}\n"
            ),
            "terraform.providers holds credentials: a password",
        ),
        (
            format!("secrets: {{stores: {{db: {{kind: vault, address: 'https://v.example#{NEEDLE}'}}}}}}\n"),
            "secrets.stores.db.address: is not an https address without",
        ),
        (
            format!(
                "secrets: {{stores: {{f: {{kind: sops, keys: ['azurekv:https://me:{NEEDLE}@a.vault.azure.net/keys/k']}}}}}}\n"
            ),
            "secrets.stores.f.keys holds credentials: a password",
        ),
        (
            format!("notify: [{{kind: slack, url_env: 'https://hooks.example/{NEEDLE}'}}]\n"),
            "notify[].url_env is not the name of an environment variable",
        ),
        (
            format!("notify: [{{kind: webhook, url_env: HOOK, key_env: '{NEEDLE}'}}]\n"),
            "notify[].key_env is not the name of an environment variable",
        ),
        (
            format!("clusters: {{a: {{kubeconfig_env: '/etc/{NEEDLE}'}}}}\n"),
            "clusters.a.kubeconfig_env is not the name of an environment variable",
        ),
        (
            "state: {url: 's3://b', options: {token: x}}\n".to_owned(),
            "state.options: unknown option `token`",
        ),
    ] {
        refused(&config, says, &[&["config", "check"]]);
    }
}

/// What a person or a job gives besides the file.
#[test]
fn arguments_and_variables_hold_none_either() {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"a\"\nversion = \"0.1.0\"\n")
        .commit("Nothing configured");
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://me:{NEEDLE}@127.0.0.1:1")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    repository.write("spec.json", r#"{"resources":[{"id":"v1:Namespace:a","type":"Kubernetes","attributes":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}}]}"#);
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("config");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let url = |rest: &str| rest.replace("NEEDLE", NEEDLE);
    for (command, variable, says) in [
        (
            vec!["state", "import", "https://me:NEEDLE@kusion.example/x"],
            None,
            "it holds a password",
        ),
        (
            vec!["state", "import", "https://kusion.example/x?token=NEEDLE"],
            None,
            "it holds the parameter `token`",
        ),
        (
            vec!["state", "import", "s3://bucket/x?secret=NEEDLE"],
            None,
            "it holds the parameter `secret`",
        ),
        (
            vec![
                "kcl",
                "install",
                "0.13.2",
                "--index",
                "https://me:NEEDLE@pypi.example/simple",
            ],
            None,
            "--index holds a password",
        ),
        (
            vec![
                "preview",
                "--spec",
                "spec.json",
                "--live",
                "required",
                "--kubeconfig",
                file.to_str().unwrap(),
            ],
            None,
            "the address of its server holds credentials: a password",
        ),
        (
            vec!["state", "list"],
            Some(("AWS_ENDPOINT_URL", "https://me:NEEDLE@s3.example")),
            "the address in AWS_ENDPOINT_URL holds a password",
        ),
    ] {
        let command: Vec<_> = command.into_iter().map(url).collect();
        let data = outside.path().join("data");
        let mut konverge = Konverge::new(command.iter().map(String::as_str))
            .dir(repository.path())
            .env("XDG_DATA_HOME", data)
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b");
        if let Some((name, value)) = variable {
            repository.write(
                "konverge.yaml",
                "state: {id: x, url: 's3://bucket/x?region=eu'}\n",
            );
            konverge = konverge.env(name, url(value));
        }
        let ran = konverge.run();
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.code, Some(0), "{command:?}: {all}");
        assert!(all.contains(says), "{command:?}: {all}");
        assert!(!all.contains("s3cret"), "{command:?}: {all}");
    }
}
