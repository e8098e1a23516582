//! `konverge.json`: the content of an export, the dependencies that the target respects or loses, and the left out
//! resources.

use serde::Serialize;

use konverge_base::model::{CommitId, Digest, FieldPath, ResourceId, StackId};
use konverge_engine::spec::graph::Edge;

use crate::{
    bundle::{Bundle, BundleEdge, BundleObject, OmittedResource},
    value_places::Place,
};

/// The document about an export.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Version of this format.
    pub version: u32,
    /// The identity of the stack.
    pub stack: StackId,
    /// The tool that the files are for.
    pub target: &'static str,
    /// The compiled commit. `None` for an OCI artifact, whose bytes must depend only on the Spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The digest of the Spec, without the left out resources and without data of Secrets.
    pub spec_digest: Digest,
    /// The cluster that the resources name, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The objects by level.
    pub levels: Vec<Vec<ExportedObject>>,
    /// The edges that the target respects.
    pub kept: Vec<KeptEdge>,
    /// The edges that the target does not respect, or less strictly than an apply of Konverge.
    pub lost: Vec<LostEdge>,
    /// The values that the user must provide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<NeededValue>,
    /// The left out resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedResource>,
    /// The locations of copies of a Secret's data that the files contain in clear text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_clear: Vec<Place>,
    /// The objects that get the namespace of the tool, because they have no namespace and their kind is not known
    /// to be cluster-wide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_namespace: Vec<ResourceId>,
    /// The locations that the tool overwrites when it applies the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Place>,
    /// The objects with an annotation of Konverge that the tool ignores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotected: Vec<ResourceId>,
}

/// An object of the export.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedObject {
    /// The id of the object in the Spec.
    pub id: ResourceId,
    /// The file of the object.
    pub file: String,
    /// True if other stacks of the project have the same object; one of them must own it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// The guarantee of a target before it creates the second object of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// The first object is ready.
    Ready,
    /// The first object was created.
    Created,
}

/// An edge that the target respects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KeptEdge {
    /// The resource that comes first.
    pub from: ResourceId,
    /// The resource that comes second.
    pub to: ResourceId,
    /// The kind of the edge.
    pub edge: &'static str,
    /// The guarantee of the target.
    pub holds: Holds,
}

/// The part of an edge's order that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The target creates both objects in any order.
    Order,
    /// The target creates the first object before the second, but does not wait until it is ready.
    Readiness,
    /// One of the two resources is left out.
    LeftOut,
}

/// An edge that the target does not fully respect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LostEdge {
    /// The resource that an apply of Konverge writes first.
    pub from: ResourceId,
    /// The resource that an apply of Konverge writes second.
    pub to: ResourceId,
    /// The kind of the edge.
    pub edge: &'static str,
    /// The part of the order that is lost.
    pub lost: Loss,
}

/// A value that the user of a chart must provide.
#[derive(Debug, Clone, Serialize)]
pub struct NeededValue {
    /// The section of the values: `references` or `secrets`.
    pub group: &'static str,
    /// The key in the section.
    pub name: String,
    /// The object that needs the value.
    pub id: ResourceId,
    /// The path in the object.
    pub path: FieldPath,
}

/// Returns the name of an edge's kind.
pub(crate) fn word(edge: Edge) -> &'static str {
    match edge {
        Edge::Explicit => "dependsOn",
        Edge::Reference => "reference",
        Edge::Order => "kind",
        Edge::Hook => "hook",
    }
}

/// Annotations that only Konverge respects.
const OURS: [&str; 2] = ["konverge/protect", "konverge/keep"];

impl Document {
    /// Creates the document of an export. `outcome` decides what the target does with an edge; `file` returns the
    /// file of an object by its position.
    pub(crate) fn new(
        bundle: &Bundle,
        target: &'static str,
        outcome: &dyn Fn(&BundleEdge) -> Result<Holds, Loss>,
        file: &dyn Fn(usize) -> String,
    ) -> Self {
        let mut kept = Vec::new();
        let mut lost = Vec::new();
        // Edges of left out resources are listed as lost, so that no dependency disappears silently.
        let open = bundle.open_edges.iter().map(|edge| (edge, Err(Loss::LeftOut)));
        for (edge, outcome) in bundle.edges.iter().map(|edge| (edge, outcome(edge))).chain(open) {
            let (from, to, kind) = (edge.from.clone(), edge.to.clone(), word(edge.kind));
            match outcome {
                Ok(holds) => kept.push(KeptEdge {
                    from,
                    to,
                    edge: kind,
                    holds,
                }),
                Err(loss) => lost.push(LostEdge {
                    from,
                    to,
                    edge: kind,
                    lost: loss,
                }),
            }
        }
        lost.sort();
        // The objects are sorted by level, so their positions continue from one level to the next.
        let mut at = 0..;
        let levels = bundle.levels().map(|level| {
            let objects = level.iter().zip(&mut at).map(|(object, at)| ExportedObject {
                id: object.id.clone(),
                file: file(at),
                shared: object.is_shared,
            });
            objects.collect()
        });
        let places = bundle
            .objects
            .iter()
            .flat_map(|object| object.values.iter().map(move |place| (object, place)));
        let values = places.flat_map(|(object, place)| {
            place.values().map(|value| NeededValue {
                group: value.group.key(),
                name: value.name.clone(),
                id: object.id.clone(),
                path: place.path.clone(),
            })
        });
        let protected = |object: &&BundleObject| object.annotations().any(|name| OURS.contains(&name));
        Self {
            version: 1,
            stack: bundle.stack.clone(),
            target,
            commit: bundle.commit.clone(),
            spec_digest: bundle.digest,
            cluster: bundle.cluster.clone(),
            levels: levels.collect(),
            kept,
            lost,
            values: values.collect(),
            left_out: bundle.left_out.clone(),
            in_clear: bundle.in_clear.clone(),
            without_namespace: bundle.without_namespace.clone(),
            changed: Vec::new(),
            unprotected: bundle
                .objects
                .iter()
                .filter(protected)
                .map(|object| object.id.clone())
                .collect(),
        }
    }
}
