//! Finds equal object schemas of a package, keeps each once, and names it by the shortest path at which it occurs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    names::{plain_schema, schema_part},
    schema::{ModelObject, ModelType},
};

/// The nameless objects of a package.
#[derive(Default)]
pub(crate) struct Interner {
    numbers: HashMap<ModelObject, usize>,
    objects: Vec<InternedObject>,
}

/// A nameless object, and where it occurs.
struct InternedObject {
    object: ModelObject,
    /// The shortest path to the object: the name of the root, then the properties.
    path: Vec<String>,
    /// The documentation at that path.
    doc: String,
    roots: BTreeSet<String>,
}

impl Interner {
    /// Replaces the nested objects of a root with their numbers, and records them.
    pub(crate) fn take_root(&mut self, name: &str, object: ModelObject) -> ModelObject {
        self.inside(object, &[name.to_owned()])
    }

    fn inside(&mut self, mut object: ModelObject, path: &[String]) -> ModelObject {
        for property in &mut object.properties {
            let mut place = path.to_vec();
            place.push(schema_part(&property.name));
            self.kind(&mut property.value.kind, &place);
        }
        if let Some(others) = &mut object.others {
            let mut place = path.to_vec();
            place.push("Value".to_owned());
            self.kind(&mut others.kind, &place);
        }
        object
    }

    fn kind(&mut self, kind: &mut ModelType, path: &[String]) {
        match kind {
            ModelType::List(value) | ModelType::Map(value) => self.kind(&mut value.kind, path),
            ModelType::Union(kinds) => kinds.iter_mut().for_each(|kind| self.kind(kind, path)),
            ModelType::Object(object) => {
                let object = std::mem::take(object.as_mut());
                *kind = ModelType::Shared(self.number(object, path));
            }
            _ => {}
        }
    }

    fn number(&mut self, object: ModelObject, path: &[String]) -> usize {
        let mut object = self.inside(object, path);
        // Equal objects may have different documentation, because it describes the property. So it is compared and
        // stored separately.
        let doc = std::mem::take(&mut object.doc);
        let next = self.objects.len();
        let number = *self.numbers.entry(object.clone()).or_insert(next);
        if number == next {
            self.objects.push(InternedObject {
                object,
                path: path.to_vec(),
                doc: doc.clone(),
                roots: BTreeSet::new(),
            });
        }
        let known = &mut self.objects[number];
        known.roots.insert(path[0].clone());
        if (path.len(), path) < (known.path.len(), known.path.as_slice()) {
            known.path = path.to_vec();
            known.doc = doc;
        }
        number
    }

    /// Returns the objects in the order of their numbers, with their names. `taken` are the names of roots.
    pub(crate) fn finish(self, taken: BTreeSet<String>) -> Vec<(String, ModelObject)> {
        let mut order: Vec<usize> = (0..self.objects.len()).collect();
        order.sort_by_key(|&number| {
            let path = &self.objects[number].path;
            (path.len(), path.clone(), number)
        });
        let mut taken = taken;
        let mut names = BTreeMap::new();
        for number in order {
            let known = &self.objects[number];
            // The name of an object that several roots use does not begin with the name of one of them.
            let from = usize::from(known.roots.len() > 1);
            let name = free_name(&known.path[from..].concat(), &known.path.concat(), &taken);
            taken.insert(name.clone());
            names.insert(number, name);
        }
        let named = self.objects.into_iter().zip(names.into_values());
        named
            .map(|(known, name)| {
                let object = ModelObject {
                    doc: known.doc,
                    ..known.object
                };
                (name, object)
            })
            .collect()
    }
}

fn free_name(short: &str, long: &str, taken: &BTreeSet<String>) -> String {
    let is_free =
        |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic()) && !taken.contains(*name);
    let names = [short, long].map(|name| plain_schema(name.to_owned()));
    if let Some(name) = names.iter().map(String::as_str).find(is_free) {
        return name.to_owned();
    }
    let mut numbered = (2..).map(|number| format!("{long}{number}"));
    numbered
        .find(|name| !taken.contains(name))
        .expect("there are more numbers than names")
}
