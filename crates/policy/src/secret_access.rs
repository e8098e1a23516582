//! Decides which secret references of a Spec a stack may use: the store must be configured, a rule must allow the
//! path, and the field must be one that may hold a secret. Returns the Spec with the store of each reference filled
//! in.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        FieldPath, GroupKind, RepoPath, StackId,
        spec::{Resource, RuntimeKind, Spec},
    },
};
use konverge_config::{SecretStoreConfig, SecretStoreKind, SecretTarget, SecretsConfig, StackGlob};
use konverge_secrets::{
    GENERATED, SecretReference, SecretTemplate, StoreName, TextPlace, is_of_run, may_refer, rewrite_texts,
    why_never_secret,
};

use super::{
    own_secret_store,
    reference_form::{has_versions, normal_form},
    secret_refusal::AccessRefusal,
};

/// The path in a Terraform resource below which the settings of its provider are.
const PROVIDER_META: &str = "/providerMeta/";

/// The stack that reads secrets.
#[derive(Debug, Clone, Copy)]
pub struct SecretReader<'a> {
    /// Identity of the stack.
    pub stack: &'a StackId,
    /// Folder of the stack.
    pub folder: &'a RepoPath,
}

/// The location of a reference in a resource.
struct ReferenceLocation<'a> {
    runtime: RuntimeKind,
    /// The kind of the Kubernetes object that the text becomes part of; `None` in extensions and for Terraform.
    object: Option<GroupKind<'a>>,
    place: TextPlace<'a>,
}

/// A Spec whose references the stack may use.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmittedSpec {
    /// The Spec; each reference names its store.
    pub spec: Spec,
    /// All references in the Spec.
    pub references: BTreeSet<SecretReference>,
}

/// Checks all references of a Spec, and fills in their stores.
///
/// # Errors
/// The first reference that the stack may not use, with its location and the key of `konverge.yaml` that would
/// allow it; a secret store that the Spec itself sets.
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

/// Checks a reference that a state recorded: the present rules decide if the stack may still read it.
///
/// # Errors
/// The stack may not read the secret.
pub fn admit_recorded(
    config: &SecretsConfig,
    reader: SecretReader<'_>,
    reference: &SecretReference,
) -> Result<SecretReference, UserError> {
    let path = FieldPath::new(PROVIDER_META);
    let location = ReferenceLocation {
        runtime: RuntimeKind::Terraform,
        object: None,
        place: TextPlace {
            path: &path,
            is_secret: true,
            is_text: true,
        },
    };
    admitted(config, Some(reader), reference, &location)
}

/// Returns every reason why the secret stores and references of a Spec are not allowed; [`admit`] reports only the
/// first.
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

/// Fills in the store of each reference where possible, without checking access. For a Spec that is only compared,
/// never applied.
#[must_use]
pub fn name_stores(config: &SecretsConfig, mut spec: Spec) -> Spec {
    for resource in spec.resources.iter_mut().filter(|resource| refers(resource)) {
        // A resource with a reference to an unknown store stays as written, so that the comparison still shows it.
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
    let GroupKind { group, kind } = GroupKind::from_attributes(&resource.attributes);
    // Copied, because the texts of the attributes are replaced below.
    let (group, kind) = (group.to_owned(), kind.to_owned());
    let object = GroupKind::new(&group, &kind);
    let mut part = |name: &str, map: &mut Map<String, Value>, may_be_secret: bool| {
        rewrite_texts(map, &mut |place, text| {
            let in_provider =
                runtime == RuntimeKind::Terraform && place.path.as_str().starts_with(PROVIDER_META);
            let place = TextPlace {
                // The provider's schema says which attributes of Terraform may hold a secret, and the runtime
                // checks it later.
                is_secret: (place.is_secret || runtime == RuntimeKind::Terraform) && may_be_secret
                    || in_provider,
                ..*place
            };
            // Extensions are settings for Konverge and never become part of the object.
            let object = (may_be_secret && runtime == RuntimeKind::Kubernetes).then_some(object);
            let of = ReferenceLocation {
                runtime,
                object,
                place,
            };
            let mut error = match named(config, reader, &of, text, references) {
                Ok(changed) => return Ok(changed),
                Err(error) => error,
            };
            error.message = format!("{id}: {name}{}: {}", place.path, error.message);
            refused(error).map(|()| None)
        })
    };
    part("attributes", &mut resource.attributes, true)?;
    part("extensions", &mut resource.extensions, false)
}

/// Returns the text with the store of each reference filled in; `None` if it has no reference.
fn named(
    config: &SecretsConfig,
    reader: Option<SecretReader<'_>>,
    of: &ReferenceLocation<'_>,
    text: &str,
    references: &mut BTreeSet<SecretReference>,
) -> Result<Option<Vec<u8>>, UserError> {
    let parsed = SecretTemplate::parse(text).map_err(|error| {
        UserError::new(ErrorKind::Secret, error.to_string())
            .hint("write `ref+STORE://PATH#/KEY`; a `+` ends a reference inside a longer text")
    });
    let Some(template) = parsed? else {
        return Ok(None);
    };
    let is_alone = template.whole().is_some();
    let named = template.try_map(|reference| {
        let named = if reference.is_generated() {
            let checked = check_generated(reference, of.runtime, &of.place, is_alone);
            checked.map_err(|why| why.of(reference))?;
            reference.clone()
        } else {
            admitted(config, reader, reference, of)?
        };
        references.insert(named.clone());
        Ok::<_, UserError>(named)
    })?;
    Ok(Some(named.to_string().into_bytes()))
}

/// Returns a reference with its store filled in. Without a reader, access is not checked.
fn admitted(
    config: &SecretsConfig,
    reader: Option<SecretReader<'_>>,
    reference: &SecretReference,
    of: &ReferenceLocation<'_>,
) -> Result<SecretReference, UserError> {
    let refused = |why: AccessRefusal| why.of(reference);
    let (store, configured) = store_of(config, reference).map_err(refused)?;
    let named = normal_form(reference, store, configured.kind).map_err(refused)?;
    if let Some(reader) = reader {
        check(reader, store, configured, &named, of).map_err(|why| why.of(&named))?;
    }
    Ok(named)
}

/// Checks a reference to a generated value. It needs no store and no rule, because nobody has the value yet. It may
/// only be in a field for secrets.
fn check_generated(
    reference: &SecretReference,
    runtime: RuntimeKind,
    place: &TextPlace<'_>,
    is_alone: bool,
) -> Result<(), AccessRefusal> {
    let parameter = [
        reference.at.as_ref().map(|_| "at"),
        reference.version.as_ref().map(|_| "version"),
        reference.as_version.then_some("as"),
        reference.unknown.first().map(String::as_str),
    ];
    match parameter.into_iter().flatten().next() {
        Some(parameter) => Err(AccessRefusal::Parameter {
            parameter: parameter.to_owned(),
            store: GENERATED.to_owned(),
        }),
        None if runtime == RuntimeKind::Terraform => Err(AccessRefusal::GeneratedInTerraform),
        None if !place.is_secret => Err(AccessRefusal::PlainPlace(None)),
        None if !is_alone => Err(AccessRefusal::NotAlone),
        None => Ok(()),
    }
}

fn check(
    reader: SecretReader<'_>,
    store: &str,
    of: &SecretStoreConfig,
    reference: &SecretReference,
    ReferenceLocation {
        runtime,
        object,
        place,
    }: &ReferenceLocation<'_>,
) -> Result<(), AccessRefusal> {
    let at = reference.at.as_ref().map(|_| "at".to_owned());
    if let Some(parameter) = at.or_else(|| reference.unknown.first().cloned()) {
        return Err(AccessRefusal::Parameter {
            parameter,
            store: store.to_owned(),
        });
    }
    // References in Terraform resources are resolved only in texts of attributes and of the provider's settings.
    if *runtime == RuntimeKind::Terraform && !(place.is_secret && place.is_text) {
        return Err(AccessRefusal::Terraform);
    }
    let versions = reference.version.is_some() || reference.as_version;
    if versions && !has_versions(of) {
        return Err(AccessRefusal::NoVersions(of.kind));
    }
    // A rule such as `*` must not give a stack the credentials with which the run itself logs in.
    if of.kind == SecretStoreKind::Env && is_of_run(&reference.path) {
        return Err(AccessRefusal::OfRun(reference.path.clone()));
    }
    if !is_allowed(of, reader, &reference.path) {
        return Err(AccessRefusal::Denied {
            stack: reader.stack.clone(),
            folder: reader.folder.clone(),
            path: reference.path.clone(),
            store: store.to_owned(),
        });
    }
    // The version of a secret is not secret, so it may be in any field.
    if place.is_secret || reference.as_version {
        return Ok(());
    }
    match (object, of.into) {
        (Some(object), SecretTarget::Any) => match why_never_secret(*object, place.path) {
            Some(why) => Err(AccessRefusal::NeverPlace(why)),
            None => Ok(()),
        },
        _ => Err(AccessRefusal::PlainPlace(object.map(|_| store.to_owned()))),
    }
}

fn is_allowed(store: &SecretStoreConfig, reader: SecretReader<'_>, path: &str) -> bool {
    let matches = |glob: &str, text: &str| StackGlob::compile(glob).is_some_and(|glob| glob.is_match(text));
    store.allow.iter().any(|rule| {
        // The rule matches the folder, not the stack's identity: a pull request could change the identity in its
        // files.
        matches(&rule.stacks, reader.folder.as_str()) && matches(&rule.paths, path)
    })
}

/// Returns true if any store of kind SOPS lets the stack read this file of the repository.
#[must_use]
pub fn may_read_file(config: &SecretsConfig, reader: SecretReader<'_>, path: &RepoPath) -> bool {
    let mut stores = config.stores.values();
    stores.any(|store| store.kind == SecretStoreKind::Sops && is_allowed(store, reader, path.as_str()))
}

/// Finds the configured store of a reference.
fn store_of<'c>(
    config: &'c SecretsConfig,
    reference: &SecretReference,
) -> Result<(&'c str, &'c SecretStoreConfig), AccessRefusal> {
    let known = || config.stores.keys().cloned().collect();
    let word = match &reference.store {
        StoreName::Word(word) => word.as_str(),
        StoreName::Generated => GENERATED,
        StoreName::Default => config.default.as_ref().ok_or(AccessRefusal::NoDefault)?,
    };
    if let Some((name, store)) = config.stores.get_key_value(word) {
        return Ok((name, store));
    }
    let unknown = || AccessRefusal::UnknownStore {
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
            kind,
            known: of_kind.iter().map(|(name, _)| format!("`{name}`")).collect(),
        }),
    }
}

#[cfg(test)]
#[path = "secret_access_tests.rs"]
mod tests;
