//! Decides which references of a Spec a stack may use: the store must be configured, the path allowed, and the
//! place must be one where a secret stands. The answer is the same Spec with the store of each reference named.

use std::collections::BTreeSet;

use globset::GlobBuilder;
use serde_json::{Map, Value};

use crate::{
    config::{SecretStoreConfig, SecretStoreKind, SecretsConfig},
    error::{ErrorKind, UserError},
    model::{
        RepoPath, StackId,
        spec::{Resource, RuntimeKind, Spec},
    },
    secrets::{GENERATED, SecretReference, SecretTemplate, StoreName, TextPlace, may_refer, rewrite_texts},
};

use super::{
    own_secret_store,
    reference_form::{has_versions, normal_form},
    secret_refusal::AccessRefusal,
};

/// Where a Terraform resource has the configuration of its provider.
const PROVIDER_META: &str = "/providerMeta/";

/// The stack whose references are judged.
#[derive(Debug, Clone, Copy)]
pub struct SecretReader<'a> {
    pub stack: &'a StackId,
    pub folder: &'a RepoPath,
}

/// A Spec whose references the stack may use.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmittedSpec {
    /// The Spec; each reference names its store.
    pub spec: Spec,
    /// The references in it.
    pub references: BTreeSet<SecretReference>,
}

/// Admits a Spec.
///
/// # Errors
/// The first reference that the stack may not use, with its place and the key to write; a secret store that the
/// Spec brings itself.
pub fn admit(
    config: &SecretsConfig,
    reader: SecretReader<'_>,
    mut spec: Spec,
) -> Result<AdmittedSpec, UserError> {
    for store in &spec.secret_stores {
        own_secret_store::check(config, store)?;
    }
    let mut references = BTreeSet::new();
    for resource in spec.resources.iter_mut().filter(|resource| refers(resource)) {
        rewrite(config, Some(reader), resource, &mut references, &mut Err)?;
    }
    Ok(AdmittedSpec { spec, references })
}

/// Admits a reference of a state: the present rules say whether the stack may still read it.
///
/// # Errors
/// It may not.
pub fn admit_recorded(
    config: &SecretsConfig,
    reader: SecretReader<'_>,
    reference: &SecretReference,
) -> Result<SecretReference, UserError> {
    let place = TextPlace {
        path: PROVIDER_META,
        is_secret: true,
        is_text: true,
    };
    let admitted = store_of(config, reference).and_then(|(store, of)| {
        let named = normal_form(reference, store, of.kind)?;
        check(reader, (store, of), &named, RuntimeKind::Terraform, &place)?;
        Ok(named)
    });
    admitted.map_err(|refusal| UserError::new(ErrorKind::Secret, refusal.to_string()).hint(refusal.hint()))
}

/// Everything in a Spec that [`admit`] would refuse, where it would name the first.
#[must_use]
pub fn secret_refusals(config: &SecretsConfig, reader: SecretReader<'_>, spec: &Spec) -> Vec<UserError> {
    let stores = spec.secret_stores.iter();
    let mut refusals: Vec<_> = stores
        .filter_map(|store| own_secret_store::check(config, store).err())
        .collect();
    let mut keep = |refusal| {
        refusals.push(refusal);
        Ok(())
    };
    for resource in spec.resources.iter().filter(|resource| refers(resource)) {
        let mut copy = resource.clone();
        let rewritten = rewrite(config, Some(reader), &mut copy, &mut BTreeSet::new(), &mut keep);
        rewritten.expect("each refusal is kept, none is returned");
    }
    refusals
}

/// Names the store of each reference where that is possible, without judging: for a Spec that is only compared
/// with.
#[must_use]
pub fn name_stores(config: &SecretsConfig, mut spec: Spec) -> Spec {
    for resource in spec.resources.iter_mut().filter(|resource| refers(resource)) {
        // What cannot be named stays as written.
        let mut copy = resource.clone();
        if rewrite(config, None, &mut copy, &mut BTreeSet::new(), &mut Err).is_ok() {
            *resource = copy;
        }
    }
    spec
}

fn refers(resource: &Resource) -> bool {
    may_refer(&resource.attributes) || may_refer(&resource.extensions)
}

fn rewrite(
    config: &SecretsConfig,
    reader: Option<SecretReader<'_>>,
    resource: &mut Resource,
    references: &mut BTreeSet<SecretReference>,
    refused: &mut dyn FnMut(UserError) -> Result<(), UserError>,
) -> Result<(), UserError> {
    let (id, runtime) = (resource.id.clone(), resource.runtime);
    let mut part = |name: &str, map: &mut Map<String, Value>, may_be_secret: bool| {
        rewrite_texts(map, &mut |place, text| {
            let in_provider = runtime == RuntimeKind::Terraform && place.path.starts_with(PROVIDER_META);
            let place = TextPlace {
                // Which attributes of Terraform take a secret is in the schema of the provider: the runtime judges.
                is_secret: (place.is_secret || runtime == RuntimeKind::Terraform) && may_be_secret
                    || in_provider,
                ..*place
            };
            let refusal = match named(config, reader, runtime, &place, text, references) {
                Ok(changed) => return Ok(changed),
                Err(refusal) => refusal,
            };
            let at = format!("{id}: {name}{}", place.path);
            let error = UserError::new(ErrorKind::Secret, format!("{at}: {refusal}")).hint(refusal.hint());
            refused(error).map(|()| None)
        })
    };
    part("attributes", &mut resource.attributes, true)?;
    part("extensions", &mut resource.extensions, false)
}

/// The text with the store of each reference named; `None` if it has no reference.
fn named(
    config: &SecretsConfig,
    reader: Option<SecretReader<'_>>,
    runtime: RuntimeKind,
    place: &TextPlace<'_>,
    text: &str,
    references: &mut BTreeSet<SecretReference>,
) -> Result<Option<Vec<u8>>, AccessRefusal> {
    let Some(template) = SecretTemplate::parse(text)? else {
        return Ok(None);
    };
    let is_alone = template.whole().is_some();
    let named = template.try_map(|reference| {
        if reference.is_generated() {
            check_generated(reference, runtime, place, is_alone)?;
            references.insert(reference.clone());
            return Ok(reference.clone());
        }
        let (store, of) = store_of(config, reference)?;
        let named = normal_form(reference, store, of.kind)?;
        if let Some(reader) = reader {
            check(reader, (store, of), &named, runtime, place)?;
        }
        references.insert(named.clone());
        Ok::<_, AccessRefusal>(named)
    })?;
    Ok(Some(named.to_string().into_bytes()))
}

/// A generated value needs no store and no rule: nobody has it yet. It may stand where a secret stands.
fn check_generated(
    reference: &SecretReference,
    runtime: RuntimeKind,
    place: &TextPlace<'_>,
    is_alone: bool,
) -> Result<(), AccessRefusal> {
    let text = || reference.to_string();
    let parameter = [
        reference.at.as_ref().map(|_| "at"),
        reference.version.as_ref().map(|_| "version"),
        reference.as_version.then_some("as"),
        reference.unknown.first().map(String::as_str),
    ];
    match parameter.into_iter().flatten().next() {
        Some(parameter) => Err(AccessRefusal::Parameter {
            reference: reference.label(),
            parameter: parameter.to_owned(),
            store: GENERATED.to_owned(),
        }),
        None if runtime == RuntimeKind::Terraform => {
            Err(AccessRefusal::GeneratedInTerraform { reference: text() })
        }
        None if !place.is_secret => Err(AccessRefusal::PlainPlace { reference: text() }),
        None if !is_alone => Err(AccessRefusal::NotAlone { reference: text() }),
        None => Ok(()),
    }
}

fn check(
    reader: SecretReader<'_>,
    (store, of): (&str, &SecretStoreConfig),
    reference: &SecretReference,
    runtime: RuntimeKind,
    place: &TextPlace<'_>,
) -> Result<(), AccessRefusal> {
    let text = || reference.to_string();
    let at = reference.at.as_ref().map(|_| "at".to_owned());
    if let Some(parameter) = at.or_else(|| reference.unknown.first().cloned()) {
        return Err(AccessRefusal::Parameter {
            reference: reference.label(),
            parameter,
            store: store.to_owned(),
        });
    }
    // Base64 is Kubernetes' way to write a value. Outside attributes and the provider nothing is resolved.
    if runtime == RuntimeKind::Terraform && !(place.is_secret && place.is_text) {
        return Err(AccessRefusal::Terraform { reference: text() });
    }
    let versions = reference.version.is_some() || reference.as_version;
    if versions && !has_versions(of) {
        return Err(AccessRefusal::NoVersions {
            reference: text(),
            kind: of.kind.word(),
        });
    }
    if !is_allowed(of, reader, &reference.path) {
        return Err(AccessRefusal::Denied {
            reference: text(),
            stack: reader.stack.clone(),
            folder: reader.folder.clone(),
            path: reference.path.clone(),
            store: store.to_owned(),
        });
    }
    if !place.is_secret && !reference.as_version {
        return Err(AccessRefusal::PlainPlace { reference: text() });
    }
    Ok(())
}

fn is_allowed(store: &SecretStoreConfig, reader: SecretReader<'_>, path: &str) -> bool {
    let matches = |glob: &str, text: &str| {
        let glob = GlobBuilder::new(glob).literal_separator(true).build();
        glob.is_ok_and(|glob| glob.compile_matcher().is_match(text))
    };
    store.allow.iter().any(|rule| {
        // Not the identity: the files of a pull request choose it.
        matches(&rule.stacks, reader.folder.as_str()) && matches(&rule.paths, path)
    })
}

/// The store that a reference names.
fn store_of<'c>(
    config: &'c SecretsConfig,
    reference: &SecretReference,
) -> Result<(&'c str, &'c SecretStoreConfig), AccessRefusal> {
    let known = || config.stores.keys().cloned().collect();
    let text = || reference.to_string();
    let word = match &reference.store {
        StoreName::Word(word) => word.as_str(),
        StoreName::Generated => GENERATED,
        StoreName::Default => {
            let no_default = || AccessRefusal::NoDefault { reference: text() };
            config.default.as_ref().ok_or_else(no_default)?
        }
    };
    if let Some((name, store)) = config.stores.get_key_value(word) {
        return Ok((name, store));
    }
    let unknown = || AccessRefusal::UnknownStore {
        reference: text(),
        word: word.to_owned(),
        known: known(),
    };
    let kind = SecretStoreKind::from_word(word).ok_or_else(unknown)?;
    let of_kind: Vec<_> = config
        .stores
        .iter()
        .filter(|(_, store)| store.kind == kind)
        .collect();
    let is_default = |(name, _): &&(&String, &SecretStoreConfig)| config.default.as_ref() == Some(*name);
    match (of_kind.as_slice(), of_kind.iter().find(is_default)) {
        ([], _) => Err(unknown()),
        ([(name, store)], _) | (_, Some((name, store))) => Ok((name, store)),
        _ => Err(AccessRefusal::Ambiguous {
            reference: text(),
            kind: kind.word(),
            known: of_kind.iter().map(|(name, _)| format!("`{name}`")).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Config;
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
            sharing: crate::model::spec::Sharing::default(),
        }
    }

    fn judge(secrets: &str, resource: Value) -> Result<Vec<String>, String> {
        judge_at("appops/pay/prod", secrets, resource)
    }

    fn judge_at(folder: &str, secrets: &str, resource: Value) -> Result<Vec<String>, String> {
        let config = Config::parse(secrets).unwrap();
        let resource = as_resource(resource);
        let (stack, folder) = ("pay/prod".parse().unwrap(), RepoPath::normalize(folder).unwrap());
        let reader = SecretReader {
            stack: &stack,
            folder: &folder,
        };
        let spec = Spec {
            resources: vec![resource],
            secret_stores: Vec::new(),
            notes: Vec::new(),
        };
        match admit(&config.secrets, reader, spec) {
            Ok(admitted) => Ok(admitted.references.iter().map(SecretReference::label).collect()),
            Err(failure) => Err(format!("{} — {}", failure.message, failure.hints.join(" "))),
        }
    }

    const STORES: &str = "secrets:\n  default: job\n  stores:\n    job: {kind: env, allow: [{stacks: 'appops/pay/*', paths: 'PAY_*'}]}\n    here: {kind: kubernetes, allow: [{stacks: 'appops/**', paths: 'pay/*'}]}\n";

    fn secret(text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": text}})
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
        let encoded =
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "cmVmK2VudjovL1BBWV9EQg=="}});
        assert_eq!(judge(STORES, encoded), Ok(vec!["job:PAY_DB".to_owned()]));
    }

    #[test]
    fn a_generated_value_needs_no_store_and_a_place_for_secrets() {
        assert_eq!(
            judge("", secret("ref+generated://web/db#/p")),
            Ok(vec!["generated:web/db#/p".to_owned()])
        );
        let text = "ref+generated://web/db#/p";
        for (resource, says) in [
            (secret(&format!("x {text}")), "stands alone"),
            (secret("ref+generated://web/db?version=1#/p"), "`version`"),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"p": text}}),
                "is not allowed here",
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
            assert!(refusal.contains("is not allowed here"), "{plain}: {refusal}");
        }
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
            assert!(refusal.contains("of `providerMeta`"), "{refusal}");
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
}
