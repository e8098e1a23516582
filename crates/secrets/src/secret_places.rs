//! The fields of a Kubernetes object outside of a Secret that contain secret values (`into: any`). The object itself
//! does not show which fields these are: the Spec and the record of the last write do.

use std::{borrow::Cow, collections::BTreeMap, convert::Infallible};

use serde_json::{Map, Value};

use super::{
    SecretTemplate, Secrets, WrittenReferences,
    kubernetes_texts::{may_refer, rewrite_texts},
    reference_mark::reference_mark,
};
use konverge_base::model::{FieldPath, masked_value};

/// The fields that contain secret values, as paths of RFC 6901.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretPlaces {
    /// The text that the Spec now has in clear text at each path. A value with this text is not a secret.
    paths: BTreeMap<FieldPath, Option<String>>,
}

impl SecretPlaces {
    /// Returns the secret fields of an object, by its desired form and by the record of the last write.
    pub fn find(desired: Option<&Map<String, Value>>, written: &WrittenReferences) -> Self {
        let mut paths = BTreeMap::new();
        for (path, _) in written.iter().filter(|(_, written)| !written.is_plain()) {
            let text = desired
                .and_then(|desired| value_at(desired, path))
                .and_then(Value::as_str);
            paths.insert(path.clone(), text.map(str::to_owned));
        }
        if let Some(desired) = desired.filter(|desired| may_refer(desired)) {
            let visited = rewrite_texts(&mut desired.clone(), &mut |place, text| {
                let template = SecretTemplate::parse(text).ok().flatten();
                if !place.is_secret && template.is_some_and(|template| !template.is_plain()) {
                    paths.insert(place.path.clone(), None);
                }
                Ok::<_, Infallible>(None)
            });
            visited.unwrap_or_else(|never| match never {});
        }
        Self { paths }
    }

    /// Adds the secret fields of an object that was written by someone else.
    #[must_use]
    pub fn with(mut self, paths: Vec<FieldPath>, desired: Option<&Map<String, Value>>) -> Self {
        for path in paths {
            self.paths.entry(path).or_insert_with_key(|path| {
                let text = desired.and_then(|desired| value_at(desired, path));
                text.and_then(Value::as_str).map(str::to_owned)
            });
        }
        self
    }

    /// Returns true if no field is secret.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the paths of the fields that contain secret values.
    pub fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.paths.keys()
    }

    /// Replaces the values of these fields by markers. `masked` is the object after the masking by shape and name.
    pub(super) fn mark<'a>(
        &self,
        secrets: &Secrets,
        object: &Map<String, Value>,
        masked: Cow<'a, Map<String, Value>>,
    ) -> Cow<'a, Map<String, Value>> {
        let open = self.values(object).filter(|(path, value)| {
            !masked_value::is_opaque(value) && !value_at(&masked, path).is_some_and(masked_value::is_opaque)
        });
        let marks: Vec<_> = open
            .map(|(path, value)| {
                let of_text = value.as_str().and_then(|text| reference_mark(secrets, text));
                (path, of_text.unwrap_or_else(|| secrets.mark(value)))
            })
            .collect();
        if marks.is_empty() {
            return masked;
        }
        let mut whole = Value::Object(masked.into_owned());
        for (path, mark) in marks {
            if let Some(place) = whole.pointer_mut(path.as_str()) {
                *place = mark;
            }
        }
        match whole {
            Value::Object(map) => Cow::Owned(map),
            _ => Cow::Owned(Map::new()),
        }
    }

    /// Returns the texts of the secret fields in an object.
    pub fn texts(&self, object: &Value) -> Vec<String> {
        let values = object.as_object().into_iter().flat_map(|map| self.values(map));
        let texts = values.filter_map(|(_, value)| value.as_str());
        texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
    }

    fn values<'v>(
        &'v self,
        object: &'v Map<String, Value>,
    ) -> impl Iterator<Item = (&'v FieldPath, &'v Value)> {
        self.paths.iter().filter_map(|(path, in_clear)| {
            let value = value_at(object, path).filter(|value| !value.is_null())?;
            let is_clear = in_clear.is_some() && value.as_str() == in_clear.as_deref();
            (!is_clear).then_some((path, value))
        })
    }
}

/// Returns the value at a path of an object.
pub fn value_at<'a>(object: &'a Map<String, Value>, path: &FieldPath) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    object.get(&first)?.pointer(rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HashKey, WrittenReference, mask_object_at};
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn written(path: &str, text: &str) -> WrittenReferences {
        let template = SecretTemplate::parse(text).unwrap().unwrap();
        std::iter::once((path.into(), WrittenReference::new(&template, &[None]))).collect()
    }

    #[test]
    fn a_plain_place_is_masked_as_the_spec_and_the_record_say() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let desired = map(
            json!({"kind": "ConfigMap", "data": {"a": "ref+db://pay#/a", "v": "ref+db://pay?as=version"}}),
        );
        let before = written("/data/b", "ref+db://pay#/b");
        let places = SecretPlaces::find(Some(&desired), &before);
        let live =
            map(json!({"kind": "ConfigMap", "data": {"a": "one", "b": "two", "c": "three", "v": "7"}}));
        let masked = Value::Object(mask_object_at(&secrets, &live, &places).into_owned());
        assert_eq!(masked["data"]["a"], secrets.marked(&json!("one")));
        assert_eq!(masked["data"]["b"], secrets.marked(&json!("two")));
        assert_eq!(
            (&masked["data"]["c"], &masked["data"]["v"]),
            (&json!("three"), &json!("7"))
        );
        assert_eq!(
            mask_object_at(&secrets, masked.as_object().unwrap(), &places).as_ref(),
            masked.as_object().unwrap()
        );
        let planned = Value::Object(mask_object_at(&secrets, &desired, &places).into_owned());
        assert_eq!(planned["data"]["a"], json!({"$secret": {"ref": "db:pay#/a"}}));
        assert_eq!(places.texts(&Value::Object(live)), ["one", "two"]);
    }

    /// Otherwise a pull request could hide its new text behind the reference that stood there before.
    #[test]
    fn a_text_of_the_spec_is_shown_where_a_reference_was() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let desired = map(json!({"kind": "ConfigMap", "data": {"a": "evil"}}));
        let places = SecretPlaces::find(Some(&desired), &written("/data/a", "ref+db://pay#/a"));
        let shown = mask_object_at(&secrets, &desired, &places);
        assert_eq!(shown["data"]["a"], "evil");
        let live = map(json!({"kind": "ConfigMap", "data": {"a": "value"}}));
        let masked = mask_object_at(&secrets, &live, &places);
        assert_eq!(masked["data"]["a"], secrets.marked(&json!("value")));
    }

    #[test]
    fn places_of_others_are_added() {
        let desired = map(json!({"data": {"a": "text", "n": 5}}));
        let places = SecretPlaces::default();
        assert!(places.is_empty());
        let paths = ["/data/a", "/data/n", "/data/x"].map(FieldPath::new).to_vec();
        let places = places.with(paths.clone(), Some(&desired));
        assert!(!places.is_empty());
        assert_eq!(places.paths().cloned().collect::<Vec<_>>(), paths);
        assert_eq!(
            places.texts(&json!({"data": {"a": "text", "n": 5, "x": ""}})),
            Vec::<String>::new()
        );
        assert_eq!(
            places.texts(&json!({"data": {"a": "other", "n": "5", "x": "x"}})),
            ["other", "5", "x"]
        );
        let again = places.clone().with(vec!["/data/a".into()], None);
        assert_eq!(again, places, "the text of the Spec is kept");
    }

    #[test]
    fn places_are_those_with_references_outside_of_a_secret() {
        let plain = written("/data/v", "ref+db://pay?as=version");
        assert!(SecretPlaces::find(None, &plain).is_empty());
        let secret = map(
            json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "ref+db://pay#/a"},
            "metadata": {"annotations": {"b": "ref+db://pay#/b", "c": "words"}}}),
        );
        let places = SecretPlaces::find(Some(&secret), &WrittenReferences::new());
        let paths: Vec<_> = places.paths().map(FieldPath::as_str).collect();
        assert_eq!(paths, ["/metadata/annotations/b"]);
    }

    #[test]
    fn what_is_masked_by_its_shape_keeps_that_mark() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let places = SecretPlaces::default().with(vec!["/data/a".into(), "/x".into()], None);
        let secret = map(json!({"kind": "Secret", "data": {"a": "aHVudGVyMjIy"}, "x": null}));
        let masked = mask_object_at(&secrets, &secret, &places);
        assert_eq!(masked["data"]["a"], secrets.marked(&json!("hunter222")));
        assert_eq!(masked["x"], Value::Null);
        let marked = map(json!({"kind": "ConfigMap", "data": {"a": {"$unknown": true}}, "x": 5}));
        let masked = mask_object_at(&secrets, &marked, &places);
        assert_eq!(masked["data"]["a"], json!({"$unknown": true}));
        assert_eq!(masked["x"], secrets.marked(&json!(5)));
    }

    #[test]
    fn a_path_leads_to_a_value() {
        let object = map(json!({"a/b": {"~c": [1, 2]}, "d": 3}));
        for (path, value) in [
            ("/d", Some(json!(3))),
            ("/a~1b/~0c/1", Some(json!(2))),
            ("/a~1b", Some(json!({"~c": [1, 2]}))),
            ("/a~1b/x", None),
            ("/x", None),
            ("d", None),
            ("", None),
        ] {
            assert_eq!(value_at(&object, &path.into()), value.as_ref(), "{path}");
        }
    }
}
