//! Secrets of every shape on the command line: what is masked where no server and no provider was asked, in every
//! output of every command; credentials that the run itself holds; settings that name the wrong variable.

use serde_json::{Value, json};

use crate::support::{
    process::Outcome,
    shop_monorepo::{Shop, resource},
};

/// In every secret.
const NEEDLE: &str = "n33dle";

/// The beginning of the base64 of every Secret's data.
const ENCODED: &str = "bjMzZGxl";

fn nothing_shown(outcome: &Outcome, what: &str) {
    for text in [&outcome.stdout, &outcome.stderr] {
        for word in [NEEDLE, ENCODED] {
            assert!(!text.contains(word), "{what} shows {word}:\n{text}");
        }
    }
}

/// Each of these held a value that was printed in clear before.
fn resources() -> Vec<Value> {
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"},
        "data": {"a": format!("{ENCODED}LWluLWRhdGE=")}})
    };
    let application = json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": {"name": "velux", "namespace": "shop"},
        "spec": {"components": [{"name": "s", "type": "k8s-objects", "properties": {"objects": [secret("inner")]}}]}});
    let list = json!({"apiVersion": "example.com/v1", "kind": "Bundle", "metadata": {"name": "bundle", "namespace": "shop"},
        "spec": {"template": {"kind": "List", "apiVersion": "v1", "items": [secret("listed")]}}});
    let odd = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "odd", "namespace": "shop"},
        "stringData": {"nested": {"x": [format!("{NEEDLE}-nested")]}, "b": format!("{NEEDLE}-plain\n")}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "shop/web:1", "env": [
            {"name": "DB_PASSWORD", "value": format!("{NEEDLE}-Env1")},
            {"name": "DB_URL", "value": format!("postgres://shop:{NEEDLE}-Url1@db/shop")}]}]}}}});
    let document =
        json!({"server": "shown", "auth": {"client_secret": format!("{NEEDLE}-Json1")}}).to_string();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "documents", "namespace": "shop"},
        "data": {"app.json": document, "secret.yaml": format!("kind: Secret\nstringData:\n  k: {NEEDLE}-Yaml1\n")}});
    let account = json!({"id": "aliyun:alicloud:alicloud_db_account:a", "type": "Terraform",
        "attributes": {"account_name": "root", "account_password": format!("{NEEDLE}123456"), "access_token": format!("{NEEDLE}-T0ken"),
            "tls": [{"private_key_pem": format!("{NEEDLE}-K3y")}]},
        "extensions": {"provider": "registry.terraform.io/aliyun/alicloud/1.209.1",
            "providerMeta": {"region": "cn-hangzhou", "secret_key": format!("{NEEDLE}-Pr0vider")}}});
    let mut all: Vec<Value> = [&application, &list, &odd, &deployment, &map]
        .map(resource)
        .into();
    all.push(account);
    all
}

/// Without it a Spec may not choose the key, and is refused before anything is shown.
const SECRET_KEY_ALLOWED: &str = "version: 1\nterraform: {credential_settings: [secret_key]}\n";

#[test]
fn no_command_shows_a_secret_of_any_shape() {
    let shop = Shop::new(SECRET_KEY_ALLOWED, &[]);
    shop.wants("dev", &[]);
    shop.wants("dev", &resources());
    for output in ["text", "json", "markdown", "html"] {
        let preview = [
            "preview", "--base", "HEAD~1", "--live", "never", "--output", output,
        ];
        let shown = shop.run(&preview).expect(0);
        nothing_shown(&shown, &format!("preview --output {output}"));
        assert!(
            shown.stdout.contains("alicloud_db_account") && shown.stdout.contains("root"),
            "{}",
            shown.stdout
        );
    }
    for output in ["yaml", "json", "manifests"] {
        let shown = shop.run(&["build", "--all", "--output", output]).expect(0);
        nothing_shown(&shown, &format!("build --output {output}"));
        assert!(
            shown.stdout.contains("$secret") && shown.stdout.contains("shop/web:1"),
            "{}",
            shown.stdout
        );
    }
    let yaml = shop.run(&["build", "--all"]).expect(0).stdout;
    for kept in [
        "cn-hangzhou",
        "account_name: root",
        "\\\"server\\\":\\\"shown\\\"",
        "postgres://shop:$secret:",
    ] {
        assert!(
            yaml.replace("\\\\", "\\").contains(kept) || yaml.contains(&kept.replace('\\', "")),
            "{kept}: {yaml}"
        );
    }
    for output in ["text", "json", "dot", "mermaid"] {
        nothing_shown(&shop.run(&["graph", "--output", output]).expect(0), "graph");
    }
    // A golden file with other secrets: what differs is named, not shown.
    let golden = yaml.replace("$secret", &format!("{NEEDLE}-golden"));
    shop.monorepo
        .write("apps/shop/dev/ci-test/stdout.golden.yaml", golden);
    let check = shop.run(&["check", "--all"]);
    assert_eq!(check.code, Some(1), "{}{}", check.stdout, check.stderr);
    nothing_shown(&check, "check");
    // The next plan: what was there before is masked too.
    shop.wants("dev", &[]);
    let shown = shop
        .run(&["preview", "--base", "HEAD~1", "--live", "never"])
        .expect(0);
    nothing_shown(&shown, "preview of a removal");
}

#[test]
fn secrets_are_shown_to_who_asks_but_never_in_ci() {
    let shop = Shop::new("", &[]);
    shop.wants("dev", &resources());
    let build = || shop.konverge(&["build", "--all", "--show-secrets"]);
    let shown = build().run().expect(0);
    for secret in ["Env1", "T0ken", "Pr0vider", "plain"] {
        assert!(
            shown.stdout.contains(&format!("{NEEDLE}-{secret}")),
            "{secret}: {}",
            shown.stdout
        );
    }
    for service in ["CI", "GITHUB_ACTIONS"] {
        let refused = build().env(service, "true").run().expect(64);
        nothing_shown(&refused, "a job");
        assert!(refused.stderr.contains("--show-secrets"), "{}", refused.stderr);
    }
    build().env("CI", "false").run().expect(0);
}

#[test]
fn what_kcl_prints_is_masked_before_it_is_told() {
    let shop = Shop::new(SECRET_KEY_ALLOWED, &[]);
    shop.wants("dev", &resources());
    let program = shop.monorepo.read("apps/shop/dev/main.k");
    let printed = format!(
        "print(\"connects with {NEEDLE}-plain and {ENCODED}LWluLWRhdGE= as postgres://a:{NEEDLE}-Url2@db\")\nprint(\"password: {NEEDLE}-Named\")\n{program}"
    );
    shop.monorepo.write("apps/shop/dev/main.k", printed);
    for command in [&["build", "--all"][..], &["preview", "--all", "--live", "never"]] {
        let told = shop.run(command).expect(0);
        nothing_shown(&told, "print");
    }
    // Not from the cache, where it was seen before.
    let told = shop
        .konverge(&["build", "--all"])
        .env("KONVERGE_CACHE", "off")
        .run()
        .expect(0);
    nothing_shown(&told, "print");
    assert!(told.stderr.contains("connects with ***"), "{}", told.stderr);
}

#[test]
fn credentials_of_the_run_are_masked_in_every_form() {
    use base64::Engine as _;
    let secret = format!("{NEEDLE}-of \"the\" run");
    let base64 = base64::engine::general_purpose::STANDARD.encode(format!("user:{secret}"));
    let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let nested = json!({"inner": json!({"x": secret}).to_string()}).to_string();
    let forms = [secret.clone(), base64, hexadecimal, percent, nested];
    let data: serde_json::Map<String, Value> = forms
        .iter()
        .enumerate()
        .map(|(at, form)| (format!("form-{at}"), json!(format!("says {form}"))))
        .collect();
    let shop = Shop::new("", &[]);
    shop.wants("dev", &[]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "shop"}, "data": data});
    shop.wants("dev", &[resource(&map)]);
    let variables = [
        "VAULT_TOKEN",
        "ARM_CLIENT_SECRET",
        "TF_TOKEN_app_terraform_io",
        "KONVERGE_OCI_PASSWORD",
        "AWS_SESSION_TOKEN",
    ];
    for variable in variables {
        for command in [
            &["build", "--all"][..],
            &["preview", "--base", "HEAD~1", "--live", "never"],
            &[
                "preview", "--base", "HEAD~1", "--live", "never", "--output", "json",
            ],
            &[
                "preview", "--base", "HEAD~1", "--live", "never", "--output", "html",
            ],
        ] {
            let told = shop.konverge(command).env(variable, &secret).run();
            for form in &forms {
                let inside = form.trim_matches(['{', '}']);
                assert!(
                    !told.stdout.contains(inside) && !told.stderr.contains(inside),
                    "{variable} {command:?}: {}",
                    told.stdout
                );
            }
            assert!(
                !told.stdout.contains(NEEDLE),
                "{variable} {command:?}: {}",
                told.stdout
            );
            assert!(
                told.stdout.contains("***"),
                "{variable} {command:?}: {}{}",
                told.stdout,
                told.stderr
            );
        }
    }
}

/// `kubeconfig_env` names a variable: whatever that holds, and whatever lies where it leads, is not quoted.
#[test]
fn the_wrong_variable_is_not_printed() {
    const CONFIG: &str =
        "clusters:\n  prod: {kubeconfig_env: SOME_VARIABLE}\nstacks:\n- {match: '**', cluster: prod}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let path = file.display().to_string();
    let shop = Shop::new(CONFIG, &[]);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "shop"}});
    shop.wants("dev", &[resource(&map)]);
    let contents = [
        format!("{NEEDLE}: [\n"),
        format!("clusters: {NEEDLE}\nusers: 7\n"),
        format!("users:\n- name: a\n  user: {{token: [{NEEDLE}]}}\n"),
        json!({"apiVersion": "v1", "kind": "Config", "current-context": NEEDLE, "users": [{"name": "u", "user": {"token": NEEDLE}}]}).to_string(),
    ];
    let by_content = contents.iter().map(|content| (Some(content), path.clone()));
    let values = [
        (None, format!("{NEEDLE}-a-token")),
        (None, format!("/{NEEDLE}/x")),
    ];
    for (content, value) in values.into_iter().chain(by_content) {
        content
            .into_iter()
            .for_each(|content| std::fs::write(&file, content).unwrap());
        for command in [
            &["preview", "--all"][..],
            &["preview", "--all", "--output", "json"],
            &["status"],
            &["doctor"],
        ] {
            let told = shop.konverge(command).env("SOME_VARIABLE", &value).run();
            // The name of a context is no secret, and helps.
            let context = content.is_some_and(|content| content.contains("current-context"));
            assert!(
                context || (!told.stdout.contains(NEEDLE) && !told.stderr.contains(NEEDLE)),
                "{command:?} {value}: {}\n{}",
                told.stdout,
                told.stderr
            );
            if command[0] == "preview" {
                assert_ne!(told.code, Some(0), "{command:?}");
                let all = format!("{}{}", told.stdout, told.stderr);
                assert!(all.contains("SOME_VARIABLE"), "{command:?}: {all}");
            }
        }
    }
}

#[test]
fn a_password_in_the_configuration_is_refused_and_not_printed() {
    let shop = Shop::new(
        &format!("state: {{url: 'postgres://me:{NEEDLE}@db/states'}}\n"),
        &[],
    );
    shop.wants("dev", &[]);
    for command in [
        &["config", "check"][..],
        &["preview", "--all", "--live", "never"],
        &["doctor"],
    ] {
        let told = shop.run(command);
        assert_ne!(told.code, Some(0), "{command:?}");
        nothing_shown(&told, "the configuration");
        let all = format!("{}{}", told.stdout, told.stderr);
        assert!(all.contains("state.url holds credentials"), "{command:?}: {all}");
    }
    let modules = format!(
        "[package]\nname = \"shop\"\n[dependencies]\nlib = {{ git = \"https://me:{NEEDLE}@127.0.0.1:1/lib\", tag = \"v1\" }}\nreg = {{ oci = \"oci://me:{NEEDLE}@127.0.0.1:1/lib\", tag = \"1\" }}\n"
    );
    shop.monorepo
        .write("konverge.yaml", "")
        .write("kcl.mod", &modules);
    let lock =
        "[dependencies.lib]\nname = \"lib\"\nsum = \"x\"\n[dependencies.reg]\nname = \"reg\"\nsum = \"x\"\n";
    shop.monorepo.write("kcl.mod.lock", lock);
    shop.monorepo.commit("A package by an address with a password");
    let told = shop.run(&["build", "--all"]);
    assert_ne!(told.code, Some(0), "{}", told.stdout);
    nothing_shown(&told, "an address in kcl.mod");
    assert!(told.stderr.contains("holds credentials"), "{}", told.stderr);
}
