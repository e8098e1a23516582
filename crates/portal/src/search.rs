//! [`SearchIndex`]: kinds, names and images of the resources of all stacks.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;

use konverge_base::model::StackId;

/// The maximum number of hits in a result.
const HITS: usize = 500;

/// The searchable names of one stack.
#[derive(Debug, Clone, Default)]
pub struct SearchNames {
    /// The names of the resources by kind.
    pub names: BTreeMap<String, Vec<String>>,
    /// The images of the stack's containers.
    pub images: BTreeSet<String>,
    /// The number of resources and images that were left out.
    pub more: usize,
}

/// The searchable names of all stacks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SearchIndex {
    /// The stacks. The other fields refer to them by index.
    pub stacks: Vec<StackId>,
    /// The names by kind, each with the indexes of the stacks that have such a resource.
    pub kinds: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
    /// The images, each with the indexes of the stacks that use it.
    pub images: BTreeMap<String, Vec<usize>>,
    /// The number of left out resources and images, by index of the stack.
    pub unnamed: BTreeMap<usize, usize>,
}

/// The result of a search. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchResult {
    /// Version of this format.
    pub version: u32,
    /// The hits, sorted by kind and name; images come last.
    pub hits: Vec<SearchHit>,
    /// The number of further hits.
    pub more: usize,
    /// The number of resources and images that were not searched, because their stacks have too many.
    pub unnamed: usize,
}

/// A resource or an image, and the stacks that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchHit {
    /// The kind of the resource, or `image`.
    pub kind: String,
    /// The name of the resource, or the image.
    pub name: String,
    /// The stacks that have the resource or the image.
    pub stacks: Vec<StackId>,
}

impl SearchIndex {
    /// Adds the names of a stack.
    pub fn add(&mut self, stack: &StackId, names: SearchNames) {
        let place = self.stacks.len();
        self.stacks.push(stack.clone());
        for (kind, names) in names.names {
            let kind = self.kinds.entry(kind).or_default();
            for name in names {
                kind.entry(name).or_default().push(place);
            }
        }
        for image in names.images {
            self.images.entry(image).or_default().push(place);
        }
        if names.more > 0 {
            self.unnamed.insert(place, names.more);
        }
    }

    /// Returns a copy with the names of some stacks. Nothing reveals the others.
    pub(crate) fn restricted(&self, may_see: impl Fn(&StackId) -> bool) -> Self {
        let mut index = Self::default();
        let mut places = vec![None; self.stacks.len()];
        for (stack, place) in self.stacks.iter().zip(&mut places) {
            if may_see(stack) {
                *place = Some(index.stacks.len());
                index.stacks.push(stack.clone());
            }
        }
        let now = |place: &usize| places.get(*place).copied().flatten();
        let seen = |of: &[usize]| -> Vec<usize> { of.iter().filter_map(now).collect() };
        let names = |names: &BTreeMap<String, Vec<usize>>| -> BTreeMap<String, Vec<usize>> {
            let seen = names.iter().map(|(name, of)| (name.clone(), seen(of)));
            seen.filter(|(_, of)| !of.is_empty()).collect()
        };
        let kinds = self.kinds.iter().map(|(kind, of)| (kind.clone(), names(of)));
        index.kinds = kinds.filter(|(_, of)| !of.is_empty()).collect();
        index.images = names(&self.images);
        let unnamed = self.unnamed.iter();
        index.unnamed = unnamed
            .filter_map(|(place, count)| Some((now(place)?, *count)))
            .collect();
        index
    }

    /// Returns the stacks at these indexes.
    pub fn stacks_at<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = &'a StackId> {
        places.iter().filter_map(|place| self.stacks.get(*place))
    }

    /// Finds all resources and images that contain each word of a text in their kind, name or image.
    pub fn search(&self, text: &str) -> SearchResult {
        let text = text.to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        let kinds = self.kinds.iter().map(|(kind, names)| (kind.as_str(), names));
        let (mut hits, mut more) = (Vec::new(), 0);
        for (kind, names) in kinds.chain([("image", &self.images)]) {
            let in_kind = lowercase(kind);
            let rest: Vec<_> = words.iter().filter(|word| !in_kind.contains(**word)).collect();
            let has = |name: &str| {
                let name = lowercase(name);
                rest.iter().all(|word| name.contains(**word))
            };
            for (name, places) in names.iter().filter(|(name, _)| !words.is_empty() && has(name)) {
                if hits.len() == HITS {
                    more += 1;
                    continue;
                }
                hits.push(SearchHit {
                    kind: kind.to_owned(),
                    name: name.clone(),
                    stacks: self.stacks_at(places).cloned().collect(),
                });
            }
        }
        SearchResult {
            version: 1,
            hits,
            more,
            unnamed: self.unnamed.values().sum(),
        }
    }
}

/// Converts a name to lower case. A search reads all names, and most are lower case already, so these are not
/// copied.
fn lowercase(text: &str) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_in_kind_name_or_image_and_what_is_left_out_is_counted() {
        let mut index = SearchIndex::default();
        for (stack, image) in [("shop/dev", "nginx:1"), ("shop/prod", "nginx:2")] {
            let names = SearchNames {
                names: BTreeMap::from([("apps/v1:Deployment".to_owned(), vec!["shop:Web".to_owned()])]),
                images: BTreeSet::from([image.to_owned()]),
                more: 3,
            };
            index.add(&stack.parse().unwrap(), names);
        }
        let found = |text: &str| {
            let result = index.search(text);
            assert_eq!(result.unnamed, 6);
            let hits = result.hits.into_iter();
            hits.map(|hit| format!("{} {} {}", hit.kind, hit.name, hit.stacks.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(found("deployment web"), ["apps/v1:Deployment shop:Web 2"]);
        assert_eq!(found("NGINX"), ["image nginx:1 1", "image nginx:2 1"]);
        assert_eq!(found("Deployment"), ["apps/v1:Deployment shop:Web 2"]);
        assert_eq!(found("WEB"), ["apps/v1:Deployment shop:Web 2"]);
        assert!(found("").is_empty() && found("web nginx").is_empty());
        let many = SearchNames {
            names: BTreeMap::from([(
                "v1:Pod".to_owned(),
                (0..HITS + 7).map(|n| format!("p{n}")).collect(),
            )]),
            ..SearchNames::default()
        };
        index.add(&"a/b".parse().unwrap(), many);
        let result = index.search("pod");
        assert_eq!((result.hits.len(), result.more), (HITS, 7));
    }
}
