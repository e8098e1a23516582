//! `konverge.json`: what an export holds, what it keeps of the order, and what it leaves out.

use serde::Serialize;

use konverge_base::model::{CommitId, Digest, ResourceId, StackId};
use konverge_engine::spec::graph::Edge;

use crate::bundle::{Bundle, BundleEdge, BundleObject, OmittedResource};

/// The document.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Version of this format.
    pub version: u32,
    /// The identity of the stack.
    pub stack: StackId,
    /// The tool that the files are for.
    pub target: &'static str,
    /// The commit that was compiled. An artifact has none: it depends on the Spec alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The digest of the Spec, without what is left out and without data of Secrets.
    pub spec_digest: Digest,
    /// The cluster that the resources name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The objects by level.
    pub levels: Vec<Vec<ExportedObject>>,
    /// The edges that the target keeps.
    pub kept: Vec<KeptEdge>,
    /// The edges that the target does not keep, or not as an apply of Konverge does.
    pub lost: Vec<LostEdge>,
    /// The values that the user must give.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<NeededValue>,
    /// The resources that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedResource>,
    /// The values that look like secrets, and stand in the files as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_clear: Vec<Place>,
    /// The objects that get the namespace of the tool, because neither the Spec nor their kind says one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_namespace: Vec<ResourceId>,
    /// The places that the tool itself overwrites in what it applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Place>,
    /// The objects with an annotation of Konverge that no other tool obeys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotected: Vec<ResourceId>,
}

/// One object.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedObject {
    /// Its id in the Spec.
    pub id: ResourceId,
    /// Its file.
    pub file: String,
    /// Other stacks of the project have it too: one of them must own it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// Guarantee of a target before it creates the second object of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// The target waits until the first object is ready.
    Ready,
    /// The target creates the first object before.
    Created,
}

/// An edge that the target keeps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct KeptEdge {
    /// The resource that comes first.
    pub from: ResourceId,
    /// The resource that comes after it.
    pub to: ResourceId,
    /// Kind of the edge.
    pub edge: &'static str,
    /// Guarantee of the target.
    pub holds: Holds,
}

/// Order that an edge loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The target creates both in any order.
    Order,
    /// The target creates the first one before, and does not wait until it is ready.
    Readiness,
    /// One of them is left out.
    LeftOut,
}

/// An edge that the target does not keep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LostEdge {
    /// The resource that an apply of Konverge writes first.
    pub from: ResourceId,
    /// The resource that it writes after that.
    pub to: ResourceId,
    /// Kind of the edge.
    pub edge: &'static str,
    /// Part of the order that is lost.
    pub lost: Loss,
}

/// A value that the user of a chart must give.
#[derive(Debug, Clone, Serialize)]
pub struct NeededValue {
    /// The part of the values: `references` or `secrets`.
    pub group: &'static str,
    /// The key in it.
    pub name: String,
    /// The object that needs it.
    pub id: ResourceId,
    /// The place in it.
    pub path: String,
}

/// A place in an object.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// The object.
    pub id: ResourceId,
    /// The place, as a path of RFC 6901.
    pub path: String,
}

/// The word for the reason of an edge.
pub(crate) fn word(edge: Edge) -> &'static str {
    match edge {
        Edge::Explicit => "dependsOn",
        Edge::Reference => "reference",
        Edge::Order => "kind",
        Edge::Hook => "hook",
    }
}

/// Annotations that only Konverge obeys.
const OURS: [&str; 2] = ["konverge/protect", "konverge/keep"];

impl Document {
    /// The document of an export. `outcome` says what the target does with an edge, `file` where an object lies.
    pub(crate) fn new(
        bundle: &Bundle,
        target: &'static str,
        outcome: &dyn Fn(&BundleEdge) -> Result<Holds, Loss>,
        file: &dyn Fn(usize) -> String,
    ) -> Self {
        let mut kept = Vec::new();
        let mut lost = Vec::new();
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
            in_clear: bundle
                .in_clear
                .iter()
                .map(|(id, path)| Place {
                    id: id.clone(),
                    path: path.clone(),
                })
                .collect(),
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
