//! The result of an export, and the refusals that targets share.

use std::collections::BTreeMap;

use crate::{
    bundle::Bundle,
    document::Document,
    error::{ExportError, ExportRefusal, Why},
    value_places::{ValueGroup, ValuePlace, place_name},
};

/// Files by their path, with `/` between folders.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The result of an export.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The files, without `konverge.json`.
    pub files: Files,
    /// Document about the files: their objects, order, and what is left out.
    pub document: Document,
}

/// Refuses what a target cannot carry.
pub(crate) fn refuse(
    bundle: &Bundle,
    target: &'static str,
    mut refusals: Vec<ExportRefusal>,
) -> Result<(), ExportError> {
    if refusals.is_empty() {
        return Ok(());
    }
    refusals.sort();
    Err(ExportError::Refused {
        stack: bundle.stack.clone(),
        target,
        refusals,
    })
}

/// The values that only a chart can ask its user for. `takes` says which ones the target takes.
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

/// The objects with annotations that a tool obeys: an apply of Konverge does not.
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

/// The file of an object in a folder for its level.
pub(crate) fn level_file(bundle: &Bundle, at: usize) -> String {
    let object = &bundle.objects[at];
    format!("manifests/{:03}/{}.yaml", object.level, object.file)
}
