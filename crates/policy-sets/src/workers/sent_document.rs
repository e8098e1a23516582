//! [`SentDocument`]: a plan document in the form that is sent to a worker. A created resource has the same object
//! in `after` and in its change, an unchanged one in `before` and `after`: each such value is sent once. The
//! changes are only sent if one of the sets reads changes, which most do not.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::PolicySet;
use konverge_base::model::{
    ClusterName, FieldPath, ResourceId,
    other_names::OtherNames,
    plan::{Action, Basis, ChangeOrigin},
    plan_document::{DocumentChange, DocumentResource, DocumentStack, StackDocument},
    spec::RuntimeKind,
};

/// A document that is sent to a worker, or was received by one.
#[derive(Debug, Clone)]
pub(super) struct SentDocument {
    pub document: Arc<StackDocument>,
    /// True if the changes of the resources are sent too.
    pub with_changes: bool,
}

/// The document that a worker has, without keeping that document alive in our memory.
pub(super) struct KeptDocument {
    document: Weak<StackDocument>,
    with_changes: bool,
}

impl SentDocument {
    /// Creates the document in the form that these sets need.
    pub(super) fn new(document: &Arc<StackDocument>, sets: &[&PolicySet]) -> Self {
        let mut sources = sets.iter().filter_map(|set| set.source().ok());
        Self {
            document: Arc::clone(document),
            with_changes: sources.any(|source| source.sees_changes()),
        }
    }

    /// Returns a record of this document, for a worker that received it.
    pub(super) fn kept(&self) -> KeptDocument {
        KeptDocument {
            document: Arc::downgrade(&self.document),
            with_changes: self.with_changes,
        }
    }

    /// Returns true if a worker with that document already has everything that this one contains.
    pub(super) fn is_in(&self, kept: &KeptDocument) -> bool {
        let is_same = Weak::as_ptr(&kept.document) == Arc::as_ptr(&self.document);
        is_same && (kept.with_changes || !self.with_changes)
    }
}

#[derive(Serialize, Deserialize)]
struct SentStack<'a> {
    version: u32,
    stack: Cow<'a, DocumentStack>,
    basis: Basis,
    resources: Vec<SentResource<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SentResource<'a> {
    id: Cow<'a, ResourceId>,
    runtime: RuntimeKind,
    kind: Cow<'a, str>,
    cluster: Option<Cow<'a, ClusterName>>,
    action: Action,
    replace: Cow<'a, [FieldPath]>,
    data_loss: bool,
    before: SentValue<'a>,
    after: SentValue<'a>,
    changes: Vec<SentChange<'a>>,
    unknown: Cow<'a, [FieldPath]>,
    secret: Cow<'a, [FieldPath]>,
    known_before_write: bool,
}

#[derive(Serialize, Deserialize)]
struct SentChange<'a> {
    path: Cow<'a, FieldPath>,
    from: SentValue<'a>,
    to: SentValue<'a>,
    origin: Cow<'a, ChangeOrigin>,
}

/// A value, or a reference to an equal value that is sent elsewhere in the resource.
#[derive(Serialize, Deserialize)]
enum SentValue<'a> {
    /// There is no value.
    Absent,
    /// The value equals the resource before the change.
    Before,
    /// The value equals the resource after the change.
    After,
    /// This value.
    Is(Cow<'a, Value>),
}

impl<'a> SentValue<'a> {
    fn new(value: Option<&'a Value>) -> Self {
        value.map_or(Self::Absent, |value| Self::Is(Cow::Borrowed(value)))
    }

    /// Encodes a value of a change. A value that equals the whole resource is sent as a reference.
    fn of_change(value: Option<&'a Value>, resource: &DocumentResource) -> Self {
        match value {
            Some(whole) if resource.before.as_ref() == Some(whole) => Self::Before,
            Some(whole) if resource.after.as_ref() == Some(whole) => Self::After,
            value => Self::new(value),
        }
    }

    fn received(self, before: Option<&Value>, after: Option<&Value>) -> Option<Value> {
        match self {
            Self::Absent => None,
            Self::Before => before.cloned(),
            Self::After => after.cloned(),
            Self::Is(value) => Some(value.into_owned()),
        }
    }
}

impl Serialize for SentDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let document = &*self.document;
        let resources = document.resources.iter();
        SentStack {
            version: document.version,
            stack: Cow::Borrowed(&document.stack),
            basis: document.basis,
            resources: resources
                .map(|resource| sent(resource, self.with_changes))
                .collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SentDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stack = SentStack::deserialize(deserializer)?;
        let document = StackDocument {
            version: stack.version,
            stack: stack.stack.into_owned(),
            basis: stack.basis,
            known_as: OtherNames::default(),
            hidden: Default::default(),
            resources: stack.resources.into_iter().map(received).collect(),
        };
        Ok(Self {
            document: Arc::new(document),
            with_changes: true,
        })
    }
}

fn sent(resource: &DocumentResource, with_changes: bool) -> SentResource<'_> {
    let after = match (&resource.before, &resource.after) {
        (Some(before), Some(after)) if before == after => SentValue::Before,
        (_, after) => SentValue::new(after.as_ref()),
    };
    let changes = resource.changes.iter().filter(|_| with_changes);
    let changes = changes.map(|change| SentChange {
        path: Cow::Borrowed(&change.path),
        from: SentValue::of_change(change.from.as_ref(), resource),
        to: SentValue::of_change(change.to.as_ref(), resource),
        origin: Cow::Borrowed(&change.origin),
    });
    SentResource {
        id: Cow::Borrowed(&resource.id),
        runtime: resource.runtime,
        kind: Cow::Borrowed(&resource.kind),
        cluster: resource.cluster.as_ref().map(Cow::Borrowed),
        action: resource.action,
        replace: Cow::Borrowed(&resource.replace),
        data_loss: resource.data_loss,
        before: SentValue::new(resource.before.as_ref()),
        after,
        changes: changes.collect(),
        unknown: Cow::Borrowed(&resource.unknown),
        secret: Cow::Borrowed(&resource.secret),
        known_before_write: resource.known_before_write,
    }
}

fn received(resource: SentResource<'_>) -> DocumentResource {
    let before = resource.before.received(None, None);
    let after = resource.after.received(before.as_ref(), None);
    let changes = resource.changes.into_iter().map(|change| DocumentChange {
        path: change.path.into_owned(),
        from: change.from.received(before.as_ref(), after.as_ref()),
        to: change.to.received(before.as_ref(), after.as_ref()),
        origin: change.origin.into_owned(),
    });
    DocumentResource {
        id: resource.id.into_owned(),
        runtime: resource.runtime,
        kind: resource.kind.into_owned(),
        cluster: resource.cluster.map(Cow::into_owned),
        action: resource.action,
        replace: resource.replace.into_owned(),
        data_loss: resource.data_loss,
        changes: changes.collect(),
        before,
        after,
        unknown: resource.unknown.into_owned(),
        secret: resource.secret.into_owned(),
        known_before_write: resource.known_before_write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resource whose whole object changes, is null, or stays, and one with a change of a field that looks like it.
    #[test]
    fn what_is_received_is_what_was_sent_and_an_object_is_sent_once() {
        let object = serde_json::json!({"kind": "ConfigMap", "data": {"only": "once"}});
        let other = serde_json::json!({"kind": "ConfigMap", "data": {"only": "twice"}});
        let resource =
            |before: Option<&Value>, after: Option<&Value>, changes: Vec<DocumentChange>| DocumentResource {
                id: "v1:ConfigMap:shop:web".parse().unwrap(),
                runtime: RuntimeKind::Kubernetes,
                kind: "ConfigMap".to_owned(),
                cluster: Some("prod".parse().unwrap()),
                action: Action::Update,
                replace: vec!["data".into()],
                data_loss: true,
                before: before.cloned(),
                after: after.cloned(),
                changes,
                unknown: vec!["a".into()],
                secret: vec!["b".into()],
                known_before_write: true,
            };
        let change = |path: &str, from: Option<&Value>, to: Option<&Value>| DocumentChange {
            path: path.into(),
            from: from.cloned(),
            to: to.cloned(),
            origin: ChangeOrigin::Manager("kubectl".to_owned()),
        };
        let null = Value::Null;
        let sides = [None, Some(&object), Some(&other), Some(&null)];
        for before in sides {
            for after in sides {
                for from in sides {
                    let changes = vec![change("", from, after), change("data", before, from)];
                    let document = StackDocument {
                        version: 1,
                        stack: DocumentStack {
                            id: "shop/prod".parse().unwrap(),
                            folder: konverge_base::model::RepoPath::root(),
                        },
                        basis: Basis::Live,
                        known_as: OtherNames::default(),
                        hidden: Default::default(),
                        resources: vec![resource(before, after, changes)],
                    };
                    let send = |with_changes| {
                        let document = Arc::new(document.clone());
                        let sent = SentDocument {
                            document,
                            with_changes,
                        };
                        serde_json::to_string(&sent).unwrap()
                    };
                    let sent = send(true);
                    assert!(sent.matches("once").count() <= 2, "{sent}");
                    let received: SentDocument = serde_json::from_str(&sent).unwrap();
                    assert_eq!(*received.document, document);
                    let without: SentDocument = serde_json::from_str(&send(false)).unwrap();
                    let mut wanted = document;
                    wanted.resources[0].changes.clear();
                    assert_eq!(*without.document, wanted);
                }
            }
        }
        let created = vec![change("", None, Some(&object))];
        let created = resource(None, Some(&object), created);
        for with_changes in [true, false] {
            let text = serde_json::to_string(&sent(&created, with_changes)).unwrap();
            assert_eq!(text.matches("once").count(), 1, "{text}");
        }
    }

    /// Values that look like the references of the message format.
    #[test]
    fn a_value_that_looks_like_a_word_of_the_message_stays_a_value() {
        let looks = [
            serde_json::json!("After"),
            serde_json::json!({"Is": "x"}),
            serde_json::json!({"Before": null, "After": {}}),
            serde_json::json!({"$serde_json::private::Number": "1", "a": true}),
            serde_json::json!({"$serde_json::private::RawValue": "{}", "a": true}),
        ];
        for look in &looks {
            for other in looks.iter().map(Some).chain([None]) {
                let change = DocumentChange {
                    path: FieldPath::root(),
                    from: None,
                    to: Some(look.clone()),
                    origin: ChangeOrigin::Change,
                };
                let resource = DocumentResource {
                    id: "v1:ConfigMap:shop:web".parse().unwrap(),
                    runtime: RuntimeKind::Kubernetes,
                    kind: "ConfigMap".to_owned(),
                    cluster: None,
                    action: Action::Update,
                    replace: Vec::new(),
                    data_loss: false,
                    before: other.cloned(),
                    after: Some(look.clone()),
                    changes: vec![change],
                    unknown: Vec::new(),
                    secret: Vec::new(),
                    known_before_write: false,
                };
                let text = serde_json::to_string(&sent(&resource, true)).unwrap();
                assert_eq!(received(serde_json::from_str(&text).unwrap()), resource);
            }
        }
    }

    #[test]
    fn a_worker_that_has_a_document_without_its_changes_needs_it_again_for_rules_that_see_them() {
        let document = || {
            Arc::new(StackDocument {
                version: 1,
                stack: DocumentStack {
                    id: "shop/prod".parse().unwrap(),
                    folder: konverge_base::model::RepoPath::root(),
                },
                basis: Basis::Live,
                known_as: OtherNames::default(),
                hidden: Default::default(),
                resources: Vec::new(),
            })
        };
        let sent = |document: &Arc<StackDocument>, with_changes| SentDocument {
            document: Arc::clone(document),
            with_changes,
        };
        let (one, other) = (document(), document());
        for (kept, asked, is_in) in [
            (true, true, true),
            (true, false, true),
            (false, true, false),
            (false, false, true),
        ] {
            assert_eq!(sent(&one, asked).is_in(&sent(&one, kept).kept()), is_in);
            assert!(!sent(&other, asked).is_in(&sent(&one, kept).kept()));
        }
        let kept = sent(&one, true).kept();
        assert_eq!(Arc::strong_count(&one), 1);
        drop(one);
        // The weak reference keeps the allocation, so no other document can get the address of one that is still
        // compared.
        assert!(!sent(&document(), true).is_in(&kept));
    }
}
