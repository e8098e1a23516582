//! Classes: cluster-scoped objects that have no effect until another object names them. So a renamed copy affects
//! nobody, unless it is a default class, or its pods may evict pods of others.

use konverge_base::model::GroupKind;
use serde_json::Value;

/// A kind of class, such as StorageClass.
struct Class {
    of: GroupKind<'static>,
    /// The key by which other objects name the class, at any place.
    key: &'static str,
    /// The annotation by which other objects name the class.
    annotation: Option<&'static str>,
    /// The paths at which a class declares itself the default.
    defaults: &'static [&'static str],
}

const CLASSES: [Class; 5] = [
    Class {
        of: GroupKind::PRIORITY_CLASS,
        key: "priorityClassName",
        annotation: None,
        defaults: &["/globalDefault"],
    },
    Class {
        of: GroupKind::INGRESS_CLASS,
        key: "ingressClassName",
        annotation: Some("kubernetes.io/ingress.class"),
        defaults: &["/metadata/annotations/ingressclass.kubernetes.io~1is-default-class"],
    },
    Class {
        of: GroupKind::STORAGE_CLASS,
        key: "storageClassName",
        annotation: Some("volume.beta.kubernetes.io/storage-class"),
        defaults: &[
            "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
            "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
        ],
    },
    Class {
        of: GroupKind::VOLUME_ATTRIBUTES_CLASS,
        key: "volumeAttributesClassName",
        annotation: None,
        defaults: &[],
    },
    Class {
        of: GroupKind::RUNTIME_CLASS,
        key: "runtimeClassName",
        annotation: None,
        defaults: &[],
    },
];

/// The suffix after the name of a StorageClass in a key of a ResourceQuota:
/// `CLASS.storageclass.storage.k8s.io/requests.storage`.
const QUOTA: &str = ".storageclass.storage.k8s.io/";

/// Returns true for a kind of class.
pub(super) fn is_class(of: GroupKind<'_>) -> bool {
    CLASSES.iter().any(|class| class.of == of)
}

/// Returns the reason why a class cannot be moved; `None` if it can, or if the object is no class.
pub(super) fn refusal(of: GroupKind<'_>, object: &Value) -> Option<String> {
    let class = CLASSES.iter().find(|class| class.of == of)?;
    let is_default = |path: &&&str| match object.pointer(path) {
        None | Some(Value::Null) => false,
        Some(value) => !matches!(value, Value::Bool(false)) && value.as_str() != Some("false"),
    };
    if class.defaults.iter().any(|path| is_default(&path)) {
        return Some(format!("a default {} acts on the whole cluster", of.kind));
    }
    match of {
        // `PreemptLowerPriority` is the default, so a class without the field may evict other pods.
        GroupKind::PRIORITY_CLASS
            if object.pointer("/preemptionPolicy").and_then(Value::as_str) != Some("Never") =>
        {
            Some("its pods may evict the pods of others: write `preemptionPolicy: Never`".to_owned())
        }
        GroupKind::INGRESS_CLASS
            if object
                .pointer("/spec/parameters")
                .is_some_and(|value| !value.is_null()) =>
        {
            Some("its parameters are an object that is not moved".to_owned())
        }
        GroupKind::STORAGE_CLASS
            if object
                .pointer("/reclaimPolicy")
                .is_some_and(|kept| !kept.is_null() && kept != "Delete") =>
        {
            Some("the volumes of this class stay when the test ends (`reclaimPolicy`)".to_owned())
        }
        _ => None,
    }
}

/// Renames classes in all fields that name one. `renamed` returns the new name of a class of the Spec, by kind and
/// name.
pub(super) fn rename(value: &mut Value, renamed: &dyn Fn(GroupKind<'_>, &str) -> Option<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, renamed)),
        Value::Object(map) => {
            for class in &CLASSES {
                for key in [Some(class.key), class.annotation].into_iter().flatten() {
                    if let Some(Value::String(name)) = map.get_mut(key)
                        && let Some(new) = renamed(class.of, name)
                    {
                        *name = new;
                    }
                }
            }
            // A ResourceQuota names priority classes in its scope.
            if map.get("scopeName").and_then(Value::as_str) == Some(GroupKind::PRIORITY_CLASS.kind) {
                let values = map.get_mut("values").and_then(Value::as_array_mut);
                for value in values.into_iter().flatten() {
                    if let Some(new) = value
                        .as_str()
                        .and_then(|name| renamed(GroupKind::PRIORITY_CLASS, name))
                    {
                        *value = Value::String(new);
                    }
                }
            }
            let quota = |key: &String| {
                let (name, rest) = key.split_once(QUOTA)?;
                Some((
                    key.clone(),
                    format!("{}{QUOTA}{rest}", renamed(GroupKind::STORAGE_CLASS, name)?),
                ))
            };
            for (old, new) in map.keys().filter_map(quota).collect::<Vec<_>>() {
                if let Some(value) = map.shift_remove(&old) {
                    map.insert(new, value);
                }
            }
            map.values_mut().for_each(|value| rename(value, renamed));
        }
        _ => {}
    }
}
