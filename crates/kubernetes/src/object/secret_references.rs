//! References to secrets in an object. A plan never needs a value: a text that has provably not changed since
//! it was written keeps the live value. Any other text gets a *stand-in*, which is the reference itself with
//! the current version in the store. The dry-run sends the stand-in, and the value replaces it just before
//! the write.

use std::convert::Infallible;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        FieldPath, GroupKind, masked_value,
        plan::{ChangeOrigin, FieldChange},
        spec::Resource,
        state::Recorded,
    },
};
use konverge_secrets::{
    RotatedVersion, SecretReference, SecretResolver, SecretTemplate, Secrets, TemplatePlace,
    WrittenReference, WrittenReferences, decode_base64, encode_base64, may_refer, rewrite_texts, value_at,
    why_never_secret,
};

/// The keys of a Secret whose value the server parses as JSON.
const JSON_KEYS: [&str; 2] = ["/data/.dockerconfigjson", "/data/.dockercfg"];

/// A text with references in an object. `Debug` does not print it, because it may hold a live value.
#[derive(Clone)]
pub(crate) struct ReferencePlace {
    path: FieldPath,
    is_text: bool,
    template: SecretTemplate,
    /// True if the leaf is the reference itself with its current version (a stand-in), which the value replaces in the
    /// write. Otherwise it is the live value, which has not changed since it was written, or the version itself.
    is_stand_in: bool,
    /// The replaced text at this path, base64-encoded in `data`.
    leaf: String,
    /// The origin of the change, if it does not come from the Spec.
    origin: Option<ChangeOrigin>,
    written: WrittenReference,
    note: Option<String>,
}

/// The references of an object that is planned.
#[derive(Clone)]
pub(crate) struct PlannedReferences {
    /// The object with its references.
    original: Resource,
    places: Vec<ReferencePlace>,
}

/// The recorded object and the live object.
#[derive(Clone, Copy)]
pub(crate) struct KnownObject<'a> {
    /// The object as last applied, and its references by path.
    pub prior: Option<(&'a Recorded, &'a WrittenReferences)>,
    pub live: Option<&'a Value>,
    /// The paths that the stack ignores (`stacks[].ignore`).
    pub ignore: &'a [FieldPath],
}

impl KnownObject<'_> {
    /// Returns true if the live value of an ignored path stays.
    fn leaves(&self, path: &FieldPath) -> bool {
        self.live.is_some() && self.ignore.iter().any(|ignored| path.is_within(ignored))
    }
}

/// Replaces the references of an object by live values and stand-ins. Returns `None` if the object has none.
///
/// # Errors
/// The stack may not use a reference, or the version cannot be read from its store.
pub(crate) async fn stand_in(
    resolver: Option<&dyn SecretResolver>,
    secrets: &Secrets,
    desired: &mut Resource,
    known: KnownObject<'_>,
    normalize: impl FnOnce(&mut Map<String, Value>),
) -> Result<Option<PlannedReferences>, UserError> {
    if !may_refer(&desired.attributes) {
        return Ok(None);
    }
    // Paths are those of the written object, in which `stringData` has become `data`.
    let mut attributes = desired.attributes.clone();
    normalize(&mut attributes);
    let (id, mut found) = (&desired.id, Vec::new());
    let object = GroupKind::from_attributes(&desired.attributes);
    rewrite_texts(&mut attributes, &mut |place, text| {
        let Some(template) = SecretTemplate::parse(text).map_err(refused)? else {
            return Ok(None);
        };
        let may_stand = || {
            let into_any = |resolver: &dyn SecretResolver| {
                template
                    .references()
                    .all(|reference| reference.as_version || resolver.goes_into_any(reference))
            };
            resolver.is_some_and(into_any) && why_never_secret(object, place.path).is_none()
        };
        if !place.is_secret && !template.is_plain() && !may_stand() {
            let path = place.path;
            let why = format_args!("a secret reference is not allowed at `{path}` of `{id}`");
            return Err(refused(why).with_resource(id));
        }
        found.push((place.path.clone(), place.is_text, template));
        Ok(None)
    })?;
    if found.is_empty() {
        return Ok(None);
    }
    let resolver = resolver.ok_or_else(|| {
        refused(format_args!(
            "`{id}` refers to a secret, but this run has no secret store"
        ))
        .with_resource(id)
        .hint("define the store under `secrets.stores` in the default branch's konverge.yaml")
    })?;
    let mut places = Vec::with_capacity(found.len());
    for (path, is_text, template) in found {
        let versions = template.versions(resolver).await?;
        let now = StoreResponse {
            rotated: resolver.rotated(),
            value: held_value(resolver, secrets, &template, is_text).await?,
            versions: &versions,
        };
        let mut place = place(secrets, known, now, path, is_text, template)?;
        if known.leaves(&place.path) {
            place.leave();
        }
        places.push(place);
    }
    // The references are replaced only when nothing can fail any more, so that after an error the object
    // still has all references.
    let mut whole = Value::Object(attributes);
    for place in &places {
        if let Some(leaf) = whole.pointer_mut(place.path.as_str()) {
            *leaf = Value::String(place.leaf.clone());
        }
    }
    let Value::Object(attributes) = whole else {
        return Ok(None);
    };
    let original = desired.clone();
    desired.attributes = attributes;
    Ok(Some(PlannedReferences { original, places }))
}

fn refused(why: impl std::fmt::Display) -> UserError {
    UserError::new(ErrorKind::Secret, why.to_string())
}

/// The response of the stores about a text with references.
struct StoreResponse<'a> {
    rotated: RotatedVersion,
    /// The marker of the value, if the stack is being applied, so that values may be read.
    value: Option<Value>,
    versions: &'a [Option<String>],
}

fn template_place(is_text: bool) -> TemplatePlace {
    if is_text {
        TemplatePlace::Text
    } else {
        TemplatePlace::Bytes
    }
}

/// Returns the marker of a text's value, as a state contains it. `None` if the run has no values.
async fn held_value(
    resolver: &dyn SecretResolver,
    secrets: &Secrets,
    template: &SecretTemplate,
    is_text: bool,
) -> Result<Option<Value>, UserError> {
    let is_generated = template.whole().is_some_and(SecretReference::is_generated);
    if template.is_plain() || is_generated || !resolver.has_values() {
        return Ok(None);
    }
    let value = template.value(resolver, template_place(is_text)).await?;
    let leaf = Zeroizing::new(encoded(&value, is_text));
    Ok(Some(marked(secrets, &leaf, is_text)))
}

fn place(
    secrets: &Secrets,
    known: KnownObject<'_>,
    StoreResponse {
        rotated,
        value,
        versions,
    }: StoreResponse<'_>,
    path: FieldPath,
    is_text: bool,
    template: SecretTemplate,
) -> Result<ReferencePlace, UserError> {
    let written = WrittenReference::new(&template, versions);
    let before = known.prior.and_then(|(_, references)| references.get(&path));
    let same_text = before.is_some_and(|before| before.text == written.text);
    let same_version = before.is_some_and(|before| before.may_have_version_of(&written));
    let live = known.live.and_then(|live| live.pointer(path.as_str())?.as_str());
    let mut place = ReferencePlace {
        path,
        is_text,
        template,
        is_stand_in: true,
        leaf: String::new(),
        origin: None,
        written,
        note: None,
    };
    let of_file = before.is_some_and(|before| place.written.has_other_file_than(before));
    if place.template.is_plain() {
        place.is_stand_in = false;
        if let Some(before) = before.filter(|before| before.stays(&place.written, rotated)) {
            let text = place.template.with_versions(&before.versions())?;
            place.leaf = encoded(text.as_bytes(), is_text);
            place.written = before.clone();
            return Ok(place);
        }
        place.leaf = encoded(place.template.with_versions(versions)?.as_bytes(), is_text);
        place.origin = (same_text && !same_version && !of_file).then_some(ChangeOrigin::Rotation);
        return Ok(place);
    }
    let prior = known.prior;
    let recorded = prior.and_then(|(prior, _)| value_at(&prior.attributes, &place.path));
    let as_written = match (live, recorded) {
        (Some(live), Some(recorded)) => marked(secrets, live, is_text) == *recorded,
        _ => false,
    };
    // Version numbers start again if a secret is deleted and recreated, or is read from another server. So an
    // equal version does not prove an equal value, and values are compared too.
    let same_value = match (&value, recorded) {
        (Some(value), Some(recorded)) => value == recorded,
        _ => true,
    };
    let moved = before.filter(|_| same_text && !(same_version && same_value));
    if let Some(before) = moved {
        let names: Vec<_> = place.template.references().map(SecretReference::label).collect();
        let names = names.join(" + ");
        let moved = if same_version {
            format!(
                "the value of `{names}` is not the one that was written, although its version is the same"
            )
        } else {
            format!(
                "`{names}` moved from version {} to {}",
                before.version_label(),
                place.written.version_label()
            )
        };
        place.note = Some(match rotated {
            RotatedVersion::Keep if !of_file => {
                format!("{moved}: it is not written, because `secrets.rotation` is `leave`")
            }
            RotatedVersion::Keep | RotatedVersion::Write => moved,
        });
    }
    // A generated value is generated only once, so an existing one stays, even if Kusion generated it before
    // the stack was imported.
    let is_generated = place.template.whole().is_some_and(SecretReference::is_generated);
    if let (true, Some(live)) = (is_generated, live.filter(|live| !live.is_empty())) {
        place.is_stand_in = false;
        live.clone_into(&mut place.leaf);
        return Ok(place);
    }
    let keeps_version = rotated == RotatedVersion::Keep && !of_file;
    let keeps = same_text && as_written && (moved.is_none() || keeps_version);
    if let (true, Some(live), Some(before)) = (keeps, live, before) {
        place.is_stand_in = false;
        live.clone_into(&mut place.leaf);
        if moved.is_some() || place.written.version.is_none() {
            place.written.version.clone_from(&before.version);
        }
        return Ok(place);
    }
    place.origin = match (same_text, as_written) {
        (true, true) => (!of_file).then_some(ChangeOrigin::Rotation),
        (true, false) if live.is_some() && recorded.is_some_and(masked_value::is_secret) => {
            // If the write may not have succeeded, a difference is not drift.
            masked_value::as_secret(recorded.unwrap_or(&Value::Null)).map(|_| ChangeOrigin::Drift)
        }
        _ => None,
    };
    let is_json = JSON_KEYS.contains(&place.path.as_str());
    let leaf = |suffix: &str| {
        let mut versions = versions.iter();
        let with_versions = place.template.try_map(|reference| {
            let version = versions.next().cloned().flatten();
            let at = version.map(|version| format!("{version}{suffix}"));
            Ok::<_, Infallible>(SecretReference {
                at: at.or_else(|| (!suffix.is_empty()).then(|| suffix.to_owned())),
                ..reference.clone()
            })
        });
        let Ok(template) = with_versions;
        let text = if is_json {
            template.json_stand_in()
        } else {
            template.to_string()
        };
        encoded(text.as_bytes(), is_text)
    };
    place.leaf = leaf("");
    // Somebody has written to the object the reference that the dry-run sends in place of the secret value. It
    // must differ from the live text, or the object would look unchanged.
    if live == Some(place.leaf.as_str()) {
        place.leaf = leaf("~");
    }
    Ok(place)
}

impl PlannedReferences {
    /// Returns the object with its references, as the engine passed it.
    pub(crate) fn original(&self) -> &Resource {
        &self.original
    }

    /// Returns the records of the references.
    pub(crate) fn written(&self) -> WrittenReferences {
        let places = self.places.iter();
        places
            .map(|place| (place.path.clone(), place.written.clone()))
            .collect()
    }

    /// Sets the origin of changes at references, and returns notes about them.
    pub(crate) fn explain(&self, changes: &mut [FieldChange]) -> Vec<String> {
        for change in changes {
            let place = self.places.iter().find(|place| place.path == change.path);
            if let Some(origin) = place.and_then(|place| place.origin.clone()) {
                change.origin = origin;
            }
        }
        let notes = self.places.iter().filter_map(|place| place.note.clone());
        notes.collect()
    }

    /// Marks values as unknown that only the write reads, in the object that references of other resources
    /// use.
    pub(crate) fn hide_stand_ins(&self, expected: &mut Value) {
        for place in self.to_write() {
            if let Some(leaf) = expected.pointer_mut(place.path.as_str()) {
                *leaf = masked_value::unknown();
            }
        }
    }

    fn to_write(&self) -> impl Iterator<Item = &ReferencePlace> {
        self.places.iter().filter(|place| place.is_stand_in)
    }

    /// Replaces stand-ins by values in an object that is about to be written, and returns the paths of the
    /// values.
    ///
    /// # Errors
    /// A value is not available, or is not UTF-8 inside a longer text.
    pub(crate) async fn fill_in(
        &self,
        resolver: &dyn SecretResolver,
        body: &mut Value,
    ) -> Result<Vec<&FieldPath>, UserError> {
        let mut filled = Vec::new();
        for place in self.to_write() {
            // The stand-in was removed from the body, because the field is ignored or left to another
            // manager.
            if body.pointer(place.path.as_str()).and_then(Value::as_str) != Some(&place.leaf) {
                continue;
            }
            let value = place.value(resolver).await?;
            if let Some(leaf) = body.pointer_mut(place.path.as_str()) {
                *leaf = Value::String(encoded(&value, place.is_text));
                filled.push(&place.path);
            }
        }
        Ok(filled)
    }
}

impl ReferencePlace {
    /// Leaves the value to its other writers. The record then no longer states that its reference was
    /// written.
    fn leave(&mut self) {
        self.is_stand_in = false;
        self.origin = None;
        self.note = None;
        self.written = WrittenReference::unknown();
    }

    async fn value(&self, resolver: &dyn SecretResolver) -> Result<Zeroizing<Vec<u8>>, UserError> {
        self.template.value(resolver, template_place(self.is_text)).await
    }
}

/// Returns the marker of a live text, as a state contains it.
fn marked(secrets: &Secrets, live: &str, is_text: bool) -> Value {
    let clear = if is_text {
        None
    } else {
        decode_base64(live).and_then(|bytes| String::from_utf8(bytes).ok())
    };
    secrets.marked(&Value::String(clear.unwrap_or_else(|| live.to_owned())))
}

fn encoded(bytes: &[u8], is_text: bool) -> String {
    if is_text {
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        encode_base64(bytes)
    }
}
