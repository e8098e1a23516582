//! [`Bundle`]: the objects of a compiled stack by level, before any target wraps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::{Map, Value};

use konverge_base::model::{
    CommitId, Digest, GroupKind, ResourceId, StackId,
    field_path::join_path,
    hook::HOOK,
    kind_scopes::KindScopes,
    masked_value,
    spec::{Resource, RuntimeKind, Spec},
};
use konverge_engine::spec::graph::{Edge, ResourceGraph};
use konverge_secrets::{HashKey, Secrets, mask_object};

use crate::{
    error::{ExportError, ExportRefusal, Why},
    names::ObjectNames,
    object_text::{sorted_map, text},
    secret_copies::SecretCopies,
    value_places::ValuePlace,
    values::{ValueFinder, holds_secret_data},
};

/// Resources that are left out on request. Each is listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaveOut {
    /// The resources of Terraform.
    pub terraform: bool,
    /// The objects with data of Secrets.
    pub secrets: bool,
}

/// A resource that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OmittedResource {
    /// The resource.
    pub id: ResourceId,
    /// The word of `--leave-out` that left it out.
    pub because: &'static str,
}

impl OmittedResource {
    pub(crate) fn new(id: &ResourceId, because: &'static str) -> Self {
        Self {
            id: id.clone(),
            because,
        }
    }
}

/// Inputs of a bundle.
#[derive(Debug, Clone, Copy)]
pub struct BundleRequest<'a> {
    /// The stack.
    pub stack: &'a StackId,
    /// The commit that was compiled; `None` for a working tree or a file.
    pub commit: Option<&'a CommitId>,
    /// Its Spec.
    pub spec: &'a Spec,
    /// Resources that are left out.
    pub leave_out: LeaveOut,
    /// The places whose copies of data of Secrets are carried as they are: each a resource and a path (RFC 6901), such as
    /// `v1:ConfigMap:shop:web/data/url`.
    pub in_clear: &'a [String],
    /// The name of the target, for errors.
    pub target: &'static str,
}

/// One Kubernetes object.
#[derive(Debug, Clone, PartialEq)]
pub struct BundleObject {
    /// Its id in the Spec.
    pub id: ResourceId,
    /// Its name as a file, without an ending.
    pub file: String,
    /// The whole object. A value that is not known is a token.
    pub body: Map<String, Value>,
    /// The values that are not known.
    pub values: Vec<ValuePlace>,
    /// Each edge leads from a lower level to a higher one.
    pub level: usize,
    /// Other stacks of the project have it too.
    pub is_shared: bool,
}

impl BundleObject {
    /// The kind of the object.
    pub fn kind(&self) -> GroupKind<'_> {
        GroupKind::from_attributes(&self.body)
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        text(&self.body, &["metadata", "name"])
    }

    /// `metadata.annotations`.
    pub(crate) fn annotations(&self) -> impl Iterator<Item = &str> {
        let metadata = self.body.get("metadata");
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")?.as_object());
        annotations.into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// Returns the body of the object with another annotation.
    pub(crate) fn annotated(&self, name: &str, value: String) -> Map<String, Value> {
        let mut body = self.body.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if !annotations.is_object() {
                *annotations = Value::Object(Map::new());
            }
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(name.to_owned(), Value::String(value));
            }
        }
        body
    }
}

/// Edge from an object to one that comes after it, with its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BundleEdge {
    pub(crate) from: ResourceId,
    pub(crate) to: ResourceId,
    pub(crate) kind: Edge,
}

/// A compiled stack, ready to be wrapped.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The stack.
    pub stack: StackId,
    /// The commit that was compiled.
    pub commit: Option<CommitId>,
    /// The digest of the Spec, without what is left out and without data of Secrets.
    pub digest: Digest,
    /// The cluster that the resources name.
    pub cluster: Option<String>,
    /// By level, and by id in it.
    pub objects: Vec<BundleObject>,
    /// The edges between the objects, sorted.
    pub(crate) edges: Vec<BundleEdge>,
    /// The edges of what is left out, sorted.
    pub(crate) open_edges: Vec<BundleEdge>,
    /// The resources that are left out, with the reason.
    pub left_out: Vec<OmittedResource>,
    /// The places of values that look like secrets, and are carried as the Spec has them.
    pub in_clear: Vec<(ResourceId, String)>,
    /// The objects whose namespace is that of the tool that applies them.
    pub without_namespace: Vec<ResourceId>,
}

impl Bundle {
    /// Makes the bundle of a Spec.
    ///
    /// # Errors
    /// The Spec has no valid order, resources of several clusters, nothing to export, or a resource that no target
    /// can carry.
    pub fn new(request: &BundleRequest<'_>) -> Result<Self, ExportError> {
        // A Spec is a set: neither its digest nor the files depend on the order in which it was written.
        let mut resources: Vec<_> = request.spec.resources.clone();
        resources.sort_by(|a, b| a.id.cmp(&b.id));
        let graph = ResourceGraph::from_spec(&resources)?;
        let mut sorter = Sorter::default();
        resources
            .iter()
            .for_each(|resource| sorter.sort(resource, request.leave_out));
        let cluster = one_cluster(request.stack, sorter.kept.values().copied())?;
        let carried = sorter.kept.values();
        let copies = SecretCopies::find(&resources);
        let carried =
            carried.map(|resource| resource.with(copies.without_data(&resource.attributes)).digest());
        let digest = Digest::of_set(carried);
        let mut bundle = Self {
            stack: request.stack.clone(),
            commit: request.commit.cloned(),
            digest,
            cluster,
            objects: Vec::new(),
            edges: Vec::new(),
            open_edges: Vec::new(),
            left_out: sorter.left_out,
            in_clear: Vec::new(),
            without_namespace: Vec::new(),
        };
        let mut refusals = sorter.refusals;
        let finder = ValueFinder::new(graph.ids(), &bundle.digest, copies, request.in_clear);
        bundle.add_objects(&graph, &sorter.kept, finder, &mut refusals);
        if !refusals.is_empty() {
            refusals.sort();
            return Err(ExportError::Refused {
                stack: bundle.stack,
                target: request.target,
                refusals,
            });
        }
        if bundle.objects.is_empty() {
            return Err(ExportError::Empty(bundle.stack));
        }
        bundle.add_edges(&graph, &sorter.kept);
        bundle
            .objects
            .sort_by(|a, b| (a.level, &a.id).cmp(&(b.level, &b.id)));
        Ok(bundle)
    }

    fn add_objects(
        &mut self,
        graph: &ResourceGraph,
        kept: &BTreeMap<&ResourceId, &Resource>,
        mut finder: ValueFinder,
        refusals: &mut Vec<ExportRefusal>,
    ) {
        let scopes = KindScopes::new(kept.values().copied());
        let secrets = Secrets::new(HashKey::random());
        let mut levels: HashMap<&ResourceId, usize> = HashMap::new();
        for id in graph.order() {
            let Some(resource) = kept.get(id) else { continue };
            // The numbers of the tokens do not depend on the order of the keys either.
            let mut body = sorted_map(&resource.attributes);
            if !scopes.set_namespace(&mut body) {
                self.without_namespace.push(id.clone());
            }
            let filled = match finder.fill(id, body) {
                Ok(filled) => filled,
                Err(found) => {
                    refusals.extend(found);
                    continue;
                }
            };
            let level = graph.dependencies(id).into_iter();
            let level = level.filter_map(|(id, _)| levels.get(id)).map(|level| level + 1);
            let level = level.max().unwrap_or_default();
            levels.insert(id, level);
            let marked = Value::Object(mask_object(&secrets, &filled.body).into_owned());
            let mut shown = filled.in_clear;
            let whole = Value::Object(filled.body.clone());
            masked_places(&whole, &marked, String::new(), &mut shown);
            shown.retain(|path| !filled.places.iter().any(|place| place.path == *path));
            self.in_clear
                .extend(shown.into_iter().map(|path| (id.clone(), path)));
            self.objects.push(BundleObject {
                id: id.clone(),
                file: String::new(),
                body: filled.body,
                values: filled.places,
                level,
                is_shared: resource.is_shared(),
            });
        }
        let mut names = ObjectNames::default();
        self.objects.sort_by(|a, b| a.id.cmp(&b.id));
        for object in &mut self.objects {
            let namespace = text(&object.body, &["metadata", "namespace"]).to_owned();
            object.file = names.name(&object.id, object.kind().kind, &namespace, object.name());
        }
        self.in_clear.sort();
        self.in_clear.dedup();
        self.without_namespace.sort();
    }

    fn add_edges(&mut self, graph: &ResourceGraph, kept: &BTreeMap<&ResourceId, &Resource>) {
        for to in graph.ids() {
            for (from, kind) in graph.dependencies(to) {
                let edge = BundleEdge {
                    from: from.clone(),
                    to: to.clone(),
                    kind,
                };
                if kept.contains_key(from) && kept.contains_key(to) {
                    self.edges.push(edge)
                } else {
                    self.open_edges.push(edge)
                }
            }
        }
        self.edges.sort();
        self.open_edges.sort();
    }

    /// The objects by level. No level is empty.
    pub fn levels(&self) -> impl Iterator<Item = &[BundleObject]> {
        self.objects.chunk_by(|a, b| a.level == b.level)
    }
}

/// Sorts the resources into what is exported, left out and refused.
#[derive(Default)]
struct Sorter<'a> {
    kept: BTreeMap<&'a ResourceId, &'a Resource>,
    left_out: Vec<OmittedResource>,
    refusals: Vec<ExportRefusal>,
}

impl<'a> Sorter<'a> {
    fn sort(&mut self, resource: &'a Resource, leave_out: LeaveOut) {
        let id = &resource.id;
        let refusal = |why| ExportRefusal { id: id.clone(), why };
        if resource.runtime == RuntimeKind::Terraform {
            if leave_out.terraform {
                self.left_out.push(OmittedResource::new(id, "terraform"))
            } else {
                self.refusals.push(refusal(Why::Terraform))
            }
            return;
        }
        let body = &resource.attributes;
        let is_missing = |path: &[&str]| text(body, path).is_empty();
        let missing: [(&[&str], &'static str); 3] = [
            (&["apiVersion"], "apiVersion"),
            (&["kind"], "kind"),
            (&["metadata", "name"], "metadata.name"),
        ];
        if let Some((_, name)) = missing.into_iter().find(|(path, _)| is_missing(path)) {
            self.refusals.push(refusal(Why::NotAnObject(name)));
        } else if !text(body, &["metadata", "annotations", HOOK]).is_empty() {
            // The target (Helm, Argo CD, Flux …) does not know `konverge/hook`: it would run the hook like any other
            // Job, at the wrong time.
            self.refusals.push(refusal(Why::Annotation(HOOK.to_owned())));
        } else if leave_out.secrets && holds_secret_data(body) {
            self.left_out.push(OmittedResource::new(id, "secrets"));
        } else {
            self.kept.insert(id, resource);
        }
    }
}

/// The cluster that the resources name, if they name one.
fn one_cluster<'a>(
    stack: &StackId,
    resources: impl Iterator<Item = &'a Resource>,
) -> Result<Option<String>, ExportError> {
    let named = resources.map(|resource| resource.extensions.get("cluster").and_then(Value::as_str));
    let clusters: BTreeSet<Option<&str>> = named.collect();
    let mut all: Vec<_> = clusters.into_iter().collect();
    match all.len() {
        0 | 1 => Ok(all.pop().flatten().map(str::to_owned)),
        _ => {
            let names = all.into_iter().map(|name| name.unwrap_or("the stack's own"));
            Err(ExportError::Clusters {
                stack: stack.clone(),
                clusters: names.map(|name| name.escape_debug().to_string()).collect(),
            })
        }
    }
}

/// The paths of the values that masking replaces, as a whole or in part.
fn masked_places(value: &Value, masked: &Value, path: String, found: &mut Vec<String>) {
    match (value, masked) {
        _ if value == masked => {}
        (Value::Object(map), Value::Object(new)) if !masked_value::is_secret(masked) => {
            for (key, value) in map {
                let new = new.get(key).unwrap_or(&Value::Null);
                masked_places(value, new, join_path(&path, key), found);
            }
        }
        (Value::Array(items), Value::Array(new)) if items.len() == new.len() => {
            for (at, (value, new)) in items.iter().zip(new).enumerate() {
                masked_places(value, new, format!("{path}/{at}"), found);
            }
        }
        _ => found.push(path),
    }
}
