//! What goes wrong, and what is said then.

use std::path::PathBuf;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::plan::Action,
};
use konverge_terraform::{AllowedProvider, STATE};
use serde_json::json;

use super::runtime_fixture::{Rig, Sink, data, name, resource};
use crate::support::terraform;

pub async fn one_bad_item_takes_no_other_down(binary: PathBuf) {
    let rig = Rig::new(binary);
    let mut bad = rig.file("bad", json!("x"));
    bad.attributes.insert("no_such_attribute".to_owned(), json!(1));
    let mut after_bad = data("after_bad", json!({"input": 1}));
    after_bad.depends_on = vec![bad.id.clone()];
    let mut worse = rig.file("worse", json!("y"));
    worse
        .attributes
        .insert("file_permission".to_owned(), json!("not octal"));
    let refers = data(
        "refers",
        json!({"input": "$kusion_path.hashicorp:local:local_file:worse.content"}),
    );
    let wanted = [rig.file("good", json!("good")), bad, after_bad, worse, refers];
    let answers = rig.try_plan(&wanted).await.remove(0);
    assert_eq!(answers[0].as_ref().unwrap().public.action, Action::Create);
    let failure = |n: usize| answers[n].as_ref().unwrap_err();
    assert!(failure(1).message.contains("no_such_attribute"), "{}", failure(1));
    assert!(
        failure(1).message.contains("local_file:bad"),
        "it names the resource: {}",
        failure(1)
    );
    assert!(failure(3).message.contains("worse"), "{}", failure(3));
    for (n, needs) in [(2, "local_file:bad"), (4, "local_file:worse")] {
        assert!(failure(n).message.contains(needs), "{}", failure(n));
    }
    assert!(
        answers[1..]
            .iter()
            .all(|a| !a.as_ref().unwrap_err().hints.is_empty())
    );
}

pub async fn a_failure_in_the_middle(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let first = rig.file("first", json!("1"));
    // A path below a file cannot be made; the provider learns that only while applying.
    let below = rig.path("first").join("below");
    let mut second = resource(
        "hashicorp:local:local_file:second",
        json!({"filename": below, "content": "2"}),
    );
    second.depends_on = vec![first.id.clone()];
    let mut third = rig.file("third", json!("3"));
    third.depends_on = vec![second.id.clone()];
    let beside = rig.file("beside", json!("4"));
    let wanted = [first, second, third, beside];
    let sink = Sink::default();
    rig.apply_into(&wanted, &sink).await.unwrap();
    for made in ["first", "beside"] {
        assert!(sink.end_of(made).unwrap().is_ok(), "{made}");
        assert!(rig.path(made).exists());
    }
    let second = sink.end_of("second").unwrap().unwrap_err();
    assert_eq!(second.kind, ErrorKind::Terraform);
    assert!(second.message.contains("not a directory"), "{second}");
    let third = sink.end_of("third").unwrap().unwrap_err();
    assert!(third.message.contains("was not applied"), "{third}");
    assert!(!rig.path("third").exists());
    let actions = rig.actions(&wanted).await;
    assert_eq!(
        actions["first"],
        Action::Unchanged,
        "what was made is in the state"
    );
    assert_eq!(actions["second"], Action::Create);
    rig.apply(&[]).await;
    assert!(!rig.path("first").exists());
}

pub async fn what_may_not_run(binary: PathBuf) {
    let rig = Rig::new(binary.clone());
    let mut other_version = rig.file("other_version", json!("x"));
    other_version.extensions.insert(
        "provider".to_owned(),
        json!("registry.terraform.io/hashicorp/local/2.8.0"),
    );
    let mut other_host = rig.file("other_host", json!("x"));
    other_host
        .extensions
        .insert("provider".to_owned(), json!("evil.example/hashicorp/local/2.9.0"));
    let mut command = data("command", json!({"input": 1}));
    command.attributes.insert(
        "provisioner".to_owned(),
        json!([{"local-exec": {"command": format!("touch {}", rig.path("ran").display())}}]),
    );
    let good = rig.file("good", json!("good"));
    let answers = rig
        .try_plan(&[other_version, other_host, command, good])
        .await
        .remove(0);
    let failure = |n: usize| answers[n].as_ref().unwrap_err();
    for n in [0, 1] {
        assert_eq!(failure(n).kind, ErrorKind::Policy);
        assert!(
            failure(n).hints[0].contains("terraform.providers"),
            "{:?}",
            failure(n)
        );
    }
    assert!(failure(2).message.contains("provisioner"), "{}", failure(2));
    assert!(answers[3].is_ok());
    assert!(!rig.path("ran").exists());

    let lists_what_is_missing = Rig::with(binary, |options| {
        options.providers.push(AllowedProvider {
            source: "hashicorp/absent".to_owned(),
            version: "1.0.0".to_owned(),
            hashes: Vec::new(),
        });
    });
    let mut absent = resource("hashicorp:absent:absent_thing:x", json!({}));
    absent.extensions.insert(
        "provider".to_owned(),
        json!("registry.terraform.io/hashicorp/absent/1.0.0"),
    );
    let failure = only_failure(&lists_what_is_missing, absent).await;
    assert!(
        failure.message.contains("hashicorp/absent 1.0.0 was not found"),
        "{failure}"
    );
    assert!(failure.hints[0].contains("mirror"), "{failure:?}");

    let none = Rig::new("/nonexistent/terraform".into());
    let failure = only_failure(&none, data("x", json!({}))).await;
    assert!(failure.hints[0].contains("install Terraform"), "{failure:?}");
}

async fn only_failure(rig: &Rig, resource: konverge_base::model::spec::Resource) -> UserError {
    rig.try_plan(&[resource]).await.remove(0).remove(0).unwrap_err()
}

pub async fn an_import_that_fails(binary: PathBuf) {
    let rig = Rig::new(binary);
    let import = |mut resource: konverge_base::model::spec::Resource, id: &str| {
        let extensions = &mut resource.extensions;
        extensions.insert("kusionstack.io/import-id".to_owned(), json!(id));
        resource
    };
    // This provider imports nothing, and its error names no resource.
    let wanted = [
        rig.file("good", json!("good")),
        import(rig.file("not", json!("x")), "some-id"),
        import(data("adopted", json!({"input": "x"})), "other-id"),
    ];
    let answers = rig.try_plan(&wanted).await.remove(0);
    let failure = answers[1].as_ref().unwrap_err();
    assert!(
        failure.message.contains("local_file:not") && failure.message.contains("does not support import"),
        "{failure}"
    );
    assert_eq!(answers[0].as_ref().unwrap().public.action, Action::Create);
    assert_eq!(answers[2].as_ref().unwrap().public.action, Action::Adopt);
}

pub async fn an_executable_that_is_too_old(_: PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::TempDir::new().unwrap();
    let old = folder.path().join("terraform");
    std::fs::write(&old, "#!/bin/sh\necho 'Terraform v1.4.7'\n").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let failure = only_failure(&Rig::new(old.clone()), data("x", json!({}))).await;
    for word in ["1.4.7", "1.5 or newer", old.to_str().unwrap()] {
        assert!(failure.message.contains(word), "{word}: {failure}");
    }
    assert!(failure.hints[0].contains("terraform.binary"), "{failure:?}");
}

pub async fn a_provider_that_is_configured_wrongly(binary: PathBuf) {
    let rig = Rig::with(binary, |options| {
        options.credential_settings = vec!["no_such_setting".to_owned()]
    });
    let mut wrong = rig.file("wrong", json!("x"));
    wrong
        .extensions
        .insert("providerMeta".to_owned(), json!({"no_such_setting": "x"}));
    let failure = only_failure(&rig, wrong).await;
    assert!(
        failure.message.contains("local_file:wrong") && failure.message.contains("no_such_setting"),
        "{failure}"
    );
    assert!(failure.hints[0].contains("documentation"), "{failure:?}");
}

/// Refused before anything is started, and nobody is proven to anybody.
pub async fn a_spec_chooses_no_credentials_of_the_machine(binary: PathBuf) {
    let folder = tempfile::TempDir::new().unwrap();
    let mark = folder.path().join("was-run");
    let rig = Rig::new(binary.clone());
    let configured = |rig: &Rig, meta: serde_json::Value| {
        let mut resource = rig.file("x", json!("x"));
        resource.extensions.insert("providerMeta".to_owned(), meta);
        resource
    };
    for (setting, meta) in [
        (
            "credential_process",
            json!({"credential_process": format!("touch {}", mark.display())}),
        ),
        (
            "exec",
            json!({"kubernetes": [{"exec": {"command": "touch", "args": [mark]}}]}),
        ),
        (
            "shared_config_files",
            json!({"shared_config_files": ["/root/.aws/config"]}),
        ),
    ] {
        let failure = only_failure(&rig, configured(&rig, meta)).await;
        assert_eq!(failure.kind, konverge_base::error::ErrorKind::Policy, "{failure}");
        assert!(failure.message.contains(setting), "{failure}");
        assert!(
            failure.hints[1].contains("terraform.credential_settings"),
            "{failure:?}"
        );
    }
    assert!(!mark.exists());
    // What the default branch allows reaches the provider, which does not know it.
    let allowed = Rig::with(binary, |options| {
        options.credential_settings = vec!["config_path".to_owned()]
    });
    let failure = only_failure(&allowed, configured(&allowed, json!({"config_path": "x"}))).await;
    assert!(
        failure.message.contains("config_path") && !failure.message.contains("may not choose"),
        "{failure}"
    );
}

/// A provider would send the credentials of the job's environment there, in a preview already.
pub async fn a_spec_chooses_no_address_of_its_provider(binary: PathBuf) {
    let rig = Rig::new(binary.clone());
    let configured = |rig: &Rig, meta: serde_json::Value| {
        let mut resource = rig.file("x", json!("x"));
        resource.extensions.insert("providerMeta".to_owned(), meta);
        resource
    };
    let theirs = || json!({"endpoints": [{"sts": "https://evil.example"}]});
    for meta in [
        theirs(),
        json!({"host": "evil.example"}),
        json!({"host": "evil"}),
        json!({"insecure": true}),
        json!({"region": "x@evil.example#"}),
    ] {
        let failure = only_failure(&rig, configured(&rig, meta)).await;
        assert_eq!(failure.kind, konverge_base::error::ErrorKind::Policy, "{failure}");
        assert!(failure.message.contains("the job's credentials"), "{failure}");
        assert!(
            failure.hints[1].contains("terraform.provider_addresses"),
            "{failure:?}"
        );
    }
    // What the default branch lists for this provider reaches it; it does not know it.
    let listing = |source: &str| {
        let listed = [(source.to_owned(), vec!["https://evil.example".to_owned()])];
        Rig::with(binary.clone(), |options| {
            options.provider_addresses = listed.into()
        })
    };
    let other = listing("hashicorp/aws");
    let failure = only_failure(&other, configured(&other, theirs())).await;
    assert_eq!(failure.kind, konverge_base::error::ErrorKind::Policy, "{failure}");
    let ours = listing("hashicorp/local");
    let failure = only_failure(&ours, configured(&ours, theirs())).await;
    assert!(
        failure.message.contains("endpoints") && !failure.message.contains("the job's credentials"),
        "{failure}"
    );
}

/// The job may be allowed to act as another team, and a preview would do so already.
pub async fn a_spec_chooses_no_identity_of_its_provider(binary: PathBuf) {
    let rig = Rig::new(binary.clone());
    let configured = |rig: &Rig, meta: serde_json::Value| {
        let mut resource = rig.file("x", json!("x"));
        resource.extensions.insert("providerMeta".to_owned(), meta);
        resource
    };
    let role = || json!({"assume_role": [{"role_arn": "arn:aws:iam::111122223333:role/other"}]});
    for meta in [
        role(),
        json!({"assumeRole": {"with": "other"}}),
        json!({"impersonate_service_account": "other@shop.iam.gserviceaccount.com"}),
        json!({"options": [{"profile": "other"}]}),
        json!({"something_new": "other@"}),
        json!({"access_key": "other", "use_oidc": true}),
    ] {
        let failure = only_failure(&rig, configured(&rig, meta)).await;
        assert_eq!(failure.kind, konverge_base::error::ErrorKind::Policy, "{failure}");
        assert!(
            failure.message.contains("no identity of a provider") && !failure.message.contains("other@"),
            "{failure}"
        );
        assert!(failure.hints[0].contains("the job's environment"), "{failure:?}");
    }
    // What the default branch allows reaches the provider, which does not know it.
    let by_name = Rig::with(binary.clone(), |options| {
        options.credential_settings = vec!["assume_role".to_owned()]
    });
    let listing = |source: &str| {
        let role = vec!["arn:aws:iam::111122223333:role/other".to_owned()];
        Rig::with(binary.clone(), |options| {
            options.provider_identities = [(source.to_owned(), role)].into()
        })
    };
    for (allowed, reaches) in [
        (by_name, true),
        (listing("hashicorp/local"), true),
        (listing("hashicorp/aws"), false),
    ] {
        let failure = only_failure(&allowed, configured(&allowed, role())).await;
        assert!(failure.message.contains("assume_role"), "{failure}");
        assert_eq!(reaches, !failure.message.contains("no identity"), "{failure}");
    }
}

pub async fn a_service_that_does_not_answer(binary: PathBuf) {
    let mut rig = Rig::with(binary, |options| {
        options.deadline = std::time::Duration::from_secs(20)
    });
    let wanted = [rig.file("hangs", json!("x"))];
    rig.apply(&wanted).await;
    // The provider reads the file to refresh it, and waits for a writer of the pipe.
    std::fs::remove_file(rig.path("hangs")).unwrap();
    super::interruption::pipe(&rig.path("hangs"));
    let [one] = wanted;
    let failure = only_failure(&rig, one).await;
    assert!(
        failure
            .message
            .contains("`terraform plan` did not end within 20 s"),
        "{failure}"
    );
    assert!(failure.hints[0].contains("service answers"), "{failure:?}");
    assert_eq!(rig.recorded.len(), 1, "nothing is forgotten");
}

pub async fn a_package_with_another_hash(binary: PathBuf) {
    let with =
        |hashes: Vec<String>| Rig::with(binary.clone(), |options| options.providers[0].hashes = hashes);
    let wrong = with(vec![format!("h1:{}=", "A".repeat(43))]);
    let file = wrong.file("x", json!("x"));
    let failure = only_failure(&wrong, file).await;
    assert!(
        failure.message.contains("not the one that is allowed"),
        "{failure}"
    );
    assert_eq!(failure.kind, ErrorKind::Terraform);

    let mut first_use = with(Vec::new());
    let wanted = [first_use.file("x", json!("x"))];
    first_use.apply(&wanted).await;
    let hash = package_hash();
    assert!(first_use.actions(&wanted).await["x"] == Action::Unchanged);
    let right = with(vec![hash]);
    let wanted = [right.file("x", json!("x"))];
    assert_eq!(right.actions(&wanted).await["x"], Action::Create);
}

/// The `h1:` hash of the provider's package in the mirror: SHA-256 of `<SHA-256 of file>  <name>` lines.
fn package_hash() -> String {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};
    let folder = terraform::mirror().join("registry.terraform.io/hashicorp/local/2.9.0/linux_amd64");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut lines = String::new();
    for file in files {
        let digest = Sha256::digest(std::fs::read(file.path()).unwrap());
        let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        lines.push_str(&format!("{hex}  {}\n", file.file_name().to_str().unwrap()));
    }
    let digest = Sha256::digest(lines.as_bytes());
    format!("h1:{}", base64::engine::general_purpose::STANDARD.encode(digest))
}

pub async fn a_preview_writes_nothing(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let wanted = [rig.file("a", json!("a")), rig.file("b", json!("b"))];
    rig.apply(&wanted).await;
    let state = rig.scope.data[STATE].clone();
    std::fs::write(rig.path("a"), "drifted").unwrap();
    let changed = [rig.file("a", json!("new")), rig.file("c", json!("c"))];
    let before = listing(&rig);
    let plan = rig.plan(&changed).await;
    assert_eq!(plan.iter().flatten().count(), 3);
    assert_eq!(listing(&rig), before);
    assert_eq!(rig.scope.data[STATE], state);
    // The same document, byte for byte, plans the same way again.
    let names: Vec<_> = plan.iter().flatten().map(|p| name(&p.item.id)).collect();
    assert_eq!(names, ["a", "c", "b"]);
}

fn listing(rig: &Rig) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    super::runtime_fixture::walk(rig.outside.path(), &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}
