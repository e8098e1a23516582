use super::*;
use konverge_config::Config;
use serde_json::json;

fn as_resource(resource: Value) -> Resource {
    Resource {
        id: "v1:X:ns:x".parse().unwrap(),
        runtime: match resource.get("kind") {
            Some(_) => RuntimeKind::Kubernetes,
            None => RuntimeKind::Terraform,
        },
        attributes: resource.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions: Map::new(),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

fn judge(secrets: &str, resource: Value) -> Result<Vec<String>, String> {
    judge_at("appops/pay/prod", secrets, resource)
}

/// Asks as the stack in a folder.
fn as_reader<T>(folder: &str, ask: impl FnOnce(SecretReader<'_>) -> T) -> T {
    let (stack, folder) = ("pay/prod".parse().unwrap(), RepoPath::normalize(folder).unwrap());
    ask(SecretReader {
        stack: &stack,
        folder: &folder,
    })
}

fn judge_at(folder: &str, secrets: &str, resource: Value) -> Result<Vec<String>, String> {
    let config = Config::parse(secrets).unwrap();
    let resource = as_resource(resource);
    let spec = Spec {
        resources: vec![resource],
        secret_stores: Vec::new(),
        outputs: serde_json::Map::new(),
        notes: Vec::new(),
    };
    match as_reader(folder, |reader| admit(&config.secrets, reader, spec)) {
        Ok(admitted) => Ok(admitted.references.iter().map(SecretReference::label).collect()),
        Err(failure) => Err(format!("{} — {}", failure.message, failure.hints.join(" "))),
    }
}

const STORES: &str = "secrets:\n  default: job\n  stores:\n    job: {kind: env, allow: [{stacks: 'appops/pay/*', paths: 'PAY_*'}]}\n    here: {kind: kubernetes, allow: [{stacks: 'appops/**', paths: 'pay/*'}]}\n";

fn secret(text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": text}})
}

#[test]
fn a_check_names_every_reference_that_is_refused() {
    let config = Config::parse(STORES).unwrap();
    let refused = |texts: &[&str]| -> Vec<String> {
        let spec = Spec {
            resources: texts.iter().map(|text| as_resource(secret(text))).collect(),
            secret_stores: Vec::new(),
            outputs: serde_json::Map::new(),
            notes: Vec::new(),
        };
        let refusals = as_reader("appops/pay/prod", |reader| {
            secret_refusals(&config.secrets, reader, &spec)
        });
        refusals.into_iter().map(|refusal| refusal.message).collect()
    };
    assert!(refused(&["ref+job://PAY_DB", "no reference"]).is_empty());
    let found = refused(&["ref+job://OTHER", "ref+job://PAY_DB", "ref+nowhere://x"]);
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("may not read `OTHER`"), "{}", found[0]);
    assert!(found[1].contains("ref+nowhere://x"), "{}", found[1]);
}

#[test]
fn a_reference_of_an_allowed_path_is_admitted_with_its_store() {
    for (text, label) in [
        ("ref+job://PAY_DB", "job:PAY_DB"),
        ("ref+env://PAY_DB", "job:PAY_DB"),
        ("ref://PAY_DB/user", "job:PAY_DB#/user"),
        ("x ref+env://PAY_DB+ y", "job:PAY_DB"),
        ("ref+k8s://v1/Secret/pay/db/password", "here:pay/db#/password"),
        ("ref+here://pay/db#/password", "here:pay/db#/password"),
    ] {
        assert_eq!(judge(STORES, secret(text)), Ok(vec![label.to_owned()]), "{text}");
    }
    let encoded = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "cmVmK2VudjovL1BBWV9EQg=="}});
    assert_eq!(judge(STORES, encoded), Ok(vec!["job:PAY_DB".to_owned()]));
}

/// A rule for everything is still none for what the run logs in with.
#[test]
fn the_credentials_of_the_run_are_never_read() {
    let stores =
        "secrets:\n  stores:\n    job: {kind: env, into: any, allow: [{stacks: '**', paths: '**'}]}\n";
    for name in [
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "KONVERGE_AGE_IDENTITY",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "VAULT_TOKEN",
    ] {
        let refused = judge(stores, secret(&format!("ref+env://{name}"))).unwrap_err();
        assert!(
            refused.contains(&format!("no stack may read `{name}`")) && refused.contains("another name"),
            "{refused}"
        );
    }
    assert_eq!(
        judge(stores, secret("ref+env://PAY_DB")),
        Ok(vec!["job:PAY_DB".to_owned()])
    );
}

#[test]
fn a_generated_value_needs_no_store_and_a_place_for_secrets() {
    assert_eq!(
        judge("", secret("ref+generated://web/db#/p")),
        Ok(vec!["generated:web/db#/p".to_owned()])
    );
    let text = "ref+generated://web/db#/p";
    for (resource, says) in [
        (secret(&format!("x {text}")), "must be the whole text"),
        (secret("ref+generated://web/db?version=1#/p"), "`version`"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"p": text}}),
            "is not allowed in this field",
        ),
        (json!({"p": text}), "Terraform"),
    ] {
        let refused = judge("", resource).unwrap_err();
        assert!(refused.contains(says), "{says}: {refused}");
    }
}

#[test]
fn a_secret_of_aws_has_one_way_to_be_written() {
    let stores = "secrets:\n  stores:\n    sm: {kind: aws, allow: [{stacks: '**', paths: 'pay/*'}]}\n    params: {kind: ssm, allow: [{stacks: '**', paths: '/pay/*'}]}\n";
    for (text, label) in [
        ("ref+awssecrets://pay/db#/user", "sm:pay/db#/user"),
        (
            "ref+aws://pay/db?version=b1ddd9b5-e8f2-4088-9950-4317d6c950d5",
            "sm:pay/db",
        ),
        ("ref+awsssm:///pay/db?version=3", "params:/pay/db"),
        ("ref+ssm://pay/db", "params:/pay/db"),
    ] {
        assert_eq!(judge(stores, secret(text)), Ok(vec![label.to_owned()]), "{text}");
    }
    for text in [
        "ref+awssecrets://arn:aws:secretsmanager:eu-central-1:1:secret:pay/db",
        "ref+awssecrets:///pay/db",
        "ref+awsssm:///pay/db:3",
        "ref+awsssm:///pay/db?version=latest",
        "ref+awsssm:///other/db",
        "ref+awssecrets://pay/db?region=us-east-1",
        "ref+awssecrets://pay/db?role_arn=arn:aws:iam::1:role/root",
    ] {
        assert!(judge(stores, secret(text)).is_err(), "{text}");
    }
}

#[test]
fn everything_else_is_refused_with_the_key_to_write() {
    for (text, why, hint) in [
        (
            "ref+env://HOME",
            "may not read `HOME`",
            "secrets.stores.job.allow",
        ),
        ("ref+env://PAY_DB/../HOME", "`.` or `..`", "ref+STORE"),
        (
            "ref+k8s://kube-system/root#/token",
            "may not read `kube-system/root`",
            "secrets.stores.here.allow",
        ),
        ("ref+k8s://pay/db", "is not a path", "NAMESPACE/NAME"),
        ("ref+env://PAY-DB", "is not a path", "ref+env://NAME"),
        (
            "ref+vault://pay#/x",
            "there is no secret store `vault`",
            "secrets.stores.vault",
        ),
        (
            "ref+exec://id",
            "there is no secret store `exec`",
            "no kind of store runs a command",
        ),
        (
            "ref+file:///etc/passwd",
            "there is no secret store `file`",
            "no kind of store runs a command, reads a file",
        ),
        (
            "ref+env://PAY_DB?address=http://evil",
            "cannot set `address`",
            "`secrets.stores.job.address`",
        ),
        (
            "ref+env://PAY_DB?role_arn=arn:aws:iam::1:role/root",
            "cannot set `role_arn`",
            "`secrets.stores.job.auth`",
        ),
        (
            "ref+env://PAY_DB?token_file=~evil",
            "cannot set `token_file`",
            "`secrets.stores.job.auth`",
        ),
        ("ref+env://PAY_DB?at=1", "cannot set `at`", "secrets.stores.job"),
        (
            "ref+env://PAY_DB?version=1",
            "has no versions",
            "remove `version`",
        ),
    ] {
        let refusal = judge(STORES, secret(text)).unwrap_err();
        assert!(
            refusal.starts_with("v1:X:ns:x: attributes/stringData/a: "),
            "{refusal}"
        );
        assert!(
            refusal.contains(why) && refusal.contains(hint),
            "{text}: {refusal}"
        );
    }
}

#[test]
fn a_secret_stands_in_secret_places_only() {
    for plain in [
        json!({"kind": "ConfigMap", "data": {"a": "ref+env://PAY_DB"}}),
        json!({"kind": "Deployment", "spec": {"env": [{"value": "u:ref+env://PAY_DB+@h"}]}}),
        json!({"kind": "Secret", "metadata": {"annotations": {"a": "ref+env://PAY_DB"}}}),
        json!({"kind": "Secret", "metadata": {"annotations": {"a": "ref://PAY_DB"}}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"stringData": "ref+env://PAY_DB"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"stringData": "ref+env://PAY_DB"}}}),
        json!({"kind": "Deployment", "metadata": {"annotations": {"apiVersion": "v1", "kind": "Secret", "data": "cmVmK2VudjovL1BBWV9EQg=="}}}),
    ] {
        let refusal = judge(STORES, plain.clone()).unwrap_err();
        assert!(
            refusal.contains("is not allowed in this field"),
            "{plain}: {refusal}"
        );
    }
}

#[test]
fn a_store_opens_plain_places_and_none_that_an_object_is_found_by() {
    let any = STORES.replace("{kind: env, ", "{kind: env, into: any, ");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    let admitted = judge(&any, map(json!({"a": "u:ref+env://PAY_DB+@h"})));
    assert_eq!(admitted, Ok(vec!["job:PAY_DB".to_owned()]));
    let refused = |resource: Value| judge(&any, resource).unwrap_err();
    // Each store decides for its own values, and the rules for paths hold.
    let two = refused(map(json!({"a": "ref+env://PAY_DB+ref+k8s://pay/db#/password"})));
    assert!(
        two.contains("is not allowed in this field") && two.contains("secrets.stores.here.into"),
        "{two}"
    );
    assert!(refused(map(json!({"a": "ref+env://HOME"}))).contains("may not read"));
    let generated = refused(map(json!({"a": "ref+generated://a#/b"})));
    assert!(
        generated.contains("is not allowed in this field") && !generated.contains("into: any"),
        "{generated}"
    );
    let labels =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "ref+env://PAY_DB"}}});
    assert!(refused(labels).contains("whatever the store allows"));
    let mut extended = as_resource(map(json!({})));
    extended.extensions = json!({"healthPolicy": {"health.kcl": "ref+env://PAY_DB"}})
        .as_object()
        .unwrap()
        .clone();
    let config = Config::parse(&any).unwrap();
    let (stack, folder) = (
        "pay/prod".parse().unwrap(),
        RepoPath::normalize("appops/pay/prod").unwrap(),
    );
    let reader = SecretReader {
        stack: &stack,
        folder: &folder,
    };
    let spec = Spec {
        resources: vec![extended],
        secret_stores: Vec::new(),
        outputs: serde_json::Map::new(),
        notes: Vec::new(),
    };
    let refusal = admit(&config.secrets, reader, spec).unwrap_err();
    assert!(
        refusal.message.contains("is not allowed in this field"),
        "{}",
        refusal.message
    );
}

/// The runtime looks at the schema of an attribute.
#[test]
fn a_terraform_resource_refers_in_its_attributes_and_its_provider() {
    let object = |extensions: Value| Resource {
        extensions: extensions.as_object().unwrap().clone(),
        ..as_resource(json!({"password_wo": "ref+env://PAY_DB"}))
    };
    let judge = |resource: Resource| {
        let config = Config::parse(STORES).unwrap();
        let (stack, folder) = (
            "pay/prod".parse().unwrap(),
            RepoPath::normalize("appops/pay/prod").unwrap(),
        );
        let reader = SecretReader {
            stack: &stack,
            folder: &folder,
        };
        let spec = Spec {
            resources: vec![resource],
            secret_stores: Vec::new(),
            outputs: serde_json::Map::new(),
            notes: Vec::new(),
        };
        admit(&config.secrets, reader, spec).map_err(|refusal| refusal.message)
    };
    let admitted = judge(object(json!({"providerMeta": {"token": "ref+env://PAY_TOKEN"}}))).unwrap();
    assert_eq!(admitted.references.len(), 2);
    for extensions in [
        json!({"provider": "ref+env://PAY_TOKEN"}),
        json!({"providerMetadata": {"token": "ref+env://PAY_TOKEN"}}),
    ] {
        let refusal = judge(object(extensions)).unwrap_err();
        assert!(refusal.contains("or `providerMeta`"), "{refusal}");
    }
    let refusal = judge(object(json!({"providerMeta": {"token": "ref+env://HOME"}}))).unwrap_err();
    assert!(refusal.contains("may not read `HOME`"), "{refusal}");
    let nested = json!({"manifest": {"apiVersion": "v1", "kind": "Secret", "data": {"a": "cmVmK2VudjovL1BBWV9EQg=="}}});
    let refusal = judge(as_resource(nested)).unwrap_err();
    assert!(refusal.contains("Terraform"), "{refusal}");
}

/// The identity comes from `project.yaml` and `stack.yaml`, which a pull request writes.
#[test]
fn a_stack_is_known_by_its_folder_and_not_by_its_identity() {
    let secrets = "secrets: {stores: {job: {kind: env, allow: [{stacks: 'pay/*', paths: 'PAY_*'}]}}}";
    let refusal = judge_at("appops/evil", secrets, secret("ref+env://PAY_DB")).unwrap_err();
    assert!(refusal.contains("{stacks: \"appops/evil\""), "{refusal}");
    assert!(judge_at("pay/prod", secrets, secret("ref+env://PAY_DB")).is_ok());
}

#[test]
fn nothing_is_read_without_a_rule() {
    let refusal = judge("{}", secret("ref+env://PAY_DB")).unwrap_err();
    assert!(refusal.contains("there is none yet"), "{refusal}");
    let refusal = judge("{}", secret("ref://PAY_DB")).unwrap_err();
    assert!(refusal.contains("secrets.default"), "{refusal}");
    let refusal = judge(
        "secrets: {stores: {env: {kind: env}}}",
        secret("ref+env://PAY_DB"),
    )
    .unwrap_err();
    assert!(refusal.contains("may not read"), "{refusal}");
    let two = "secrets: {stores: {a: {kind: env}, b: {kind: env}}}";
    let refusal = judge(two, secret("ref+env://PAY_DB")).unwrap_err();
    assert!(
        refusal.contains("several") && refusal.contains("`a`, `b`"),
        "{refusal}"
    );
}

#[test]
fn a_file_is_read_by_the_rules_of_stores_of_files() {
    let stores = "secrets:\n  stores:\n    files: {kind: sops, allow: [{stacks: 'appops/pay/*', paths: 'secrets/pay.yaml'}]}\n    \
                  job: {kind: env, allow: [{stacks: 'appops/**', paths: '**'}]}\n";
    let config = Config::parse(stores).unwrap();
    let may_read = |folder: &str, path: &str| {
        let path = RepoPath::normalize(path).unwrap();
        as_reader(folder, |reader| may_read_file(&config.secrets, reader, &path))
    };
    assert!(may_read("appops/pay/prod", "secrets/pay.yaml"));
    assert!(!may_read("appops/pay/prod", "secrets/other.yaml"));
    assert!(!may_read("appops/shop/prod", "secrets/pay.yaml"));
}

/// A container of any kind, and a part of it that looks like a reference to a Secret, is a plain place.
#[test]
fn no_container_of_a_pod_reads_a_value_in_its_environment() {
    let text = "ref+kubernetes://pay/db#password";
    let pod = |key: &str, container: Value| {
        let mut spec = json!({"containers": []});
        spec[key] = json!([container]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
    };
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for part in [
            json!({"name": "a", "env": [{"name": "PASSWORD", "value": text}]}),
            json!({"name": "a", "envFrom": [{"prefix": text}]}),
            json!({"name": "a", "envFrom": [{"secretRef": {"name": text}}]}),
            json!({"name": "a", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": text}}}]}),
            json!({"name": "a", "args": [text]}),
        ] {
            let refused = judge(STORES, pod(key, part.clone())).unwrap_err();
            assert!(refused.contains("pay/db"), "{key} {part}: {refused}");
        }
    }
}
