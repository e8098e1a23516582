//! The result of an export, and refusals that several targets have in common.

use std::collections::BTreeMap;

use crate::{
    bundle::Bundle,
    document::Document,
    error::{ExportRefusal, Why},
    value_places::{ValueGroup, ValuePlace, place_name},
};

/// Files by their path, with `/` between folders.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The exported files, and the document that describes them.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The files, without `konverge.json`.
    pub files: Files,
    /// The document about the files.
    pub document: Document,
}

/// Returns a refusal for each value that the user would have to provide, for targets other than charts. `takes`
/// returns true for values that the target can resolve itself.
pub(crate) fn unknown_values(bundle: &Bundle, takes: &dyn Fn(&ValuePlace) -> bool) -> Vec<ExportRefusal> {
    let places = bundle
        .objects
        .iter()
        .flat_map(|object| object.values.iter().map(move |place| (&object.id, place)));
    let unknown = places.filter(|(_, place)| !takes(place));
    let refusals = unknown.flat_map(|(id, place)| {
        place.values().map(|value| ExportRefusal {
            id: id.clone(),
            why: match value.group {
                ValueGroup::Secrets if value.name != place_name(id, &place.path) => {
                    Why::SecretCopy(place.path.clone(), value.name.clone())
                }
                ValueGroup::Secrets => Why::SecretData(place.path.clone()),
                ValueGroup::References => Why::Unknown(place.path.clone(), value.name.clone()),
            },
        })
    });
    refusals.collect()
}

/// Returns a refusal for each annotation in `names` that the tool obeys and an apply of Konverge does not.
pub(crate) fn obeyed_annotations(bundle: &Bundle, names: &[&str]) -> Vec<ExportRefusal> {
    let objects = bundle.objects.iter();
    let refusals = objects.flat_map(|object| {
        let found = object.annotations().filter(|name| names.contains(name));
        found.map(|name| ExportRefusal {
            id: object.id.clone(),
            why: Why::Annotation(name.to_owned()),
        })
    });
    refusals.collect()
}

/// Returns the file of an object, in a folder for its level.
pub(crate) fn level_file(bundle: &Bundle, at: usize) -> String {
    let object = &bundle.objects[at];
    format!("manifests/{:03}/{}.yaml", object.level, object.file)
}
