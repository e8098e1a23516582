//! [`Bundle`]: the objects of a compiled stack by level, in a form for all targets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::{Map, Value};

use konverge_base::model::{
    CommitId, Digest, FieldPath, GroupKind, ResourceId, StackId,
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
    value_places::{Place, ValuePlace},
    values::{ValueFinder, holds_secret_data},
};

/// The groups of resources that are left out on request. The export lists each of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaveOut {
    /// Leave out Terraform resources.
    pub terraform: bool,
    /// Leave out objects with data of Secrets.
    pub secrets: bool,
}

/// A resource that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OmittedResource {
    /// The resource that is left out.
    pub id: ResourceId,
    /// The word of `--leave-out` by which the resource is left out.
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

/// The inputs of a bundle.
#[derive(Debug, Clone, Copy)]
pub struct BundleRequest<'a> {
    /// The stack to export.
    pub stack: &'a StackId,
    /// The commit that was compiled; `None` for a working tree or a file.
    pub commit: Option<&'a CommitId>,
    /// The Spec of the stack.
    pub spec: &'a Spec,
    /// The groups of resources to leave out.
    pub leave_out: LeaveOut,
    /// The locations that may contain a copy of a Secret's data in clear text: each a resource and a JSON pointer (RFC
    /// 6901), such as `v1:ConfigMap:shop:web/data/url`.
    pub in_clear: &'a [String],
    /// The name of the target, for errors.
    pub target: &'static str,
}

/// A Kubernetes object of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct BundleObject {
    /// The id of the object in the Spec.
    pub id: ResourceId,
    /// The file name, without an extension.
    pub file: String,
    /// The whole object, with a token in place of each unknown value.
    pub body: Map<String, Value>,
    /// The locations of the unknown values.
    pub values: Vec<ValuePlace>,
    /// The level of the object. Every edge leads from a lower level to a higher one.
    pub level: usize,
    /// True if other stacks of the project have the same object.
    pub is_shared: bool,
}

impl BundleObject {
    /// Returns the kind of the object.
    pub fn kind(&self) -> GroupKind<'_> {
        GroupKind::from_attributes(&self.body)
    }

    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        text(&self.body, &["metadata", "name"])
    }

    /// Returns the names of the annotations.
    pub(crate) fn annotations(&self) -> impl Iterator<Item = &str> {
        let metadata = self.body.get("metadata");
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")?.as_object());
        annotations.into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// Returns the object with an additional annotation.
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

/// A dependency between two objects, with its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BundleEdge {
    pub(crate) from: ResourceId,
    pub(crate) to: ResourceId,
    pub(crate) kind: Edge,
}

/// A compiled stack, ready for a target.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The exported stack.
    pub stack: StackId,
    /// The commit that was compiled.
    pub commit: Option<CommitId>,
    /// The digest of the Spec, without the left out resources and without data of Secrets.
    pub digest: Digest,
    /// The cluster that the resources name, if any.
    pub cluster: Option<String>,
    /// The objects, sorted by level and id.
    pub objects: Vec<BundleObject>,
    /// The edges between the objects, sorted.
    pub(crate) edges: Vec<BundleEdge>,
    /// The edges from or to a left out resource, sorted.
    pub(crate) open_edges: Vec<BundleEdge>,
    /// The left out resources, with the reasons.
    pub left_out: Vec<OmittedResource>,
    /// The locations of copies of a Secret's data that are exported in clear text.
    pub in_clear: Vec<Place>,
    /// The objects that get the namespace of the tool that applies them.
    pub without_namespace: Vec<ResourceId>,
}

impl Bundle {
    /// Creates the bundle of a Spec.
    ///
    /// # Errors
    /// The resources have no valid order, belong to several clusters, or include one that no target can express; or
    /// nothing is left to export.
    pub fn new(request: &BundleRequest<'_>) -> Result<Self, ExportError> {
        // A Spec is a set, so the digest and the files must not depend on the order in which it was written.
        let mut resources: Vec<_> = request.spec.resources.clone();
        resources.sort_by(|a, b| a.id.cmp(&b.id));
        let graph =
            ResourceGraph::from_spec(&resources).map_err(|error| ExportError::Graph(Box::new(error)))?;
        let mut sorter = Sorter::default();
        resources
            .iter()
            .for_each(|resource| sorter.sort(resource, request.leave_out));
        let cluster = one_cluster(request.stack, sorter.kept.values().copied())?;
        let carried = sorter.kept.values();
        // The digest is published with the files, so it is computed without data of Secrets: otherwise short
        // secrets could be guessed from it.
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
        refuse(&bundle, request.target, refusals)?;
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
        // Dependencies come first, so their levels and values are known when an object needs them.
        for id in graph.order() {
            let Some(resource) = kept.get(id) else { continue };
            // Sorted keys make the numbers of the tokens independent of the order of keys.
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
            // A value that masking would hide, and that no token replaces, is exported in clear text. These locations
            // are listed for the user.
            let marked = Value::Object(mask_object(&secrets, &filled.body).into_owned());
            let mut shown = filled.in_clear;
            let whole = Value::Object(filled.body.clone());
            masked_places(&whole, &marked, FieldPath::root(), &mut shown);
            shown.retain(|path| !filled.places.iter().any(|place| place.path == *path));
            let shown = shown.into_iter();
            self.in_clear
                .extend(shown.map(|path| Place { id: id.clone(), path }));
            self.objects.push(BundleObject {
                id: id.clone(),
                file: String::new(),
                body: filled.body,
                values: filled.places,
                level,
                is_shared: resource.is_shared(),
            });
        }
        // Names are given in the order of ids, so that they do not depend on the dependencies.
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

    /// Returns the objects by level. No level is empty.
    pub fn levels(&self) -> impl Iterator<Item = &[BundleObject]> {
        self.objects.chunk_by(|a, b| a.level == b.level)
    }
}

/// Sorts resources into exported, left out and refused ones.
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
            // Helm, Argo CD and Flux do not know `konverge/hook`. They would run the hook as a normal Job, at the
            // wrong time.
            self.refusals.push(refusal(Why::Annotation(HOOK.to_owned())));
        } else if leave_out.secrets && holds_secret_data(body) {
            self.left_out.push(OmittedResource::new(id, "secrets"));
        } else {
            self.kept.insert(id, resource);
        }
    }
}

/// Returns the cluster that the resources name, if any.
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

/// Collects the paths of values that masking changes, entirely or in part.
fn masked_places(value: &Value, masked: &Value, path: FieldPath, found: &mut Vec<FieldPath>) {
    match (value, masked) {
        _ if value == masked => {}
        (Value::Object(map), Value::Object(new)) if !masked_value::is_secret(masked) => {
            for (key, value) in map {
                let new = new.get(key).unwrap_or(&Value::Null);
                masked_places(value, new, path.join(key), found);
            }
        }
        (Value::Array(items), Value::Array(new)) if items.len() == new.len() => {
            for (at, (value, new)) in items.iter().zip(new).enumerate() {
                masked_places(value, new, path.item(at), found);
            }
        }
        _ => found.push(path),
    }
}

/// Returns an error if there are refusals.
pub(crate) fn refuse(
    bundle: &Bundle,
    target: &'static str,
    mut refusals: Vec<ExportRefusal>,
) -> Result<(), ExportError> {
    if refusals.is_empty() {
        return Ok(());
    }
    refusals.sort();
    Err(refused(bundle, target, refusals))
}

pub(crate) fn refused(bundle: &Bundle, target: &'static str, refusals: Vec<ExportRefusal>) -> ExportError {
    ExportError::Refused {
        stack: bundle.stack.clone(),
        target,
        refusals,
    }
}
